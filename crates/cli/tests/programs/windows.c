// Areas of files that begin inside a window of 16 pages, and are cut after the fault that filled the window.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096L

int main(void) {
    static char page[PAGE];
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int number = 0; number < 600; number++) write(fd, page, PAGE);
    char *room = mmap(0, 4096 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    room = (char *)(((uintptr_t)room + (512 * PAGE - 1)) & ~(512 * PAGE - 1));
    for (int first = 0; first < 16; first++) {
        char *at = mmap(room + first * PAGE, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
        *(volatile char *)(at + PAGE);
        // As the loader does with what is read-only after relocation; then the area begins elsewhere.
        mprotect(at, 4 * PAGE, PROT_READ);
        munmap(at, 2 * PAGE);
        for (int number = 4; number < 40; number++) *(volatile char *)(at + number * PAGE) = 1;
        munmap(at, 64 * PAGE);
    }
    return 0;
}
