/* Three processes hand pages of shared memory and of a shared file round: each finds what the one before stored. A fourth looks at the
   file through a private mapping and makes copies of its pages. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 1200, PROCESSES = 3 };

static volatile char *memory, *file, *view;

/* Waits for each page in turn, looks at it, stores into it, and hands it on. */
static void hand_round(int in, int out, int number)
{
    for (int page = 0; page < PAGES; page++) {
        char turn;
        if (read(in, &turn, 1) != 1)
            _exit(2);
        volatile char *m = memory + page * PAGE, *f = file + page * PAGE;
        if (m[8 * number] != 0 || (number > 0 && m[8 * number - 8] != number))
            _exit(3);
        m[8 * number] = number + 1;
        f[8 * number] = number + 1;
        if (write(out, &turn, 1) != 1)
            _exit(2);
    }
}

int main(void)
{
    int fd = open("shared.data", O_RDWR | O_CREAT | O_TRUNC, 0600), ends[PROCESSES + 1][2];
    if (fd < 0 || ftruncate(fd, PAGES * PAGE) != 0)
        return 1;
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    file = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    view = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    for (int pipes = 0; pipes <= PROCESSES; pipes++)
        if (pipe(ends[pipes]) != 0)
            return 1;
    for (int number = 0; number < PROCESSES; number++)
        if (fork() == 0) {
            hand_round(ends[number][0], ends[number + 1][1], number);
            _exit(0);
        }
    for (int page = 0; page < PAGES; page++) {
        char turn = 1;
        if (write(ends[0][1], &turn, 1) != 1)
            return 1;
    }
    for (int page = 0; page < PAGES; page++) {
        char turn;
        if (read(ends[PROCESSES][0], &turn, 1) != 1)
            return 1;
        volatile char *v = view + page * PAGE;
        if (v[0] != 1)
            return 3;
        v[64] = 1;
    }
    for (int number = 0; number < PROCESSES; number++) {
        int status;
        wait(&status);
        if (status != 0)
            return 4;
    }
    return 0;
}
