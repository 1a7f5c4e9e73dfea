/* Stores to each page of 128 MiB of fresh anonymous memory, as the workload page_fault1 does. */
#include "loop.h"

#define REGION (128UL << 20)
#define PAGE 4096UL

static unsigned long operate(void)
{
	unsigned long at;
	volatile char *region =
		mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (region == MAP_FAILED)
		abort();
	for (at = 0; at < REGION && !is_over; at += PAGE)
		region[at] = 0;
	/* As the workload: what the time's end leaves mapped is not unmapped within the time. */
	if (!is_over)
		munmap((void *)region, REGION);
	return at / PAGE;
}

int main(int arguments, char **argument)
{
	return loop(arguments, argument, operate);
}
