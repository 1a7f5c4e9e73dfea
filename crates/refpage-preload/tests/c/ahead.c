/* Buffers that are written, or hardly, and how much private memory that takes. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LEN ((size_t)1 << 20)
#define COUNT 40

static unsigned char *buffers[4 * COUNT];

static void fail(const char *why)
{
    printf("%s\n", why);
    exit(1);
}

/* Allocates a buffer that is the pattern throughout its ends, and writes its first `written` bytes. */
static unsigned char *make(size_t written)
{
    unsigned char *buffer = malloc(LEN);
    for (size_t i = 0; i < 64; i++)
        if (buffer[i] != 0xAA || buffer[LEN - 1 - i] != 0xAA)
            fail("not the pattern");
    memset(buffer, 1, written);
    return buffer;
}

static void make_all(size_t from, size_t count, size_t written)
{
    for (size_t i = from; i < from + count; i++)
        buffers[i] = make(written);
}

static void free_all(size_t from, size_t count)
{
    for (size_t i = from; i < from + count; i++)
        free(buffers[i]);
}

/* Dense ones come back, then sparse ones, again and again, the last of which are fresh. */
static void proven(void)
{
    make_all(0, 4, LEN);
    for (size_t more = 4; more <= 10; more += 2) {
        make_all(4, more, 4096);
        free_all(4, more);
    }
}

/* What was handed out ahead, was written, and came back is no longer unproven. */
static void again(void)
{
    for (int round = 0; round < 5; round++) {
        make_all(0, 10, LEN);
        free_all(0, 10);
    }
}

/* The first buffer was left empty once, which is seen when it is reused. */
static void lazy(void)
{
    free(make(4096));
    make(LEN);
    make_all(0, 4, LEN);
}

static void grow(void)
{
    unsigned char *buffer = malloc(LEN);
    memset(buffer, 1, LEN);
    unsigned char *wall = malloc(LEN);
    for (size_t len = LEN; len < 16 * LEN; len *= 2) {
        buffer = realloc(buffer, 2 * len);
        if (buffer[0] != 1 || buffer[len - 1] != 1 || buffer[len] != 0xAA || buffer[2 * len - 1] != 0xAA)
            fail("realloc lost bytes");
        memset(buffer, 1, 2 * len);
        free(wall);
        wall = malloc(LEN);
    }
}

/* Linux before 5.14: madvise(MADV_POPULATE_WRITE) is EINVAL. */
static void refuse(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("seccomp");
}

static size_t private_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "RssAnon: %zu", &kib);
    return kib;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 3 ? argv[1] : "";
    if (!strcmp(mode, "dense")) {
        make_all(0, COUNT, LEN);
    } else if (!strcmp(mode, "sparse")) {
        make_all(0, COUNT, 4096);
        free_all(0, COUNT);
        make_all(0, 2 * COUNT, 4096);
    } else if (!strcmp(mode, "turn")) {
        make_all(0, 4, LEN);
        make_all(4, 2 * COUNT, 4096);
    } else if (!strcmp(mode, "proven")) {
        proven();
    } else if (!strcmp(mode, "again")) {
        again();
    } else if (!strcmp(mode, "lazy")) {
        lazy();
    } else if (!strcmp(mode, "realloc")) {
        grow();
    } else if (!strcmp(mode, "old")) {
        refuse();
        make_all(0, COUNT, LEN);
    } else {
        fail("usage: ahead MODE MIB");
    }
    if (private_kib() > strtoul(argv[2], NULL, 10) * 1024)
        printf("%zu KiB are private\n", private_kib());
    printf("ok\n");
    return 0;
}
