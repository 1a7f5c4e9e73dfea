/* Stacks beyond the limit that the recording began with: a program that raises it and goes on, and one that is executed
 * under the raised limit. */
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int descend(int pages)
{
    volatile char frame[4096];
    frame[0] = 1;
    frame[4095] = 2;
    return pages == 0 ? frame[0] : descend(pages - 1) + frame[4095];
}

int main(int count, char **words)
{
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    if (count > 1)
        return descend(atoi(words[1])) == 0;
    limit.rlim_cur = 24 << 20;
    if (setrlimit(RLIMIT_STACK, &limit) != 0)
        return 77;
    descend(4000);
    if (fork() == 0) {
        execl(words[0], words[0], "5000", (char *)0);
        _exit(1);
    }
    wait(0);
    return 0;
}
