// Integers and floating point: what -O2 makes of them, printed.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    volatile int64_t a = -7654321098765LL, b = 12345;
    volatile uint64_t u = 0xfedcba9876543210ULL;
    printf("%" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64 "\n", a / b, a % b, u / 1000003, u % 1000003);
    printf("%d %d %u %u\n", (int)a / 77, (int)a % 77, (unsigned)u / 77, (unsigned)u % 77);
    printf("%" PRIx64 " %" PRIx64 "\n", (uint64_t)((__int128)a * b >> 64), (uint64_t)((unsigned __int128)u * u >> 64));
    volatile int32_t shift = 13;
    printf("%x %x %" PRIx64 " %" PRId64 "\n", (unsigned)u << shift, (unsigned)u >> shift, u >> shift, a >> shift);
    double values[1000], sum = 0;
    for (int i = 0; i < 1000; i++) values[i] = sin(i * 0.7) * exp(i % 13 - 6.0) + sqrt(i);
    qsort(values, 1000, sizeof *values, order);
    for (int i = 0; i < 1000; i++) sum += values[i] / (i + 1);
    printf("%.17g %.17g %.17g\n", values[0], values[999], sum);
    volatile float f = 1.1f;
    volatile double d = -2.5, nan = NAN, inf = INFINITY;
    printf("%.9g %.9g %.9g\n", f * f + f, fmaf(f, 3.0f, -f), sqrtf(f));
    printf("%ld %ld %ld %ld\n", lrint(d), (long)floor(d), (long)ceil(d), (long)d);
    printf("%d %d %d %d\n", nan == nan, nan < d, inf > d, isnan(nan) + 2 * isinf(inf));
    printf("%.17g %.17g %g %g\n", fma(d, d, 1e-17), pow(1.0001, 12345.678), fmin(nan, d), fmax(-0.0, 0.0));
    printf("%u %d %" PRId64 " %" PRIu64 "\n", (unsigned)3e9f, (int)-3.9f, (int64_t)1e18, (uint64_t)1.8e19);
    printf("%.17g %.17g %.9g\n", (double)a, (double)u, (float)u);
    char text[64];
    snprintf(text, sizeof text, "%s-%05d-%#o-%+.3e", "text", 42, 8, 12345.678);
    printf("%s %zu %g\n", text, strlen(text), strtod("0x1.8p3", NULL) + atof("1e-3"));
    return 42;
}
