/* Children made with a descriptor of their process, whose number the kernel stores into the parent's memory behind the
 * copying, and before anything tells of the child. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 20 };

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        volatile int *place = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (round % 3 == 1)
            *place = 5;
        if (round % 3 == 2 && fork() == 0)
            _exit(*place);
        struct clone_args args;
        memset(&args, 0, sizeof args);
        args.flags = CLONE_PIDFD | (round % 2 ? CLONE_PARENT_SETTID : 0);
        args.pidfd = (uint64_t)(uintptr_t)place;
        args.parent_tid = (uint64_t)(uintptr_t)place + PAGE;
        args.exit_signal = SIGCHLD;
        long child = syscall(SYS_clone3, &args, sizeof args);
        if (child == 0) {
            int seen = *place;
            *place = seen + 1;
            place[1024] = 1;
            _exit(0);
        }
        *place = 3;
        while (wait(0) > 0)
            ;
        if (child < 0)
            return 77;
    }
    return 0;
}
