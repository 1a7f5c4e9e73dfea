// Four threads ask for a higher break one after the other, each as soon as it may, and touch what they got.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L
static _Atomic int turn;
static uintptr_t base;

static void *heap(void *number) {
    for (int round = 0; round < 100; round++) {
        int mine = round * 4 + (int)(intptr_t)number;
        while (turn != mine) sched_yield();
        uintptr_t got = syscall(SYS_brk, base + (mine + 1) * 2 * PAGE);
        turn = mine + 1;
        ((volatile char *)got)[-1] = 1;
    }
    return 0;
}

int main(void) {
    pthread_t threads[4];
    base = syscall(SYS_brk, 0);
    for (intptr_t thread = 0; thread < 4; thread++) pthread_create(&threads[thread], 0, heap, (void *)thread);
    for (int thread = 0; thread < 4; thread++) pthread_join(threads[thread], 0);
    return 0;
}
