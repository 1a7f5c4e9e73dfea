// A file's shared mapping: loads, then stores, which the file system is told of; written back, and stored to again; made
// by calls that bring their neighbours along; dropped; and paged out here and there, which cuts no area.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { PAGE = 4096, PAGES = 600 };

static volatile char sink;

int main(void) {
    char block[PAGE] = { 1 };
    int file = open("stores.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int page = 0; page < PAGES; page++)
        if (write(file, block, PAGE) != PAGE)
            return 1;
    char *map = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        return 1;
    for (int round = 0; round < 3; round++) {
        for (int page = 0; page < PAGES; page++)
            sink = map[page * PAGE];
        for (int page = 0; page < PAGES; page++)
            map[page * PAGE] = 2;
        if (msync(map, PAGES * PAGE, MS_SYNC))
            return 1;
        for (int page = round; page < PAGES; page += 3)
            map[page * PAGE] = 3;
        mprotect(map, 64 * PAGE, PROT_READ);
        mprotect(map, 64 * PAGE, PROT_READ | PROT_WRITE);
        for (int page = 0; page + 32 <= PAGES; page += 64) {
            madvise(map + page * PAGE, 32 * PAGE, MADV_DONTNEED);
            madvise(map + (page + 8) * PAGE, PAGE, MADV_POPULATE_READ);
        }
        for (int page = 0; page < PAGES; page++)
            map[page * PAGE] = 4;
        for (int page = 5; page < PAGES; page += 7)
            madvise(map + page * PAGE, PAGE, MADV_PAGEOUT);
        madvise(map, PAGES * PAGE, MADV_DONTNEED);
    }
    return 0;
}
