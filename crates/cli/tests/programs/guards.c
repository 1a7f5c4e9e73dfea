// Guard pages come, are hit from both sides, survive advice, a move and a fork, and go.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
static sigjmp_buf back;
static void hit(int number) { siglongjmp(back, number); }

static int store(char *at) {
    if (sigsetjmp(back, 1)) return 0;
    *(volatile char *)at = 1;
    return 1;
}

int main(void) {
    signal(SIGSEGV, hit);
    char *m = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < 64; page += 2) m[page * PAGE] = 1;
    if (madvise(m + 8 * PAGE, 8 * PAGE, 102)) return puts("skipped: no guards here"), 77;
    int hits = 0;
    for (int page = 0; page < 20; page++) hits += !store(m + page * PAGE);
    madvise(m, 64 * PAGE, MADV_DONTNEED);
    for (int page = 0; page < 20; page++) hits += !store(m + page * PAGE);
    madvise(m + 10 * PAGE, 2 * PAGE, 103);
    for (int page = 7; page < 17; page++) hits += !store(m + page * PAGE);
    char *moved = mremap(m, 32 * PAGE, 32 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, m + 1024 * PAGE);
    for (int page = 7; page < 17; page++) hits += !store(moved + page * PAGE);
    if (fork() == 0) {
        for (int page = 7; page < 17; page++) hits += !store(moved + page * PAGE);
        _exit(hits == 34 ? 0 : 1);
    }
    int status;
    wait(&status);
    munmap(moved, 32 * PAGE);
    return hits == 28 && status == 0 ? 0 : 1;
}
