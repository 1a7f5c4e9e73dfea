/* mmap_touch2: the workload `mmap_touch --mutex` as a testcase of will-it-scale: one thread at a time.
 *
 * Source: the 2013 rwsem series, whose author tried its test behind a mutex of the user's, too. */
#include <assert.h>
#include <pthread.h>
#include <sys/mman.h>

#define MEMSIZE (1UL << 20)

char *testcase_description = "Anonymous memory mmap/munmap of 1MB behind a mutex, each 8 bytes stored to";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void testcase(unsigned long long *iterations, unsigned long nr)
{
	(void)nr;
	while (1) {
		pthread_mutex_lock(&mutex);
		volatile unsigned long *words =
			mmap(0, MEMSIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert(words != MAP_FAILED);
		for (unsigned long i = 0; i < MEMSIZE / sizeof(*words); i++)
			words[i] = 0x0a0a0a0a0a0a0a0aUL;
		assert(munmap((void *)words, MEMSIZE) == 0);
		pthread_mutex_unlock(&mutex);
		(*iterations)++;
	}
}
