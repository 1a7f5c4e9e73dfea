// mremap that keeps its source, with good and bad hints.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096L
#define FLAGS (MREMAP_MAYMOVE | 4)

int main(void) {
    char *m = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < 64; page++) m[page * PAGE] = 1;
    // Not aligned; outside user memory; over the source; too low; another length.
    int failed = mremap(m, 4 * PAGE, 4 * PAGE, FLAGS, m + 1024 * PAGE + 1) == MAP_FAILED;
    failed += mremap(m, 4 * PAGE, 4 * PAGE, FLAGS, (char *)(1UL << 60)) == MAP_FAILED;
    failed += mremap(m, 4 * PAGE, 4 * PAGE, FLAGS, m + PAGE) == MAP_FAILED;
    failed += mremap(m, 4 * PAGE, 8 * PAGE, FLAGS, m + 1024 * PAGE) == MAP_FAILED;
    char *there = mremap(m, 4 * PAGE, 4 * PAGE, FLAGS, m + 1024 * PAGE);
    // Somebody is there: Linux looks elsewhere.
    char *elsewhere = mremap(m + 8 * PAGE, 4 * PAGE, 4 * PAGE, FLAGS, m + 1024 * PAGE);
    char *anywhere = mremap(m + 16 * PAGE, 4 * PAGE, 4 * PAGE, FLAGS, 0);
    printf("%d refused\n", failed);
    for (int page = 0; page < 4; page++) m[page * PAGE] = there[page * PAGE] = elsewhere[page * PAGE] = anywhere[page * PAGE] = 2;
    return failed == 4 ? 0 : 1;
}
