#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* 64 threads; each fills a region of its own, computes, and gives the pages back, twenty times. */
enum { THREADS = 64, ROUNDS = 20, BYTES = 256 << 10 };
static volatile unsigned long sink;
static pthread_barrier_t start;
static void *work(void *arg) {
    unsigned long seed = (unsigned long)arg + 1;
    char *p = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BYTES; i += 4096) p[i] = (char)seed;
        for (int i = 0; i < 200000; i++) seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        madvise(p, BYTES, MADV_DONTNEED);
    }
    sink += seed;
    return 0;
}
int main(void) {
    pthread_t t[THREADS];
    pthread_barrier_init(&start, 0, THREADS);
    for (long i = 0; i < THREADS; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    return 0;
}
