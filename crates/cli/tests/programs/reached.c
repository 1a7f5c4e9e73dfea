/* Pages that the kernel makes or takes away without a fault that is recorded: those that it pins for a direct write or
 * for a pipe, those that another process reads, files that opening cuts, or that are collapsed, under private copies;
 * advice by process_madvise. Each in a child; what the machine lacks is passed over. */
#define _GNU_SOURCE
#include "pages.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static void write_directly(void)
{
    char name[] = "faultless-reached-XXXXXX";
    int file = mkstemp(name);
    close(file);
    file = open(name, O_RDWR | O_DIRECT);
    unlink(name);
    char *memory = map();
    if (file >= 0 && write(file, memory, LEN) < 0)
        return;
    use_all(memory, 1);
    char *other = map();
    if (file >= 0 && pread(file, other, LEN, 0) < 0)
        return;
    use_all(other, 1);
    mprotect(other, LEN, PROT_READ);
    use_all(other, 1);
}

static void splice_pages(void)
{
    int ends[2];
    if (pipe(ends) != 0)
        return;
    char *memory = map();
    for (int page = 0; page < PAGES; page += 4) {
        struct iovec part = {memory + page * PAGE, 4 * PAGE};
        char sink[4 * PAGE];
        if (vmsplice(ends[1], &part, 1, 0) < 0 || read(ends[0], sink, sizeof sink) < 0)
            return;
    }
    use_all(memory, 1);
}

/* Lets a child read the caller's memory, or write it. */
static void let_a_child(int number)
{
    char *memory = map();
    pid_t child = fork();
    if (child == 0) {
        struct iovec here = {map(), LEN}, there = {memory, LEN};
        syscall(number, getppid(), &here, 1, &there, 1, 0);
        _exit(0);
    }
    waitpid(child, 0, 0);
    use_all(memory, 1);
}

static void let_others_read(void)
{
    let_a_child(SYS_process_vm_readv);
    let_a_child(SYS_process_vm_writev);
}

static void cut_by_opening(void)
{
    char name[] = "/tmp/faultless-reached-XXXXXX";
    int file = mkstemp(name);
    if (ftruncate(file, LEN) != 0)
        return;
    char *memory = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    for (int round = 0; round < 3; round++) {
        use_all(memory, 1);
        int again = round == 2 ? creat(name, 0600) : open(name, O_RDWR | O_TRUNC);
        if (again < 0)
            return;
        static char bytes[LEN];
        if (pwrite(again, bytes, LEN, 0) < 0)
            return;
        close(again);
        for (int page = 0; page < PAGES; page += 2)
            use(memory, page, 0);
    }
    unlink(name);
}

static void collapse(void)
{
    char name[] = "faultless-reached-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    static char bytes[LEN];
    if (write(file, bytes, LEN) < 0)
        return;
    char *memory = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    use_all(memory, 1);
    fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 16 * PAGE);
    use_all(memory, 0);
    use_all(memory, 1);
    fallocate(file, FALLOC_FL_INSERT_RANGE, 0, 16 * PAGE);
    use_all(memory, 0);
    use_all(memory, 1);
}

static void advise_itself(void)
{
    char *memory = map();
    use_all(memory, 1);
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec part = {memory, LEN / 2};
    syscall(SYS_process_madvise, self, &part, 1, MADV_DONTNEED, 0);
    use_all(memory, 1);
}

int main(void)
{
    void (*const parts[])(void) = {write_directly, splice_pages, let_others_read, cut_by_opening, collapse, advise_itself};
    run_each(parts, 6);
    return 0;
}
