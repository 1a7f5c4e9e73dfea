// Atomic operations, signed and unsigned, of words and doubles.
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

int main(void) {
    _Atomic int32_t w = -5;
    _Atomic uint64_t d = 1;
    int64_t sum = 0;
    for (int i = 0; i < 1000; i++) {
        sum += atomic_fetch_add(&w, i) + atomic_fetch_sub(&w, 3) + atomic_fetch_xor(&w, i * 7);
        sum += atomic_fetch_or(&d, (uint64_t)i << (i % 60)) + atomic_fetch_and(&d, ~(uint64_t)i);
        sum ^= atomic_exchange(&w, (int32_t)sum);
        int32_t expected = atomic_load(&w);
        if (!atomic_compare_exchange_strong(&w, &expected, expected ^ 0x55)) return 1;
        expected ^= 1;
        if (atomic_compare_exchange_strong(&w, &expected, 0)) return 2;
    }
    printf("%" PRId64 " %" PRId32 " %" PRIx64 "\n", sum, (int32_t)w, (uint64_t)d);
    return 0;
}
