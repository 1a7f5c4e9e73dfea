// Ends as its argument says.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((noinline)) static int too_deep(void) {
    volatile char deep[16 << 20];
    deep[0] = 1;
    return deep[0];
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = page[4096] = 1;
    printf("%s\n", how);
    fflush(stdout);
    if (!strcmp(how, "null")) *(volatile int *)8 = 1;
    if (!strcmp(how, "unmapped")) {
        munmap(page, 8192);
        return page[0];
    }
    if (!strcmp(how, "read-only")) {
        mprotect(page, 4096, PROT_READ);
        if (page[0] != 1) return 1;
        page[0] = 2;
    }
    if (!strcmp(how, "none")) {
        mprotect(page, 4096, PROT_NONE);
        return page[0];
    }
    if (!strcmp(how, "moved")) {
        char *other = mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page + (1 << 20));
        if (other[0] != 1) return 1;
        return page[0];
    }
    if (!strcmp(how, "fetch")) ((void (*)(void))page)();
    if (!strcmp(how, "stack")) return too_deep();
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "trap")) __builtin_trap();
    return 7;
}
