/* What a recording does not show, or a replay does not do: files that are cut under private copies, protection keys and
 * memory that may be executed alone, pages that a userfaultfd moves, fills or protects, advice by io_uring. Each in a
 * child; what the machine lacks is passed over. */
#define _GNU_SOURCE
#include "pages.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef UFFDIO_MOVE
struct uffdio_move {
    uint64_t dst, src, len, mode;
    int64_t move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

static void cut(void)
{
    char name[] = "/tmp/faultless-unseen-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    if (ftruncate(file, LEN) != 0)
        return;
    char *memory = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    use_all(memory, 1);
    for (int round = 0; round < 3; round++) {
        if (ftruncate(file, PAGE) != 0 || ftruncate(file, round == 1 ? LEN / 2 : LEN) != 0)
            return;
        /* Loads before stores, on every other page. */
        for (int page = 0; page < PAGES; page += 2)
            use(memory, page, 0);
        use_all(memory, 1);
    }
}

static void keys(void)
{
    char *memory = map();
    int key = pkey_alloc(0, 0);
    use(memory, 0, 1);
    if (key >= 0) {
        pkey_mprotect(memory, LEN, PROT_READ | PROT_WRITE, key);
        use(memory, 1, 1);
        pkey_set(key, PKEY_DISABLE_ACCESS);
        for (int page = 0; page < 4; page++)
            use(memory, page, page % 2);
        pkey_set(key, PKEY_DISABLE_WRITE);
        use_all(memory, 1);
        use_all(memory, 0);
        pkey_set(key, 0);
        use_all(memory, 1);
        pkey_mprotect(memory, LEN, PROT_READ | PROT_WRITE, 0);
        use_all(memory, 1);
    }
    char *code = map();
    use(code, 0, 1);
    mprotect(code, LEN, PROT_EXEC);
    for (int page = 0; page < 3; page++)
        use(code, page, 0);
    mprotect(code, LEN, PROT_READ | PROT_WRITE);
    use_all(code, 1);
}

static void userfault(void)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
        return;
    char *source = map(), *target = map(), *protected = map();
    use_all(source, 1);
    use_all(protected, 1);
    struct uffdio_register missing = {.range = {(uintptr_t)target, LEN}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_register stores = {.range = {(uintptr_t)protected, LEN}, .mode = UFFDIO_REGISTER_MODE_WP};
    if (ioctl(fd, UFFDIO_REGISTER, &missing) != 0 || ioctl(fd, UFFDIO_REGISTER, &stores) != 0)
        return;
    struct uffdio_move move = {.dst = (uintptr_t)target, .src = (uintptr_t)source, .len = LEN / 2};
    ioctl(fd, UFFDIO_MOVE, &move);
    struct uffdio_zeropage zeros = {.range = {(uintptr_t)target + LEN / 2, LEN / 2}};
    ioctl(fd, UFFDIO_ZEROPAGE, &zeros);
    for (int page = 0; page < PAGES; page += 3)
        use(source, page, 0);
    use_all(source, 1);
    if (move.move == LEN / 2)
        for (int page = 0; page < PAGES; page++)
            use(target, page, 1);
    struct uffdio_writeprotect protect = {.range = {(uintptr_t)protected, LEN}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    ioctl(fd, UFFDIO_WRITEPROTECT, &protect);
    struct uffdio_range range = {(uintptr_t)protected, LEN};
    ioctl(fd, UFFDIO_UNREGISTER, &range);
    use_all(protected, 1);
}

static void ring(void)
{
    struct io_uring_params params = {0};
    int fd = syscall(SYS_io_uring_setup, 8, &params);
    if (fd < 0)
        return;
    size_t len = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    char *queue = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries = mmap(0, params.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
    char *memory = map();
    for (int round = 0; round < 4; round++) {
        use_all(memory, 1);
        unsigned *tail = (unsigned *)(queue + params.sq_off.tail), place = *tail % params.sq_entries;
        memset(&entries[place], 0, sizeof entries[place]);
        entries[place].opcode = IORING_OP_MADVISE;
        entries[place].addr = (uintptr_t)memory;
        entries[place].len = LEN / 2;
        entries[place].fadvise_advice = MADV_DONTNEED;
        ((unsigned *)(queue + params.sq_off.array))[place] = place;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        use(memory, 1, 0);
    }
    use_all(memory, 1);
}

int main(void)
{
    void (*const parts[])(void) = {cut, keys, userfault, ring};
    run_each(parts, 4);
    return 0;
}
