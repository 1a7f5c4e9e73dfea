/* Calls the proof's one function, with memory of its own. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

uint64_t faultless_proof(unsigned char *region, size_t len_bytes);

/* The host's precompiled alloc was built to unwind and names this; nothing here unwinds. */
void rust_eh_personality(void) {}

static unsigned char region[8 << 20] __attribute__((aligned(4096)));

int main(void) {
    uint64_t value = faultless_proof(region, sizeof region);
    printf("stored 42, loaded %llu\n", (unsigned long long)value);
    return value == 42 ? 0 : 1;
}
