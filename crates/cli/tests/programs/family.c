/* Makes a thread, a fork, a vfork with exec, and at last runs exec in a thread that is not the first. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void touch(void)
{
	volatile char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*p = 1;
}

static void *in_thread(void *arg)
{
	touch();
	return 0;
}

static void *exec_in_thread(void *arg)
{
	touch();
	execl("/bin/true", "true", (char *)0);
	abort();
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, in_thread, 0);
	pthread_join(thread, 0);
	if (fork() == 0) {
		touch();
		_exit(0);
	}
	wait(0);
	if (vfork() == 0) {
		execl("/bin/true", "true", (char *)0);
		_exit(1);
	}
	wait(0);
	pthread_create(&thread, 0, exec_in_thread, 0);
	pause();
	return 1;
}
