/* Two threads that touch, drop, map over and protect memory while a third forks; each child looks at all of it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, FORKS = 60 };

static volatile char *memory;
static atomic_int is_over;

static void *touch_all(void *unused)
{
    while (!is_over) {
        madvise((char *)memory, PAGES * PAGE, MADV_DONTNEED);
        for (int page = 0; page < PAGES; page++) {
            memory[page * PAGE] = 1;
            for (volatile int turn = 0; turn < 200; turn++)
                ;
        }
    }
    return NULL;
}

/* Stores only to the thread's own half, since the other one's may not be stored to just now. */
static void change_some(unsigned half, unsigned random)
{
    char *start = (char *)memory + (half * PAGES / 2 + (random >> 8) % (PAGES / 2 - 8)) * PAGE;
    switch ((random >> 20) % 4) {
    case 0:
        madvise(start, 8 * PAGE, MADV_DONTNEED);
        break;
    case 1:
        mmap(start, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        break;
    case 2:
        mprotect(start, 8 * PAGE, PROT_READ);
        mprotect(start, 8 * PAGE, PROT_READ | PROT_WRITE);
        break;
    default:
        for (int page = 0; page < PAGES; page += 3)
            (void)memory[page * PAGE];
    }
    for (int page = 0; page < 8; page++)
        if (random & 0x4000)
            ((volatile char *)start)[page * PAGE] = 1;
        else
            (void)((volatile char *)start)[page * PAGE];
}

static void *change_half(void *half)
{
    for (unsigned random = 7919 * (uintptr_t)half + 1; !is_over; random = random * 1103515245 + 12345)
        change_some((uintptr_t)half, random);
    return NULL;
}

static void fork_beside(void *(*work)(void *))
{
    pthread_t threads[2];
    is_over = 0;
    for (uintptr_t half = 0; half < 2; half++)
        pthread_create(&threads[half], NULL, work, (void *)half);
    for (int turn = 0; turn < FORKS; turn++) {
        if (fork() == 0) {
            int sum = 0;
            for (int page = 0; page < PAGES; page++)
                sum += memory[page * PAGE];
            _exit(sum < 0);
        }
        wait(NULL);
    }
    is_over = 1;
    for (int half = 0; half < 2; half++)
        pthread_join(threads[half], NULL);
}

int main(void)
{
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fork_beside(touch_all);
    fork_beside(change_half);
}
