/* Uses every function of faultless_refpage.h; prints "ok", or the line that failed. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <faultless_refpage.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            printf("line %d: %s (errno %d: %s)\n", __LINE__, #what, errno,               \
                   refpage_strerror(errno));                                             \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static void check_pattern(const unsigned char *memory, size_t len, const char *content,
                          size_t content_len) {
    size_t i;
    for (i = 0; i < len; i++)
        CHECK(memory[i] == (unsigned char)content[i % content_len]);
}

static void check_errors(refpage_t *pages) {
    struct refpage_options options = {sizeof options, 0, 0x80, NULL, NULL};
    unsigned char local, *memory;
    CHECK(refpage_create("x", 0) == NULL && errno == EINVAL);
    CHECK(refpage_create(NULL, 5) == NULL && errno == EINVAL);
    CHECK(refpage_create_with("x", 1, &options) == NULL && errno == EINVAL);
    options.flags = 0;
    options.struct_size = 3;
    CHECK(refpage_create_with("x", 1, &options) == NULL && errno == EINVAL);
    CHECK(refpage_map(pages, 0) == NULL && errno == EINVAL);
    CHECK(refpage_map(pages, SIZE_MAX) == NULL && errno == ENOMEM);
    CHECK(refpage_map(NULL, 1) == NULL && errno == EINVAL);
    CHECK(refpage_map_aligned(pages, 1, 3) == NULL && errno == EINVAL);
    CHECK(refpage_unmap(pages, &local) == -1 && errno == EINVAL);
    CHECK(refpage_unmap(pages, NULL) == -1 && errno == EINVAL);
    memory = refpage_map(pages, 1);
    CHECK(refpage_unmap(pages, memory) == 0);
    CHECK(refpage_unmap(pages, memory) == -1 && errno == EINVAL);
    CHECK(refpage_reset(pages, memory, 0, 1) == -1 && errno == EINVAL);
    CHECK(refpage_reset(pages, &local, 0, 1) == -1 && errno == EINVAL);
    CHECK(refpage_size(&local) == 0 && refpage_kind(&local) == REFPAGE_KIND_NONE);
    CHECK(refpage_attach("x", 1, 0) == NULL && errno == EINVAL);
    CHECK(refpage_attach("x", 1, -1) == NULL && errno == EINVAL);
}

static void check_mapping(refpage_t *pages, const char *content, size_t content_len) {
    size_t len = 5 << 20;
    unsigned char *memory = refpage_map(pages, len);
    CHECK(memory != NULL && refpage_size(memory) == len);
    CHECK(refpage_kind(memory) == REFPAGE_KIND_TILED);
    check_pattern(memory, len, content, content_len);
    memset(memory, 0, len);
    errno = 12345;
    CHECK(refpage_reset(pages, memory, 100, len - 100) == 0 && errno == 12345);
    CHECK(memory[99] == 0 && memory[100] == (unsigned char)content[100 % content_len]);
    CHECK(refpage_reset(pages, memory, 0, 100) == 0);
    check_pattern(memory, len, content, content_len);
    CHECK(refpage_reset(pages, memory, 1, len) == -1 && errno == ERANGE);
    CHECK(refpage_reset(pages, memory, SIZE_MAX, 2) == -1 && errno == ERANGE);
    CHECK(refpage_unmap(pages, memory) == 0);
    memory = refpage_map_aligned(pages, 1, 1 << 24);
    CHECK(memory != NULL && (uintptr_t)memory % (1 << 24) == 0);
    CHECK(refpage_unmap(pages, memory) == 0);
}

static int notices;

static void on_fallback(int error, void *argument) {
    CHECK(error == EMFILE && argument == &notices);
    notices++;
}

/* Without descriptors: an error, or filled memory and one notice. */
static void check_fallback(void) {
    struct refpage_options options = {sizeof options, 0, REFPAGE_FAIL_INSTEAD_OF_FILL,
                                      on_fallback, &notices};
    struct rlimit none = {3, 3};
    refpage_t *failing, *filling;
    unsigned char *memory;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    failing = refpage_create_with("fail", 4, &options);
    CHECK(failing != NULL);
    CHECK(refpage_map(failing, 1 << 20) == NULL && errno == EMFILE);
    CHECK(strstr(refpage_strerror(EMFILE), "descriptor") != NULL);
    options.flags = 0;
    filling = refpage_create_with("fill", 4, &options);
    errno = 12345;
    memory = refpage_map(filling, 1 << 20);
    CHECK(errno == 12345);
    CHECK(memory != NULL && refpage_kind(memory) == REFPAGE_KIND_FILLED);
    check_pattern(memory, 1 << 20, "fill", 4);
    CHECK(refpage_map(filling, 1 << 20) != NULL && notices == 1);
}

static void *thread(void *argument) {
    int i;
    for (i = 0; i < 40; i++)
        check_mapping(argument, "ab", 2);
    return NULL;
}

static void check_threads(void) {
    pthread_t threads[2];
    refpage_t *pages = refpage_create("ab", 2);
    int i;
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, pages) == 0);
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    refpage_destroy(pages);
}

/* Hands the memfd to another program: this one, started anew with the descriptor's number. */
static void check_sharing(const char *program) {
    char number[16];
    int status, fd;
    refpage_t *pages = refpage_create("shared", 6);
    fd = refpage_share(pages);
    CHECK(fd >= 0);
    CHECK(refpage_attach("other", 5, fd) == NULL && errno == EBADMSG);
    CHECK(fcntl(fd, F_SETFD, 0) == 0);
    snprintf(number, sizeof number, "%d", fd);
    if (fork() == 0) {
        execl(program, program, number, (char *)NULL);
        _exit(9);
    }
    CHECK(wait(&status) > 0 && status == 0);
    close(fd);
    refpage_destroy(pages);
}

static int attached(const char *number) {
    refpage_t *pages = refpage_attach("shared", 6, atoi(number));
    unsigned char *memory;
    CHECK(pages != NULL);
    memory = refpage_map(pages, 20 << 20);
    CHECK(memory != NULL && refpage_kind(memory) == REFPAGE_KIND_TILED);
    check_pattern(memory, 20 << 20, "shared", 6);
    return 0;
}

int main(int argc, char **argv) {
    static const char *contents[] = {"\xAA", "a longer pattern"};
    size_t i;
    if (argc > 1)
        return attached(argv[1]);
    for (i = 0; i < 2; i++) {
        size_t len = strlen(contents[i]);
        refpage_t *pages = refpage_create(contents[i], len);
        CHECK(pages != NULL);
        check_mapping(pages, contents[i], len);
        check_errors(pages);
        refpage_destroy(pages);
    }
    refpage_destroy(NULL);
    check_threads();
    check_sharing(argv[0]);
    check_fallback();
    puts("ok");
    return 0;
}
