// Forks that fail after the kernel has copied the page tables, and so taken the right to store: a set of identifiers that
// can't be had is looked at only then (kernel/fork.c, copy_process: alloc_pid comes after copy_mm).
#define _GNU_SOURCE
#include <linux/sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

int main(void) {
    char *map = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 20; round++) {
        for (int page = 0; page < PAGES; page++) map[page * PAGE] = 1;
        // The number of this process is in use.
        int taken = getpid();
        struct clone_args args = { .exit_signal = 17, .set_tid = (uintptr_t)&taken, .set_tid_size = 1 };
        if (syscall(SYS_clone3, &args, sizeof args) >= 0) return 1;
    }
    return 0;
}
