// What Linux refuses: shared anonymous memory with MAP_SHARED_VALIDATE, and a fetch from data that is there.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096L
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif

static sigjmp_buf back;

static void recover(int signal) {
    siglongjmp(back, signal);
}

int main(void) {
    struct sigaction action = { .sa_handler = recover };
    sigaction(SIGSEGV, &action, 0);
    for (int round = 0; round < 20; round++) {
        if (mmap(0, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) return 1;
        char *data = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return 1;
        memset(data, 0xc3, PAGE);
        if (!sigsetjmp(back, 1)) {
            ((void (*)(void))data)();
            return 2;
        }
        munmap(data, PAGE);
    }
    return 0;
}
