/* Threads that map, touch, protect, move and unmap memory all the time, in one address space.
 *
 * usage: mapper THREADS ROUNDS      build: gcc -O2 -pthread -o mapper mapper.c
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 24 };

static int nr_rounds;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void touch(char *memory, int first, int nr_pages) {
    for (int page = first; page < first + nr_pages; page++)
        memory[page * PAGE] = (char)page;
}

static void *work(void *argument) {
    unsigned seed = (unsigned)(long)argument + 1;
    for (int round = 0; round < nr_rounds; round++) {
        char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            fail("mmap");
        touch(memory, 0, 1 + (int)(rand_r(&seed) % PAGES));
        switch (round % 4) {
        case 0:
            if (mprotect(memory, 4 * PAGE, PROT_READ) != 0)
                fail("mprotect");
            break;
        case 1:
            if (madvise(memory, 8 * PAGE, MADV_DONTNEED) != 0)
                fail("madvise");
            touch(memory, 0, 3);
            break;
        case 2:
            memory = mremap(memory, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
            if (memory == MAP_FAILED)
                fail("mremap");
            touch(memory, PAGES, 2);
            if (munmap(memory + PAGES * PAGE, PAGES * PAGE) != 0)
                fail("munmap");
            break;
        default:
            if (munmap(memory + 8 * PAGE, 4 * PAGE) != 0)
                fail("munmap");
        }
        if (munmap(memory, PAGES * PAGE) != 0)
            fail("munmap");
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: mapper THREADS ROUNDS\n");
        return 2;
    }
    int nr_threads = atoi(argv[1]);
    nr_rounds = atoi(argv[2]);
    pthread_t *threads = calloc((size_t)nr_threads, sizeof *threads);
    for (long thread = 0; thread < nr_threads; thread++)
        if (pthread_create(&threads[thread], NULL, work, (void *)thread) != 0)
            fail("pthread_create");
    for (int thread = 0; thread < nr_threads; thread++)
        pthread_join(threads[thread], NULL);
    free(threads);
    return 0;
}
