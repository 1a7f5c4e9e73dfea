// malloc, realloc, calloc, mmap, mprotect, mremap, munmap, madvise, brk: contents and errors.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t state = 88172645463325252ULL;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(void) {
    enum { SLOTS = 512 };
    static unsigned char *slots[SLOTS];
    static size_t sizes[SLOTS];
    for (int turn = 0; turn < 1500; turn++) {
        int i = next() % SLOTS;
        if (slots[i]) {
            for (size_t k = 0; k < sizes[i]; k += 61)
                if (slots[i][k] != (unsigned char)(i + k)) return 1;
        }
        size_t size = next() % 8 ? next() % 2000 : next() % 300000;
        if (next() % 3 == 0) {
            free(slots[i]);
            slots[i] = NULL;
            continue;
        }
        slots[i] = realloc(slots[i], size + 1);
        sizes[i] = size;
        for (size_t k = 0; k < size; k++) slots[i][k] = (unsigned char)(i + k);
    }
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
    int *zeros = calloc(100000, sizeof *zeros);
    for (int i = 0; i < 100000; i++)
        if (zeros[i]) return 2;
    size_t page = 4096;
    char *map = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return 3;
    for (int i = 0; i < 64; i++) map[i * page] = i;
    map = mremap(map, 64 * page, 256 * page, MREMAP_MAYMOVE);
    for (int i = 0; i < 64; i++)
        if (map[i * page] != i) return 4;
    if (map[100 * page]) return 5;
    madvise(map, 8 * page, MADV_DONTNEED);
    if (map[3 * page] || map[9 * page] != 9) return 6;
    if (mprotect(map, page, PROT_READ)) return 7;
    if (mprotect(map + 1, page, PROT_READ) != -1 || errno != EINVAL) return 8;
    if (munmap(map, 256 * page)) return 9;
    if (mprotect(map, page, PROT_READ) != -1 || errno != ENOMEM) return 10;
    if (write(1, map, 5) != -1 || errno != EFAULT) return 11;
    void *at = sbrk(0);
    if (sbrk(10 * page) != at) return 12;
    memset(at, 7, 10 * page);
    printf("memory is right: %llx\n", (unsigned long long)state);
    return 0;
}
