/* A process to join while it works: threads that map, touch, protect, move, drop and fork until it is killed.
   Memory from before the recording stays in use: half of it written, half of it only read. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, OLD_PAGES = 512 };

static volatile char *old;

static void pause_us(long us)
{
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

static volatile char *map(size_t pages)
{
    char *base = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        abort();
    return base;
}

static void *protector(void *unused)
{
    for (;;) {
        volatile char *base = map(16);
        for (int page = 0; page < 16; page += 2)
            base[page * PAGE] = 1;
        mprotect((char *)base + 4 * PAGE, 8 * PAGE, PROT_READ);
        for (int page = 0; page < 16; page++)
            (void)base[page * PAGE];
        mprotect((char *)base, 16 * PAGE, PROT_READ | PROT_WRITE);
        for (int page = 0; page < 16; page++)
            base[page * PAGE] = 2;
        munmap((char *)base, 16 * PAGE);
        pause_us(200);
    }
}

static void *mover(void *unused)
{
    size_t pages = 4;
    volatile char *base = map(pages);
    for (unsigned turn = 0;; turn++) {
        size_t wanted = turn % 8 == 7 ? 4 : pages + 12;
        base = mremap((char *)base, pages * PAGE, wanted * PAGE, MREMAP_MAYMOVE);
        if (base == MAP_FAILED)
            abort();
        pages = wanted;
        for (size_t page = 0; page < pages; page += 3)
            base[page * PAGE] = 3;
        if (turn % 5 == 0)
            madvise((char *)base, pages / 2 * PAGE, MADV_DONTNEED);
        pause_us(300);
    }
}

static void *forker(void *unused)
{
    for (unsigned turn = 0;; turn++) {
        pid_t child = fork();
        if (child == 0) {
            for (int page = 0; page < OLD_PAGES; page += 7)
                old[page * PAGE] += 1;
            _exit(0);
        }
        waitpid(child, NULL, 0);
        pause_us(20000);
    }
}

static void *toucher(void *unused)
{
    for (unsigned turn = 0;; turn++) {
        old[turn * 37 % OLD_PAGES * PAGE] = 4;
        if (turn % 64 == 0)
            madvise((char *)old + turn % OLD_PAGES * PAGE, PAGE, MADV_DONTNEED);
        if (turn % 16 == 0)
            free(memset(malloc(200000), 1, 200000));
        pause_us(150);
    }
}

static void *brief(void *unused)
{
    volatile char *base = map(4);
    base[0] = base[3 * PAGE] = 5;
    munmap((char *)base, 4 * PAGE);
    return NULL;
}

int main(void)
{
    void *(*const roles[])(void *) = {protector, mover, forker, toucher, protector};
    old = map(OLD_PAGES);
    for (int page = 0; page < OLD_PAGES; page++)
        if (page % 2)
            old[page * PAGE] = 1;
        else
            (void)old[page * PAGE];
    for (unsigned place = 0; place < sizeof(roles) / sizeof(roles[0]); place++) {
        pthread_t thread;
        pthread_create(&thread, NULL, roles[place], NULL);
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        pthread_create(&thread, NULL, brief, NULL);
        pthread_join(thread, NULL);
        sbrk(PAGE);
        pause_us(1000);
    }
}
