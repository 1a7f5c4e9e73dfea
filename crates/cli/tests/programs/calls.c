/* One thread makes every memory call at least once; the number of each does not depend on the run. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

int main(int argc, char **argv)
{
	unsigned char residency[4];
	unsigned long context = 0;
	char *area = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area[0] = 1;
	for (int i = 0; i < 17; i++)
		mprotect(area, PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE);
	area = mremap(area, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	for (int i = 0; i < 5; i++)
		madvise(area, PAGE, MADV_DONTNEED);
	mlock(area, PAGE);
	syscall(SYS_mlock2, area, PAGE, 1);
	munlock(area, PAGE);
	mlockall(MCL_CURRENT);
	munlockall();
	msync(area, PAGE, MS_ASYNC);
	mincore(area, 4 * PAGE, residency);
	syscall(SYS_remap_file_pages, area, PAGE, 0, 0, 0);
	syscall(SYS_pkey_mprotect, area, PAGE, PROT_READ, -1);
	syscall(SYS_process_madvise, -1, 0, 0, MADV_COLD, 0);
	syscall(453 /* map_shadow_stack */, 0, 0, 0);
	syscall(462 /* mseal */, 1, PAGE, 0);
	syscall(SYS_io_setup, 1, &context);
	syscall(SYS_io_destroy, context);
	syscall(SYS_userfaultfd, -1);
	syscall(425 /* io_uring_setup */, 0, 0);
	syscall(SYS_clone, 0x800 /* CLONE_SIGHAND alone is refused */, 0, 0, 0, 0);
	int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
	void *shared = shmat(id, 0, 0);
	shmdt(shared);
	shmctl(id, IPC_RMID, 0);
	int fd = memfd_create("calls", 0);
	ftruncate(fd, 3 * PAGE);
	fallocate(fd, 0, 0, PAGE);
	truncate("/nonexistent/file", 0);
	syscall(SYS_open, "/nonexistent/file", O_WRONLY | O_TRUNC);
	syscall(SYS_open, "/nonexistent/file", O_WRONLY);
	syscall(SYS_openat, AT_FDCWD, "/nonexistent/file", O_RDONLY | O_DIRECT);
	syscall(SYS_creat, "/nonexistent/file", 0600);
	syscall(SYS_vmsplice, -1, 0, 0, 0);
	syscall(SYS_process_vm_readv, 0, 0, 0, 0, 0, 0);
	syscall(SYS_process_vm_writev, 0, 0, 0, 0, 0, 0);
	char *file = mmap(0, 3 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	munmap(file, 3 * PAGE);
	munmap(area, 8 * PAGE);
	munmap((void *)1, PAGE);
	syscall(SYS_brk, 0);
	prctl(PR_SET_NAME, "calls");
	prctl(PR_SET_MM, 99, 0, 0, 0);
	ptrace(PTRACE_ATTACH, 0, 0, 0);
	return 0;
}
