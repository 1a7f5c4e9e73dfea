#!/bin/sh
# Writes a C file of 900 small functions to standard output: something for a compiler to do.
seq 1 900 | awk '{
    printf "int f%d(int a, const int *b) {\n", $1
    printf "    int s = %d;\n", $1
    printf "    for (int i = 0; i < a; i++)\n        s += (b[i] * %d) ^ (s >> %d);\n", $1 * 7, $1 % 13 + 1
    printf "    return s > %d ? f%d_(s) : s;\n}\n", $1, $1
}' | sed 's/f\([0-9]*\)_(s)/s - \1/'
