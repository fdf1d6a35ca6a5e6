// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The main of a program that has init_module and cleanup_module and no main of its own. Compile it
 * along:
 *
 *   cc $(pkg-config --cflags asmp_rtlinux) app.c
 *      $(pkg-config --variable=rtl_main asmp_rtlinux) $(pkg-config --libs asmp_rtlinux)
 *
 * It locks memory, calls init_module, waits for SIGINT or SIGTERM (what rmmod was), calls
 * cleanup_module. With -n it neither locks memory nor lets threads be real-time: to try a program
 * out without the permissions.
 *
 * Exit status: 0; 1 init_module failed; 2 wrong use; 3 memory cannot be locked. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "../asmp_rt.h"

/* Touched before the start: what printf and its like take. */
#define HEAP_BYTES (1 << 20)

int init_module(void);
void cleanup_module(void);

int main(int argc, char **argv)
{
	int ordinary = argc == 2 && strcmp(argv[1], "-n") == 0;
	char why[512];
	sigset_t end;
	int signal, result;

	if (argc > 1 && !ordinary) {
		fprintf(stderr, "usage: %s [-n]\n  -n  not real-time: no priorities, no locked memory\n",
			argv[0]);
		return 2;
	}
	/* Threads inherit the mask: only this one takes the signals. */
	sigemptyset(&end);
	sigaddset(&end, SIGINT);
	sigaddset(&end, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &end, NULL);
	if (ordinary) {
		rtl_without_priorities_np(true);
	} else if (rtl_lock_memory_np(HEAP_BYTES, why, sizeof(why)) != 0) {
		fprintf(stderr, "%s: %s; -n runs it without\n", argv[0], why);
		return 3;
	}
	result = init_module();
	if (result != 0) {
		/* Modules answer with error numbers of either sign. */
		fprintf(stderr, "%s: init_module: %s%s\n", argv[0], strerror(result < 0 ? -result : result),
			result == 1 || result == -1 ?
				" (no permission for real-time priorities: raise RLIMIT_RTPRIO or run as"
				" root; -n runs it without)" :
				"");
		return 1;
	}
	sigwait(&end, &signal);
	cleanup_module();
	return 0;
}
