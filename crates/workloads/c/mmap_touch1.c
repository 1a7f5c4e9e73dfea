/* mmap_touch1: the workload `mmap_touch` as a testcase of will-it-scale.
 *
 * Source: the test of the 2013 rwsem series, "Anonymous memory mmap/munmap of 1MB" with a store to each 8 bytes.
 * Put it into will-it-scale's tests/ folder, or run it by `cargo test -p faultless-workloads --test c`. */
#include <assert.h>
#include <sys/mman.h>

#define MEMSIZE (1UL << 20)

char *testcase_description = "Anonymous memory mmap/munmap of 1MB, each 8 bytes stored to";

void testcase(unsigned long long *iterations, unsigned long nr)
{
	(void)nr;
	while (1) {
		volatile unsigned long *words =
			mmap(0, MEMSIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert(words != MAP_FAILED);
		for (unsigned long i = 0; i < MEMSIZE / sizeof(*words); i++)
			words[i] = 0x0a0a0a0a0a0a0a0aUL;
		assert(munmap((void *)words, MEMSIZE) == 0);
		(*iterations)++;
	}
}
