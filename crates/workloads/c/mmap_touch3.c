/* mmap_touch3: the workload `mmap_touch --untouched` as a testcase of will-it-scale: mmap and munmap alone.
 *
 * Source: the 2013 rwsem series, whose test stored nothing before its reviewer asked for it. */
#include <assert.h>
#include <sys/mman.h>

#define MEMSIZE (1UL << 20)

char *testcase_description = "Anonymous memory mmap/munmap of 1MB, not touched";

void testcase(unsigned long long *iterations, unsigned long nr)
{
	(void)nr;
	while (1) {
		void *memory = mmap(0, MEMSIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert(memory != MAP_FAILED);
		assert(munmap(memory, MEMSIZE) == 0);
		(*iterations)++;
	}
}
