/* What the plain C programs share: the time, small pages, one CPU, and a loop that an alarm ends.
 *
 * A peer is called with the milliseconds to run, and prints operations and nanoseconds. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t is_over;

static void end(int signal)
{
	(void)signal;
	is_over = 1;
}

static unsigned long long now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

/* Stays on the first CPU that it may use. */
static void stay(void)
{
	cpu_set_t all, one;
	int cpu = 0;
	if (sched_getaffinity(0, sizeof all, &all) != 0)
		return;
	while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof one, &one);
}

/* Does what `operate` does, which returns how many operations that was, until the time is over. */
static int loop(int arguments, char **argument, unsigned long (*operate)(void))
{
	long ms = arguments > 1 ? atol(argument[1]) : 1000;
	struct itimerval timer = { .it_value = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 } };
	unsigned long long operations = 0, began;

	stay();
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	signal(SIGALRM, end);
	began = now_ns();
	setitimer(ITIMER_REAL, &timer, NULL);
	while (!is_over)
		operations += operate();
	printf("%llu %llu\n", operations, now_ns() - began);
	return 0;
}
