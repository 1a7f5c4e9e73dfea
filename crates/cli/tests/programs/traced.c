// A debugger looks at pages of its child's before the child does: the child's stores find them there.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define PAGES 20

int main(void) {
    char name[] = "/tmp/faultless-traced-XXXXXX";
    int fd = mkstemp(name), status;
    if (fd < 0 || unlink(name) || ftruncate(fd, PAGES * PAGE)) return 1;
    char *file = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED) return 1;
    pid_t child = fork();
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(77);
        raise(SIGSTOP);
        for (int page = 0; page < PAGES; page++) file[page * PAGE] = 1;
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return 77;
    for (int page = 0; page < PAGES; page++) ptrace(PTRACE_PEEKDATA, child, file + page * PAGE, 0);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
