// SPDX-License-Identifier: Apache-2.0 OR MIT
// caller WHAT COUNT CPU: COUNT times, each time it has come to CPU and computed there for a while:
// nothing, getpid, fault: the first touch of a page, or affinity: sched_setaffinity() to CPU 0 and
// back to CPU. It passes calls() before and came_back() after that, and ended() at last: moves.c
// knows where.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) void calls(void) { __asm__ volatile("nop;nop" ::: "memory"); }
__attribute__((noinline)) void came_back(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void ended(void) { __asm__ volatile("nop" ::: "memory"); }

static char page[4096] __attribute__((aligned(4096)));

static void go_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
	if (argc != 4 || mlockall(MCL_CURRENT | MCL_FUTURE)) {
		perror("caller WHAT COUNT CPU");
		return 1;
	}
	int cpu = atoi(argv[3]), does_call = !strcmp(argv[1], "getpid");
	int touches = !strcmp(argv[1], "fault"), moves = !strcmp(argv[1], "affinity");

	// A guest that does not come to CPU ends the test.
	alarm(600);
	// One more: a return ends at the next call.
	for (long i = atol(argv[2]); i >= 0; i--) {
		if (touches && madvise(page, sizeof(page), MADV_DONTNEED_LOCKED)) {
			perror("madvise");
			return 1;
		}
		// The library reads that from memory which the kernel writes: no entry.
		do {
			while (sched_getcpu() != cpu)
				;
			for (volatile int turn = 0; turn < 300000; turn++)
				;
		} while (sched_getcpu() != cpu);
		calls();
		if (does_call)
			syscall(SYS_getpid);
		if (touches)
			*(volatile char *)page = 1;
		if (moves) {
			go_to(0);
			go_to(cpu);
		}
		came_back();
	}
	ended();
	return 0;
}
