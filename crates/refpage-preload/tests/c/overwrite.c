/* A program that allocates, and then writes over its whole environment, as those do that change their title in ps. */
#include <stdlib.h>
#include <string.h>

extern char **environ;

int main(void) {
    free(malloc(1000000));
    for (char **variable = environ; *variable; variable++)
        memset(*variable, 'x', strlen(*variable));
    static char *empty[] = {NULL};
    environ = empty;
    free(malloc(1000000));
    return 0;
}
