/* The ring of a perf event, as a profiler maps it: the kernel puts its pages in when it is mapped, and the first store
   finds one there that may only be read. 77: no event can be opened. */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 9 };

int main(void)
{
    struct perf_event_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_TASK_CLOCK;
    attributes.sample_period = 100000;
    attributes.disabled = attributes.exclude_kernel = 1;
    int event = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
    if (event < 0)
        return 77;
    char *ring = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
    if (ring == MAP_FAILED)
        return 77;
    unsigned long sum = 0;
    for (int page = 0; page < PAGES; page++)
        sum += *(volatile char *)(ring + page * PAGE);
    volatile struct perf_event_mmap_page *head = (void *)ring;
    head->data_tail = head->data_head;
    pid_t child = fork();
    if (child == 0)
        _exit(sum > 9 * 255);
    waitpid(child, NULL, 0);
    return munmap(ring, PAGES * PAGE);
}
