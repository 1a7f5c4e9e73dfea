/* Calls that stop at an area that is sealed: what lies before it has changed, and nothing behind it. */
#define _GNU_SOURCE
#include "pages.h"
#include <sys/syscall.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

enum { PART = LEN / 4 };

int main(void)
{
    signal(SIGSEGV, go_back);
    for (int round = 0; round < 4; round++) {
        char *memory = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        use_all(memory, 1);
        if (round % 2)
            mprotect(memory + PART, PART, PROT_READ);
        if (syscall(SYS_mseal, memory + PART, PART, 0) != 0)
            return 77;
        madvise(memory, LEN, MADV_DONTNEED);
        use_all(memory, 0);
        use_all(memory, 1);
        mprotect(memory, LEN, PROT_READ);
        use_all(memory, 1);
        munmap(memory, LEN);
        mprotect(memory, LEN, PROT_NONE);
        use_all(memory, 0);
        mremap(memory, LEN, 2 * LEN, MREMAP_MAYMOVE);
        mmap(memory, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        use_all(memory, 0);
    }
    return 0;
}
