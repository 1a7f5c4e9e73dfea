/* What malloc and its kin promise, and what the preload adds. Prints "ok", or the line that failed.
 * usage: heap PATTERN THRESHOLD SMALL TEST   (the pattern in hex without 0x, SMALL 0 or 1) */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            char line[200];                                                              \
            int n = snprintf(line, sizeof line, "line %d: %s\n", __LINE__, #what);       \
            (void)!write(1, line, n);                                                    \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

static unsigned char pattern[4096];
static size_t pattern_len, threshold;
static int fills_small, without_areas;

/* Looks at each of the first and last 64 KiB, and at every 509th byte between. */
static void check_pattern_at(const unsigned char *memory, size_t from, size_t to) {
    for (size_t i = from; i < to; i += i - from < 65536 || to - i < 65536 ? 1 : 509)
        if (memory[i] != pattern[i % pattern_len]) {
            char line[200];
            int n = snprintf(line, sizeof line, "byte %zu of %zu is %x\n", i, to, memory[i]);
            (void)!write(1, line, n);
            abort();
        }
}

static void check_fresh(const unsigned char *memory, size_t len) {
    CHECK(memory != NULL);
    CHECK(malloc_usable_size((void *)memory) >= len);
    if (len >= threshold || fills_small)
        check_pattern_at(memory, 0, len);
}

static const size_t lengths[] = {1,       100,     4096,    131071,  131072,   131073,
                                 200000,  262144,  1000000, 6528600, 40000000};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static void test_malloc(void) {
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < LENGTHS; i++) {
            errno = 4321;
            unsigned char *memory = malloc(lengths[i]);
            /* libc's own sets it where it succeeds on its second way. */
            int keeps = !without_areas || lengths[i] >= threshold;
            CHECK(errno == 4321 || !keeps);
            check_fresh(memory, lengths[i]);
            memset(memory, 0, malloc_usable_size(memory) / (round + 1));
            free(memory);
            CHECK(errno == 4321 || !keeps);
        }
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
}

static void test_calloc(void) {
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < LENGTHS; i++) {
            unsigned char *memory = calloc(1, lengths[i]);
            CHECK(memory != NULL);
            for (size_t j = 0; j < lengths[i]; j += 61)
                CHECK(memory[j] == 0);
            memset(memory, 7, lengths[i]);
            free(memory);
            memory = malloc(lengths[i]);
            check_fresh(memory, lengths[i]);
            free(memory);
        }
    CHECK(calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
}

static void test_realloc(void) {
    for (size_t i = 0; i < LENGTHS; i++)
        for (size_t j = 0; j < LENGTHS; j++) {
            size_t from = lengths[i], to = lengths[j], least = from < to ? from : to;
            unsigned char *memory = malloc(from);
            size_t usable = malloc_usable_size(memory);
            memset(memory, 9, from);
            errno = 99;
            memory = realloc(memory, to);
            CHECK(memory != NULL && errno == 99);
            CHECK(malloc_usable_size(memory) >= to);
            for (size_t k = 0; k < least; k += 127)
                CHECK(memory[k] == 9);
            CHECK(memory[least - 1] == 9);
            /* What was usable before may hold what the program put there. */
            if (to > usable && (to >= threshold || fills_small))
                check_pattern_at(memory, usable, to);
            free(memory);
        }
    unsigned char *memory = realloc(NULL, 500000);
    check_fresh(memory, 500000);
    CHECK(realloc(memory, SIZE_MAX / 4) == NULL && errno == ENOMEM);
    check_fresh(memory, 500000);
    CHECK(realloc(memory, 0) == NULL);
    memory = calloc(1, 300000);
    memory = realloc(memory, 900000);
    for (size_t k = 0; k < 300000; k++)
        CHECK(memory[k] == 0);
    if (threshold <= 900000)
        check_pattern_at(memory, 304000, 900000);
    free(memory);
}

static void test_growth(void) {
    unsigned char *memory = NULL;
    size_t len = 0;
    for (size_t step = 1; len < 30000000; step += step / 2 + 1) {
        memory = realloc(memory, len + step);
        CHECK(memory != NULL);
        memset(memory + len, (int)step, 1);
        len += step;
    }
    len = 0;
    for (size_t step = 1; len < 30000000; step += step / 2 + 1) {
        CHECK(memory[len] == (unsigned char)step);
        len += step;
    }
    free(memory);
}

static void test_aligned(void) {
    for (size_t align = 8; align <= 1 << 23; align *= 8)
        for (size_t i = 0; i < LENGTHS; i++) {
            void *memory = aligned_alloc(align, lengths[i]);
            CHECK((uintptr_t)memory % align == 0);
            check_fresh(memory, lengths[i]);
            free(memory);
            errno = 77;
            CHECK(posix_memalign(&memory, align, lengths[i]) == 0 && errno == 77);
            CHECK((uintptr_t)memory % align == 0);
            check_fresh(memory, lengths[i]);
            memory = realloc(memory, lengths[i] + 100000);
            CHECK(memory != NULL);
            free(memory);
        }
    void *untouched = (void *)42;
    CHECK(posix_memalign(&untouched, 3, 500000) == EINVAL);
    CHECK(posix_memalign(&untouched, 4, 500000) == EINVAL);
    CHECK(posix_memalign(&untouched, 0, 500000) == EINVAL);
    CHECK(posix_memalign(&untouched, 64, SIZE_MAX / 4) == ENOMEM);
    CHECK(untouched == (void *)42);
    CHECK(aligned_alloc(64, SIZE_MAX / 4) == NULL && errno == ENOMEM);
}

/* Pointers of the allocator behind the preload, which the program got on ways of its own. */
static void test_foreign(void) {
    void *(*libc_malloc)(size_t) = (void *(*)(size_t))dlsym(dlopen("libc.so.6", RTLD_NOW), "malloc");
    CHECK(libc_malloc != NULL && libc_malloc != malloc);
    for (size_t i = 0; i < LENGTHS; i++) {
        unsigned char *memory = libc_malloc(lengths[i]);
        memset(memory, 5, lengths[i]);
        CHECK(malloc_usable_size(memory) >= lengths[i]);
        memory = realloc(memory, lengths[i] + 50000);
        CHECK(memory[lengths[i] - 1] == 5);
        free(memory);
        free(libc_malloc(lengths[i]));
        free(memalign(65536, lengths[i]));
        free(valloc(lengths[i]));
    }
    char *line = NULL;
    size_t room = 0;
    FILE *file = tmpfile();
    for (int i = 0; i < 400000; i++)
        fputc('x', file);
    rewind(file);
    CHECK(getline(&line, &room, file) == 400000);
    free(line);
    CHECK(asprintf(&line, "%0300000d", 1) == 300000);
    free(line);
}

static void *churn(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    unsigned char *held[8] = {0};
    size_t sizes[8] = {0};
    for (int i = 0; i < 600; i++) {
        unsigned slot = rand_r(&seed) % 8;
        if (held[slot]) {
            CHECK(held[slot][0] == slot && held[slot][sizes[slot] - 1] == slot);
            if (rand_r(&seed) % 3 == 0) {
                size_t old = sizes[slot];
                sizes[slot] = 100000 + rand_r(&seed) % 900000;
                held[slot] = realloc(held[slot], sizes[slot]);
                CHECK(held[slot] != NULL && held[slot][0] == slot);
                CHECK(sizes[slot] < old || held[slot][old - 1] == slot);
                held[slot][sizes[slot] - 1] = slot;
                continue;
            }
            free(held[slot]);
        }
        sizes[slot] = 100000 + rand_r(&seed) % 900000;
        held[slot] = malloc(sizes[slot]);
        check_fresh(held[slot], sizes[slot]);
        memset(held[slot], slot, sizes[slot] / 2);
        held[slot][sizes[slot] - 1] = slot;
    }
    for (int i = 0; i < 8; i++)
        free(held[i]);
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void test_fork(void) {
    pthread_t threads[2];
    unsigned char *memory = malloc(900000);
    memset(memory, 3, 450000);
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < 25; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(30);
            check_pattern_at(memory, 450000, 900000);
            CHECK(memory[0] == 3);
            free(memory);
            for (int j = 0; j < 20; j++) {
                unsigned char *fresh = malloc(300000 + j * 10000);
                check_fresh(fresh, 300000 + j * 10000);
                memset(fresh, 1, 200000);
                free(fresh);
            }
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(memory[0] == 3);
    check_pattern_at(memory, 450000, 900000);
    free(memory);
}

/* A program that closes every descriptor that it does not know, and uses the numbers. */
static void test_descriptors(void) {
    for (int round = 0; round < 10; round++) {
        for (size_t i = 5; i < LENGTHS; i++) {
            unsigned char *memory = malloc(lengths[i]);
            check_fresh(memory, lengths[i]);
            memset(memory, 1, lengths[i] / 2);
            free(memory);
        }
        for (int fd = 3; fd < 200; fd++)
            close(fd);
        if (round % 2)
            for (int fd = 3; fd < 100; fd++)
                CHECK(open("/dev/zero", O_RDWR) == fd);
    }
    for (int fd = 3; fd < 100; fd++)
        CHECK(fcntl(fd, F_GETFD) >= 0);
}

static void test_limit_of_descriptors(void) {
    struct rlimit none = {3, 3};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    test_malloc();
    test_realloc();
}

/* Allocates until nothing is left, frees, and goes on. */
static void exhaust(size_t len, size_t most) {
    void **first = NULL;
    size_t count = 0;
    for (; count < most; count++) {
        void **memory = malloc(len);
        if (memory == NULL) {
            CHECK(errno == ENOMEM);
            break;
        }
        *memory = first;
        first = memory;
    }
    CHECK(count > 2);
    while (first) {
        void **next = *first;
        free(first);
        first = next;
    }
    unsigned char *memory = malloc(len);
    check_fresh(memory, len < 10000000 ? len : 10000000);
    free(memory);
}

static void test_exhausted_space(void) {
    struct rlimit limit = {1 << 30, 1 << 30};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    exhaust(200000, SIZE_MAX);
    exhaust(5000000, SIZE_MAX);
    exhaust(100000000, SIZE_MAX);
}

/* The same under `ulimit -d`, which counts private memory alone. */
static void test_exhausted_data(void) {
    struct rlimit limit = {512 << 20, 512 << 20};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    exhaust(200000, SIZE_MAX);
    exhaust(5000000, SIZE_MAX);
    exhaust(100000000, SIZE_MAX);
}

/* Eight areas are left: too few for the tiles of a long allocation. Without any, libc fails, too. */
static void test_areas(void) {
    void *last[8] = {0};
    free(malloc(1));
    for (unsigned i = 0;; i++) {
        int protection = i % 2 ? PROT_READ : PROT_NONE;
        void *page = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            break;
        last[i % 8] = page;
    }
    CHECK(malloc(5000000) == NULL && errno == ENOMEM);
    for (int i = 0; i < 8; i++)
        CHECK(munmap(last[i], 4096) == 0);
    without_areas = 1;
    test_malloc();
    test_calloc();
    unsigned char *memory = malloc(300000);
    memset(memory, 1, 300000);
    memory = realloc(memory, 9000000);
    CHECK(memory != NULL && memory[0] == 1 && memory[299999] == 1);
    check_pattern_at(memory, 400000, 9000000);
    free(memory);
}

/* Without a limit, as a program that only reserves: 4 TiB in all. */
static void test_greed(void) {
    exhaust((size_t)1 << 30, 4096);
}

/* Many live allocations: more than half of max_map_count, were each an area. */
static void test_many(void) {
    enum { COUNT = 70000 };
    static unsigned char *held[COUNT];
    for (int i = 0; i < COUNT; i++) {
        held[i] = malloc(131072);
        CHECK(held[i] != NULL);
        check_pattern_at(held[i], 131000, 131072);
        held[i][0] = i;
        if (held[i][70000] != pattern[70000 % pattern_len])
            abort();
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(held[i][0] == (unsigned char)i);
        free(held[i]);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"malloc", test_malloc},
             {"calloc", test_calloc},
             {"realloc", test_realloc},
             {"growth", test_growth},
             {"aligned", test_aligned},
             {"foreign", test_foreign},
             {"threads", test_threads},
             {"fork", test_fork},
             {"descriptors", test_descriptors},
             {"limit-of-descriptors", test_limit_of_descriptors},
             {"exhausted-space", test_exhausted_space},
             {"exhausted-data", test_exhausted_data},
             {"areas", test_areas},
             {"greed", test_greed},
             {"many", test_many}};

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    pattern_len = strlen(argv[1]) / 2;
    for (size_t i = 0; i < pattern_len; i++) {
        unsigned byte;
        sscanf(argv[1] + 2 * i, "%2x", &byte);
        pattern[i] = byte;
    }
    threshold = strtoul(argv[2], NULL, 10);
    fills_small = atoi(argv[3]);
    alarm(100);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, argv[4]) == 0) {
            tests[i].run();
            (void)!write(1, "ok\n", 3);
            return 0;
        }
    return 2;
}
