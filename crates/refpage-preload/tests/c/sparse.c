/* A program that allocates much and uses little: COUNT allocations of LEN bytes, one byte touched in each.
 * Prints how many began as the pattern; fails if one is null, or if more memory is used than was touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 3000 };
static const size_t LEN = 40 << 20;
static unsigned char *held[COUNT];

static long private_mib(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[200];
    long kib = 0;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Anonymous: %ld kB", &kib);
    if (file)
        fclose(file);
    return kib >> 10;
}

int main(void) {
    int patterned = 0;
    for (int i = 0; i < COUNT; i++) {
        held[i] = malloc(LEN);
        if (!held[i]) {
            printf("null at %d\n", i);
            return 1;
        }
        patterned += held[i][LEN / 2] == 0xAA;
        held[i][LEN / 3] = i;
    }
    for (int i = 0; i < COUNT; i++)
        if (held[i][LEN / 3] != (unsigned char)i)
            return 2;
    printf("patterned %d private %ld MiB\n", patterned, private_mib());
    for (int i = 0; i < COUNT; i++)
        free(held[i]);
    return 0;
}
