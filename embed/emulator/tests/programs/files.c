// Reads a file, writes another, and its own standard input.
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    char line[256];
    int lines = 0;
    FILE *in = fopen(argv[1], "r"), *out = fopen(argv[2], "w");
    if (!in || !out) return 1;
    while (fgets(line, sizeof line, in)) {
        lines++;
        fprintf(out, "%d: %s", lines, line);
    }
    fclose(in);
    fclose(out);
    if (fopen("/nowhere/at/all", "r")) return 2;
    in = fopen(argv[2], "r");
    fseek(in, -5, SEEK_END);
    if (!fgets(line, sizeof line, in)) return 3;
    printf("%d lines, the last ends in %s", lines, line);
    return argc;
}
