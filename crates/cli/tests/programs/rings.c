/* A ring for asynchronous I/O that is loaded and then stored to, and a file's pages that are mapped in another order. */
#define _GNU_SOURCE
#include "pages.h"
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <sys/syscall.h>

int main(void)
{
    for (int round = 0; round < 4; round++) {
        aio_context_t context = 0;
        if (syscall(SYS_io_setup, 64, &context) != 0)
            return 77;
        volatile char *ring = (char *)context;
        (void)*ring;
        if (round % 2)
            ring[3000] = 0;
        ring[4096] = 1;
        syscall(SYS_io_destroy, context);
    }
    for (int flags = 0; flags < 3; flags++) {
        char name[] = "/tmp/faultless-told-XXXXXX";
        int file = mkstemp(name);
        unlink(name);
        if (ftruncate(file, LEN) != 0)
            return 1;
        char *memory = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (flags == 2)
            use_all(memory, 1);
        for (int page = 0; page < PAGES; page += 4)
            syscall(SYS_remap_file_pages, memory + page * PAGE, 2 * PAGE, 0, (page + 8) % PAGES, flags == 1 ? MAP_NONBLOCK : 0);
        use_all(memory, 0);
        use_all(memory, 1);
        munmap(memory, LEN);
    }
    return 0;
}
