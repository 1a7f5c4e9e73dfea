// One thread moves a mapping away, another grows into the room that this leaves as soon as it can.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#define PAGE 4096L
#define ROUNDS 100
static pthread_barrier_t together;
static char *volatile lower;
static char *volatile upper;

static void *grow(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&together);
        // Until the other thread has moved its mapping away this fails.
        char *grown;
        while ((grown = mremap(lower, 4 * PAGE, 8 * PAGE, 0)) == MAP_FAILED) sched_yield();
        grown[6 * PAGE] = 1;
        pthread_barrier_wait(&together);
    }
    return 0;
}

static void *leave(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        char *base = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(base + 8 * PAGE, 24 * PAGE);
        lower = base;
        munmap(base + 4 * PAGE, 4 * PAGE);
        upper = mmap(base + 4 * PAGE, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        pthread_barrier_wait(&together);
        mremap(upper, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, base + 16 * PAGE);
        pthread_barrier_wait(&together);
        munmap(base, 64 * PAGE);
    }
    return 0;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&together, 0, 2);
    pthread_create(&threads[0], 0, grow, 0);
    pthread_create(&threads[1], 0, leave, 0);
    for (int thread = 0; thread < 2; thread++) pthread_join(threads[thread], 0);
    return 0;
}
