/* Memory calls of every kind at random on 24 pages, a heap and some files, by threads and their children; what is
 * refused is passed over. Each call is drawn from its number alone, so that a run can be shortened call by call.
 * Usage: anything SEED CALLS KINDS THREADS; KINDS is a sum of 1 locks, 2 the heap, 4 forks, 8 files that change their
 * size. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24, FILE_PAGES = 5, HEAP_PAGES = 20, MOST_PAGES = 10, FILES = 5 };
enum { LOCKS = 1, HEAP = 2, FORKS = 4, SIZES = 8 };
enum { MAP_DROPPED = 8 };

static const int rights[] = {1, 3, 3, 3, 3, 0, 5, 7, 2, 4, 6, 8, 11};
static const int advices[] = {4, 4, 4, 4, 24, 24, 8, 8, 9, 9, 3, 22, 22, 23, 23, 10, 10, 11, 18, 18, 19, 20, 21,
                              12, 13, 0, 1, 2, 16, 17, 102, 102, 103, 103, 14, 15, 5};
static const int moves[] = {0, 1, 1, 3, 3, 3, 3, 5, 7, 7};
static const int sizes[] = {0, 1, 2048, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 291, 5 * PAGE, 8 * PAGE};
static const int locks[] = {2, 6, 3, 7, 1};
static const int syncs[] = {1, 4, 2, 6, 0, 3};

static char *const memory = (char *)0x100000000000;
static char *heap;
static int files[FILES], sink;
static __thread uint64_t state;
static __thread sigjmp_buf back;

#define ANY(list) list[below(sizeof list / sizeof *list)]

static void go_back(int signal)
{
    siglongjmp(back, signal);
}

static unsigned below(unsigned limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % limit;
}

static void touch(volatile char *byte, int count, int stores)
{
    if (sigsetjmp(back, 1))
        return;
    for (int page = 0; page < count; page++)
        if (stores)
            byte[page * PAGE] = 1;
        else
            (void)byte[page * PAGE];
}

/* Memory that does not lie where all else does would stay. */
static void keep_inside(char *start, size_t len)
{
    if (start != MAP_FAILED && (start < memory || start >= memory + PAGES * PAGE))
        munmap(start, len);
}

static void map(char *start, size_t len)
{
    int flags = below(3) ? MAP_PRIVATE : MAP_SHARED, file = -1;
    off_t offset = 0;
    if (flags == MAP_PRIVATE && below(10) == 0)
        flags = MAP_DROPPED;
    if (flags != MAP_DROPPED && below(3) == 0) {
        file = files[below(FILES)];
        offset = below(8) * PAGE;
    } else {
        flags |= MAP_ANONYMOUS;
    }
    const int extras[] = {MAP_POPULATE, MAP_LOCKED, MAP_NORESERVE, MAP_STACK, MAP_GROWSDOWN, MAP_POPULATE | MAP_NONBLOCK};
    if (below(3) == 0)
        flags |= ANY(extras);
    unsigned place = below(12);
    if (place < 9)
        flags |= MAP_FIXED;
    else if (place == 9)
        flags |= MAP_FIXED_NOREPLACE;
    else if (place == 10)
        start += below(PAGE);
    keep_inside(mmap(start, len, ANY(rights), flags, file, offset), len);
}

static void move(char *start, size_t len)
{
    char *target = memory + below(PAGES) * PAGE;
    int flags = ANY(moves);
    size_t new_len = !(flags & MREMAP_DONTUNMAP) && below(2) ? (1 + below(MOST_PAGES)) * PAGE : len;
    if (target + new_len > memory + PAGES * PAGE)
        target = memory;
    keep_inside((char *)syscall(SYS_mremap, start, below(20) ? len : 0, new_len, flags, target), new_len);
}

static void lock(char *start, size_t len)
{
    switch (below(8)) {
    case 0: case 1: mlock(start, len); break;
    case 2: case 3: syscall(SYS_mlock2, start, len, below(2)); break;
    case 4: case 5: munlock(start, len); break;
    case 6: mlockall(ANY(locks)); break;
    default: munlockall();
    }
}

static void move_break(void)
{
    syscall(SYS_brk, heap + below(HEAP_PAGES * PAGE));
    touch(heap + below(HEAP_PAGES) * PAGE, 1, 1);
}

static void call(uint64_t number, int kinds, int depth);

static void make_child(uint64_t number, int kinds, int depth)
{
    if (depth == 2 || below(3))
        return;
    int waits = below(4);
    pid_t child = fork();
    if (child == 0) {
        for (unsigned turn = 0, count = below(12); turn < count; turn++)
            call(number * 100 + turn, kinds, depth + 1);
        _exit(0);
    }
    if (child > 0 && waits)
        waitpid(child, 0, 0);
}

static void call(uint64_t number, int kinds, int depth)
{
    state = (number + 1) * 0x9e3779b97f4a7c15u;
    below(1);
    unsigned first = below(PAGES), room = PAGES - first, count = 1 + below(MOST_PAGES);
    char *start = memory + first * PAGE, *byte = memory + below(PAGES) * PAGE + (below(3) ? 0 : below(PAGE));
    size_t len = (count < room ? count : room) * (size_t)PAGE - (below(16) ? 0 : below(PAGE));
    unsigned char residents[PAGES];
    switch (below(30)) {
    case 0: case 1: case 2: case 3: map(start, len); break;
    case 4: case 5: munmap(start, len); break;
    case 6: case 7: case 8: mprotect(start, len, ANY(rights) | (below(20) ? 0 : PROT_GROWSDOWN)); break;
    case 9: case 10: case 11: move(start, len); break;
    case 12: case 13: case 14: case 15: madvise(start, len, ANY(advices)); break;
    case 16: mincore(start, len, residents); break;
    case 17: msync(start, len, ANY(syncs)); break;
    case 18: if (kinds & LOCKS) lock(start, len); break;
    case 19: if (kinds & HEAP) move_break(); break;
    case 20: if (kinds & FORKS) make_child(number, kinds, depth); break;
    case 21: if (kinds & SIZES && ftruncate(files[below(2)], ANY(sizes))) {} break;
    case 22: if (write(sink, byte, 1 + below(5000)) < 0) {} break;
    case 23: if (pread(files[1], byte, 1 + below(5000), 0) < 0) {} break;
    case 24: case 25: touch(byte, 1, 0); break;
    case 26: case 27: touch(byte, 1, 1); break;
    case 28: touch(start, below(room), 1); break;
    default: touch(start, below(room), 0);
    }
}

static void open_files(void)
{
    static char content[FILE_PAGES * PAGE + PAGE / 2];
    char name[] = "/tmp/faultless-anything-XXXXXX";
    memset(content, 5, sizeof content);
    files[0] = memfd_create("anything", 0);
    files[1] = mkstemp(name);
    files[2] = open(name, O_RDONLY);
    files[3] = memfd_create("nothing", 0);
    files[4] = files[0];
    sink = open("/dev/null", O_WRONLY);
    unlink(name);
    for (int file = 0; file < 2; file++)
        if (write(files[file], content, sizeof content) < 0)
            exit(1);
}

static uint64_t seed;
static int count, kinds;

/* A signal's handler runs aside: what is touched may be a thread's own stack. */
static void *live(void *place)
{
    const size_t size = 1 << 16;
    stack_t aside = {.ss_size = size};
    aside.ss_sp = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&aside, 0);
    for (int number = 0; number < count; number++)
        call((seed << 32) + ((uint64_t)(uintptr_t)place << 24) + number, kinds, 0);
    return 0;
}

int main(int argc, char **argv)
{
    enum { THREADS_MOST = 8 };
    int threads = argc == 5 ? atoi(argv[4]) : 0;
    if (threads < 1 || threads > THREADS_MOST)
        return 2;
    seed = strtoull(argv[1], 0, 10);
    count = atoi(argv[2]);
    kinds = atoi(argv[3]);
    struct sigaction action = {.sa_handler = go_back, .sa_flags = SA_NODEFER | SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    open_files();
    /* The C library's own heap grows once, and ends below. */
    free(malloc(1));
    heap = (char *)(((uintptr_t)sbrk(0) + PAGE) & -(uintptr_t)PAGE);
    pthread_t others[THREADS_MOST];
    for (int thread = 1; thread < threads; thread++)
        if (pthread_create(&others[thread], 0, live, (void *)(uintptr_t)thread))
            return 1;
    live(0);
    for (int thread = 1; thread < threads; thread++)
        pthread_join(others[thread], 0);
    while (wait(0) > 0)
        ;
    return 0;
}
