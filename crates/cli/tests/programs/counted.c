/* Does a known number of things once it is told to: faults at a known place, memory calls, bytes sent to a thread and
   back, all on one CPU. It ends without ending the thread, which would be a memory call. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, DEEDS = 500 };

static int there[2], back[2];

static void *echo(void *unused)
{
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
        ;
    return unused;
}

int main(void)
{
    cpu_set_t cpus, one;
    pthread_t thread;
    char byte;
    sched_getaffinity(0, sizeof cpus, &cpus);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    volatile char *area = mmap((void *)0x600000000000, DEEDS * PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (area == MAP_FAILED || madvise((void *)area, DEEDS * PAGE, MADV_NOHUGEPAGE) != 0)
        abort();
    if (pipe(there) != 0 || pipe(back) != 0 || pthread_create(&thread, NULL, echo, NULL) != 0)
        abort();
    if (read(0, &byte, 1) != 1)
        abort();
    for (int i = 0; i < DEEDS; i++) {
        area[i * PAGE] = 1;
        madvise((void *)area, 0, MADV_NORMAL);
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            abort();
    }
    _exit(0);
}
