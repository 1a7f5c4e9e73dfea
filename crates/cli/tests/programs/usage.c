/* `usage FILE CMD...` runs a command and writes the faults of it and its children, as the kernel counts them. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status;
	struct rusage usage;
	if (fork() == 0) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	wait(&status);
	getrusage(RUSAGE_CHILDREN, &usage);
	FILE *out = fopen(argv[1], "w");
	fprintf(out, "%ld\n", usage.ru_minflt + usage.ru_majflt);
	fclose(out);
	return WEXITSTATUS(status);
}
