/* Jumps into memory that may not be executed: where no page is, the fault makes one before it is refused. Pages with
 * each combination of rights, untouched, loaded and stored to before. */
#define _GNU_SOURCE
#include "pages.h"

static void jump(char *place)
{
    if (sigsetjmp(back, 1) == 0)
        ((void (*)(void))place)();
}

int main(void)
{
    signal(SIGSEGV, go_back);
    for (int rights = 0; rights < PROT_EXEC; rights++) {
        char *memory = map();
        mprotect(memory, LEN, rights);
        for (int page = 0; page < PAGES; page++) {
            if (page % 3)
                use(memory, page, page % 3 == 2);
            jump(memory + page * PAGE);
            if (page % 2)
                use(memory, page, 1);
            jump(memory + page * PAGE);
        }
        munmap(memory, LEN);
    }
    return 0;
}
