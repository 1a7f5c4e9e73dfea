/* Allocates 128 MiB and frees it, as the workload malloc1 does. */
#include "loop.h"

static unsigned long operate(void)
{
	/* Volatile, so that the compiler does not see that nobody uses the block. */
	void *volatile block = malloc(128UL << 20);

	if (!block)
		abort();
	free(block);
	return 1;
}

int main(int arguments, char **argument)
{
	return loop(arguments, argument, operate);
}
