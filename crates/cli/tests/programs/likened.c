/* Map calls under other names beside other threads' own: System V memory and rings for asynchronous I/O come and go where
 * other threads map and unmap memory, so that all of them get the same addresses again and again. */
#define _GNU_SOURCE
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4, LEN = PAGES * PAGE, ROUNDS = 300 };

static void use_all(volatile char *memory, int pages)
{
    for (int page = 0; page < pages; page++)
        memory[page * PAGE] = 1;
}

static void *attach(void *segment)
{
    for (int round = 0; round < ROUNDS; round++) {
        char *memory = shmat((int)(long)segment, 0, 0);
        if (memory == (char *)-1)
            continue;
        use_all(memory, PAGES);
        shmdt(memory);
    }
    return 0;
}

static void *ring(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        aio_context_t context = 0;
        if (syscall(SYS_io_setup, 16, &context) != 0)
            continue;
        (void)*(volatile char *)context;
        syscall(SYS_io_destroy, context);
    }
    return unused;
}

static void *map(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        char *memory = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            exit(1);
        use_all(memory, PAGES);
        munmap(memory, LEN);
    }
    return unused;
}

int main(void)
{
    long segment = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
    if (segment < 0)
        return 77;
    pthread_t threads[6];
    void *(*const works[])(void *) = {attach, attach, map, map, ring, ring};
    for (int n = 0; n < 6; n++)
        if (pthread_create(&threads[n], 0, works[n], (void *)segment) != 0)
            return 1;
    for (int n = 0; n < 6; n++)
        pthread_join(threads[n], 0);
    shmctl((int)segment, IPC_RMID, 0);
    return 0;
}
