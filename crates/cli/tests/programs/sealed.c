/* Calls that stop at an area that is sealed: what lies before it has changed, and nothing behind it. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

enum { PAGE = 4096, PAGES = 48, LEN = PAGES * PAGE, THIRD = LEN / 3 };

static sigjmp_buf back;

static void go_back(int signal)
{
    siglongjmp(back, signal);
}

static void use_all(volatile char *memory, int stores)
{
    for (volatile int page = 0; page < PAGES; page++)
        if (sigsetjmp(back, 1) == 0) {
            if (stores)
                memory[page * PAGE] = 1;
            else
                (void)memory[page * PAGE];
        }
}

int main(void)
{
    signal(SIGSEGV, go_back);
    for (int round = 0; round < 4; round++) {
        char *memory = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        use_all(memory, 1);
        if (round % 2)
            mprotect(memory + THIRD, THIRD, PROT_READ);
        if (syscall(SYS_mseal, memory + THIRD, THIRD, 0) != 0)
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
