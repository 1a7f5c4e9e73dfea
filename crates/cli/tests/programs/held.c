/* A thread that is held inside a memory call: it populates memory whose pages another thread gives it, when it is told to. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8 };

static char *held;

static void *populate(void *unused)
{
    (void)unused;
    madvise(held, PAGES * PAGE, MADV_POPULATE_WRITE);
    for (int page = 0; page < PAGES; page++)
        ((volatile char *)held)[page * PAGE] = 1;
    return NULL;
}

int main(void)
{
    long uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0)
        return 77;
    held = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register asked = {
        .range = {(uintptr_t)held, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(uffd, UFFDIO_REGISTER, &asked) != 0)
        return 77;
    pthread_t thread;
    pthread_create(&thread, NULL, populate, NULL);
    printf("%p\n", (void *)held);
    fflush(stdout);
    getchar();
    struct uffdio_zeropage zero = {.range = {(uintptr_t)held, PAGES * PAGE}};
    ioctl(uffd, UFFDIO_ZEROPAGE, &zero);
    pthread_join(thread, NULL);
    getchar();
    return 0;
}
