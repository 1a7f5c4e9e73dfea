/* Pages that are used one by one, whatever may refuse it, and parts of a program that run in a child each. */
#ifndef PAGES_H
#define PAGES_H
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, LEN = PAGES * PAGE };

static sigjmp_buf back;

static void go_back(int signal)
{
    siglongjmp(back, signal);
}

/* Stores to a page, or loads of it; what is refused is passed over. */
static void use(volatile char *memory, int page, int stores)
{
    if (sigsetjmp(back, 1) == 0) {
        if (stores)
            memory[page * PAGE] = 1;
        else
            (void)memory[page * PAGE];
    }
}

static void use_all(volatile char *memory, int stores)
{
    for (int page = 0; page < PAGES; page++)
        use(memory, page, stores);
}

static char *map(void)
{
    return mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void run_each(void (*const parts[])(void), int count)
{
    signal(SIGSEGV, go_back);
    signal(SIGBUS, go_back);
    for (int part = 0; part < count; part++) {
        pid_t child = fork();
        if (child == 0) {
            parts[part]();
            _exit(0);
        }
        if (child > 0)
            waitpid(child, 0, 0);
    }
}
#endif
