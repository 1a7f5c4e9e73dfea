// Map calls and faults from functions that call each other; built without frame pointers.
#include <sys/mman.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGES = 64, ROUNDS = 200 };

__attribute__((noipa)) static char *grow(int depth) {
    volatile char room[96];
    room[depth & 63] = 1;
    if (depth > 0) {
        char *got = grow(depth - 1);
        room[1] = 2;
        return got;
    }
    char *got = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("");
    room[2] = 3;
    return got;
}

__attribute__((noipa)) static void touch(volatile char *at) {
    for (int page = 0; page < PAGES; page++)
        at[page * 4096] = 1;
}

__attribute__((noipa)) static void give_back(char *at) {
    munmap(at, PAGES * 4096);
    __asm__ volatile("");
}

__attribute__((noipa)) static void *work(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        char *at = grow(round % 7);
        touch(at);
        give_back(at);
    }
    return 0;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, 0, work, 0);
    pthread_join(other, 0);
    work(0);
    for (int round = 0; round < ROUNDS; round++)
        free(malloc(1 << 20));
    return 0;
}
