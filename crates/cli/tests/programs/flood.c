/* Two threads read fresh pages as fast as they can: `flood SECONDS`. Prints how many pages that were. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { THREADS = 2, LEN = 16 << 20 };
static double seconds;
static long touched[THREADS];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *flood(void *arg)
{
	long self = (long)arg;
	double end = now() + seconds;
	while (now() < end) {
		volatile char *p = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (long at = 0; at < LEN; at += 4096)
			(void)p[at];
		touched[self] += LEN / 4096;
		munmap((void *)p, LEN);
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	seconds = argc > 1 ? atof(argv[1]) : 1;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, flood, (void *)i);
	long sum = 0;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], 0);
		sum += touched[i];
	}
	printf("%ld\n", sum);
	return 0;
}
