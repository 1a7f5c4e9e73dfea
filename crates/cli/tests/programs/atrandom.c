/* One thread that makes memory calls at random on 384 KiB, touches pages of it, and forks; what is refused is passed
 * over. Usage: atrandom SEED ROUNDS */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { PAGE = 4096, PAGES = 96, FILE_PAGES = 160, MOST_PAGES = 24, FORK_EVERY = 40 };

static char *memory;
static int file;
static uint64_t seed;
static sigjmp_buf back;

static void pass_over(int signal)
{
    siglongjmp(back, signal);
}

static unsigned below(unsigned limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % limit;
}

static void touch(unsigned page, int stores)
{
    volatile char *byte = memory + (size_t)page * PAGE + 8;
    if (sigsetjmp(back, 1))
        return;
    if (stores)
        *byte = 1;
    else
        (void)*byte;
}

static void touch_some(void)
{
    for (int turn = 0; turn < 12; turn++)
        touch(below(PAGES), below(2));
}

static void map(char *start, size_t len, int prot, int flags, int what)
{
    mmap(start, len, prot, flags | MAP_FIXED, what, what < 0 ? 0 : (off_t)below(64) * PAGE);
}

static void call(void)
{
    const int all = PROT_READ | PROT_WRITE, zeros = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned first = below(PAGES), room = PAGES - first;
    size_t len = (1 + below(room < MOST_PAGES ? room : MOST_PAGES)) * (size_t)PAGE;
    char *start = memory + (size_t)first * PAGE;
    switch (below(18)) {
    case 0: madvise(start, len, MADV_DONTNEED); break;
    case 1: map(start, len, all, zeros, -1); break;
    case 2: mprotect(start, len, PROT_READ); break;
    case 3: mprotect(start, len, all); break;
    case 4: mprotect(start, len, PROT_NONE); break;
    case 5: munmap(start, len); break;
    case 6: map(start, len, all, MAP_PRIVATE, file); break;
    case 7: map(start, len, all, MAP_SHARED, file); break;
    case 8: map(start, len, PROT_READ, MAP_PRIVATE, file); break;
    case 9: map(start, len, all, MAP_SHARED | MAP_ANONYMOUS, -1); break;
    case 10: map(start, len, all, zeros | MAP_POPULATE, -1); break;
    case 11: {
        size_t target = below(PAGES - len / PAGE + 1) * (size_t)PAGE;
        mremap(start, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, memory + target);
        break;
    }
    case 12: madvise(start, len, MADV_POPULATE_READ + (int)below(2)); break;
    case 13: mlock(start, len); break;
    case 14: munlock(start, len); break;
    case 15: madvise(start, len, MADV_GUARD_INSTALL + (int)below(2)); break;
    case 16: madvise(start, len, MADV_FREE); break;
    default: madvise(start, len, MADV_REMOVE);
    }
}

static int in_child(int round)
{
    for (int page = 0; page < PAGES; page++)
        touch(page, 0);
    for (int turn = 0; turn < 8 && round % 3 == 0; turn++) {
        call();
        touch_some();
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    seed = strtoull(argv[1], NULL, 10);
    file = memfd_create("atrandom", 0);
    static char content[PAGE];
    memset(content, 5, sizeof content);
    for (int page = 0; page < FILE_PAGES; page++)
        if (write(file, content, PAGE) != PAGE)
            return 1;
    /* Room on both sides, so that nothing else becomes a neighbour. */
    size_t beside = 16u << 20;
    char *room = mmap(NULL, 2 * beside, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return 1;
    memory = room + beside;
    map(memory, PAGES * (size_t)PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    struct sigaction action = {.sa_handler = pass_over};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    for (int round = 0; round < atoi(argv[2]); round++) {
        call();
        touch_some();
        if (round % FORK_EVERY)
            continue;
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0)
            _exit(in_child(round));
        int status;
        waitpid(child, &status, 0);
        if (status)
            return 1;
    }
    return 0;
}
