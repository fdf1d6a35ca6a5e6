// SPDX-License-Identifier: Apache-2.0 OR MIT
// load KIND SECONDS TURNS: a guest of a shared CPU. Between two system calls it counts to TURNS.
// Prints how often it did so in a second.
// load disturbed SECONDS TURNS: four `calls` ones, whose nice values change all the time.
// load timers SECONDS TURNS: its timer of CPU time ends each 5 ms.
// load dumps SECONDS TURNS: its children dump core: TURNS pages.
// load exceptions SECONDS TURNS: instructions that the processor refuses, and their signals.
// load crowd SECONDS TASKS: so many tasks that compute on CPU 0, beside six that read all the time.
// Prints how long one of them had no turn at most, in seconds, and how many had a turn.
// load gaps SECONDS TURNS: computes, and prints for how many seconds it had no turn at most.
// load late SECONDS US: sleeps for US microseconds again and again. Prints its latest wake-up, in
// seconds after it was due.
// load rt0 SECONDS CPU: a hard task of SCHED_FIFO, bound to CPU, that uses 5 % of it.
#define _GNU_SOURCE
#include "count.h"
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

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

static void dumps(unsigned long pages)
{
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	int status;
	pid_t child = fork();

	if (child == 0) {
		char *p = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		memset(p, 1, pages << 12);
		setrlimit(RLIMIT_CORE, &none);
		count(1000);
		__asm__ volatile("ud2");
	}
	waitpid(child, &status, 0);
}

static sigjmp_buf behind;

static void refused(int signal)
{
	siglongjmp(behind, signal);
}

static void exceptions(unsigned long turns)
{
	static unsigned int kind;
	unsigned long zero = 0, rest;

	signal(SIGILL, refused);
	signal(SIGFPE, refused);
	signal(SIGSEGV, refused);
	signal(SIGTRAP, refused);
	count(turns);
	if (sigsetjmp(behind, 1))
		return;
	switch (kind++ % 5) {
	case 0:
		__asm__ volatile("ud2");
		break;
	case 1:
		__asm__ volatile("divq %2" : "=d"(rest), "+a"(zero) : "r"(zero), "0"(zero));
		break;
	case 2:
		/* No address is like this one. */
		__asm__ volatile("movq (%1), %0" : "=r"(rest) : "r"(1UL << 62));
		break;
	case 3:
		__asm__ volatile("int3");
		break;
	case 4:
		/* INT1: a debug exception. */
		__asm__ volatile(".byte 0xf1");
	}
}

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// Wakes each 10 ms, and computes until it has used 5 % of the time since it began: 0.5 ms, or less
// after an emulated CPU has stood still meanwhile.
static int rt0(double end, int cpu)
{
	struct sched_param param = { .sched_priority = 50 };
	struct timespec next;
	cpu_set_t mask;

	CPU_ZERO(&mask);
	CPU_SET(cpu, &mask);
	if (sched_setaffinity(0, sizeof(mask), &mask) || sched_setscheduler(0, SCHED_FIFO, &param)) {
		perror("rt0");
		return 1;
	}
	double began = now(), used = cpu_time();

	clock_gettime(CLOCK_MONOTONIC, &next);
	while (now() < end) {
		while (cpu_time() - used < 0.05 * (now() - began))
			count(1000);
		next.tv_nsec += 10000000;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	return 0;
}

static void disturbed(double end, unsigned long turns)
{
	pid_t children[4];

	for (int i = 0; i < 4; i++) {
		children[i] = fork();
		while (children[i] == 0) {
			count(turns);
			syscall(SYS_getppid);
		}
	}
	for (unsigned long n = 0; now() < end; n++) {
		setpriority(PRIO_PROCESS, children[n % 4], n / 4 % 2);
		count(turns);
	}
	for (int i = 0; i < 4; i++)
		kill(children[i], SIGKILL);
}

static void gaps(double end, unsigned long turns)
{
	double at = now(), longest = 0;

	while (at < end) {
		double before = at;

		count(turns);
		at = now();
		if (at - before > longest)
			longest = at - before;
	}
	printf("%.2f\n", longest);
}

static void late(double end, unsigned long us)
{
	double most = 0;

	for (double at = now(); at < end;) {
		double before = at;

		usleep(us);
		at = now();
		if (at - before - us / 1e6 > most)
			most = at - before - us / 1e6;
	}
	printf("%.2f\n", most);
}

static void crowd(double end, unsigned long tasks)
{
	enum { READERS = 6, BYTES = 1 << 20 };
	struct turns {
		double last, longest;
	} *turns = mmap(NULL, tasks * sizeof(*turns), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double begin = now() + 8, longest = 0;
	unsigned long ran = 0;
	cpu_set_t first;
	static char buffer[BYTES];

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	for (unsigned long n = 0; n < tasks + READERS; n++) {
		if (fork())
			continue;
		/*
		 * Before the crowd is there: on PREEMPT_RT a task that has a lock in the kernel waits
		 * for its turn with it.
		 */
		sched_setaffinity(0, sizeof(first), &first);
		int zero = open("/dev/zero", O_RDONLY);
		/* All are there by then. */
		usleep((begin - now()) * 1e6);
		if (n >= tasks)
			while (now() < end && read(zero, buffer, BYTES) > 0)
				;
		else
			for (double at = begin; at < end; turns[n].last = at) {
				count(10000);
				double before = at;
				at = now();
				if (at - before > turns[n].longest)
					turns[n].longest = at - before;
			}
		_exit(0);
	}
	usleep((end - now()) * 1e6);
	for (unsigned long n = 0; n < tasks; n++) {
		double since = end - (turns[n].last ? turns[n].last : begin);

		ran += turns[n].last > 0;
		if (turns[n].longest > longest)
			longest = turns[n].longest;
		if (since > longest)
			longest = since;
	}
	printf("%.1f %lu\n", longest, ran);
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *kind = argv[1];
	double seconds = atof(argv[2]), end = now() + seconds;
	unsigned long turns = strtoul(argv[3], NULL, 0), done = 0;

	if (strcmp(kind, "rt0") == 0)
		return rt0(end, turns);
	if (strcmp(kind, "gaps") == 0)
		return gaps(end, turns), 0;
	if (strcmp(kind, "late") == 0)
		return late(end, turns), 0;
	if (strcmp(kind, "crowd") == 0)
		return setpgid(0, 0), crowd(end, turns), 0;
	if (strcmp(kind, "disturbed") == 0)
		return disturbed(end, turns), 0;
	if (strcmp(kind, "timers") == 0) {
		struct itimerval often = { { 0, 5000 }, { 0, 5000 } };

		signal(SIGPROF, SIG_IGN);
		setitimer(ITIMER_PROF, &often, NULL);
	}
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
		} else if (strcmp(kind, "dumps") == 0) {
			dumps(turns);
		} else if (strcmp(kind, "exceptions") == 0) {
			exceptions(turns);
		} else {
			count(10000);
		}
	}
	printf("%s %.0f\n", kind, done / seconds);
	return 0;
}
