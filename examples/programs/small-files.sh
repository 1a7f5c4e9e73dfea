#!/bin/sh
# Writes eight C files, small1.c to small8.c, of 90 functions and the usual headers each: what a build of many files has.
for file in 1 2 3 4 5 6 7 8; do
    {
        for header in stdio stdlib string sys/types sys/stat unistd math time errno signal netinet/in; do
            echo "#include <$header.h>"
        done
        seq $((file * 100)) $((file * 100 + 89)) | awk '{
            printf "int f%d(int a, const int *b) {\n", $1
            printf "    int s = %d;\n", $1
            printf "    for (int i = 0; i < a; i++)\n        s += (b[i] * %d) ^ (s >> %d);\n", $1 * 7, $1 % 13 + 1
            printf "    return s > %d ? s - %d : s;\n}\n", $1, $1
        }'
    } > "small$file.c"
done
