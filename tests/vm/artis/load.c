// SPDX-License-Identifier: Apache-2.0 OR MIT
// load KIND SECONDS TURNS: a guest of a shared CPU. Between two system calls it counts to TURNS.
// Prints how often it did so.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

// A function of the vDSO: no entry into the kernel.
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void count(unsigned long turns)
{
	for (unsigned long i = 0; i < turns; i++)
		sink += i;
}

static void faults(unsigned long turns)
{
	char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int page = 0; page < 256; page++) {
		p[page * 4096] = 1;
		count(turns / 64);
	}
	munmap(p, 1 << 20);
}

static void forks(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		count(1000);
		_exit(0);
	}
	waitpid(child, &status, 0);
}

static void mixed(unsigned long turns)
{
	static char page[4096];
	struct stat seen;
	int ends[2];

	stat("/", &seen);
	if (pipe(ends) == 0 && write(ends[1], page, 100) == 100 && read(ends[0], page, 100) == 100) {
		close(ends[0]);
		close(ends[1]);
	}
	usleep(50);
	count(turns);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *kind = argv[1];
	double seconds = atof(argv[2]), end = now() + seconds;
	unsigned long turns = strtoul(argv[3], NULL, 0), done = 0;

	for (; now() < end; done++) {
		if (strcmp(kind, "calls") == 0) {
			count(turns);
			syscall(SYS_getppid);
		} else if (strcmp(kind, "faults") == 0) {
			faults(turns);
		} else if (strcmp(kind, "forks") == 0) {
			forks();
		} else if (strcmp(kind, "mixed") == 0) {
			mixed(turns);
		} else {
			count(10000);
		}
	}
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	printf("%s: %.0f a second, user %ld ms, system %ld ms\n", kind, done / seconds,
	       used.ru_utime.tv_sec * 1000 + used.ru_utime.tv_usec / 1000,
	       used.ru_stime.tv_sec * 1000 + used.ru_stime.tv_usec / 1000);
	return 0;
}
