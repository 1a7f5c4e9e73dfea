// Shared memory comes and goes, each time a new object; two of them live at once.
#define _GNU_SOURCE
#include <sys/mman.h>

#define PAGE 4096L

int main(void) {
    char *before = 0;
    for (int round = 0; round < 3000; round++) {
        char *m = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED) return 1;
        *(volatile char *)(m + PAGE) = 1;
        if (before) munmap(before, 2 * PAGE);
        before = m;
    }
    return 0;
}
