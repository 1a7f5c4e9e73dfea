/* Two threads hand a turn back and forth ROUNDS times, each waiting for the other; then one computes for a while. */
#include <pthread.h>
#include <time.h>

enum { ROUNDS = 200 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;

static void *play(void *arg)
{
	int self = arg != 0;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		while (turn != self)
			pthread_cond_wait(&changed, &lock);
		turn = !self;
		pthread_cond_signal(&changed);
		pthread_mutex_unlock(&lock);
	}
	return 0;
}

int main(void)
{
	pthread_t other;
	struct timespec t;
	pthread_create(&other, 0, play, &turn);
	play(0);
	pthread_join(other, 0);
	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	while (t.tv_sec == 0 && t.tv_nsec < 300000000);
	return 0;
}
