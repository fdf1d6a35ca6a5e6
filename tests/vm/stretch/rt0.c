// SPDX-License-Identifier: Apache-2.0 OR MIT
// rt0 COUNT PERIOD_US: a hard task that sleeps until the next instant of its period, COUNT times.
// It passes sleeps() before and woke() after that, and ended() at last: plugin.c knows where.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

__attribute__((noinline)) void sleeps(void) { __asm__ volatile("nop;nop" ::: "memory"); }
__attribute__((noinline)) void woke(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void ended(void) { __asm__ volatile("nop" ::: "memory"); }

int main(int argc, char **argv)
{
	struct timespec next, now;

	clock_gettime(CLOCK_MONOTONIC, &next);
	if (argc != 3 || mlockall(MCL_CURRENT | MCL_FUTURE)) {
		perror("rt0 COUNT PERIOD_US");
		return 1;
	}
	for (long i = atol(argv[1]); i > 0; i--) {
		// Instants that have passed are none to sleep for.
		do {
			next.tv_nsec += atol(argv[2]) * 1000;
			next.tv_sec += next.tv_nsec / 1000000000;
			next.tv_nsec %= 1000000000;
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while (next.tv_sec < now.tv_sec ||
			 (next.tv_sec == now.tv_sec && next.tv_nsec <= now.tv_nsec));
		sleeps();
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) == EINTR)
			;
		woke();
	}
	ended();
	return 0;
}
