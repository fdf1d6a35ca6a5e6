// SPDX-License-Identifier: Apache-2.0 OR MIT
/* hog BUSY_US PERIOD_US: keeps its CPU busy for that long, once a period, for ever. */
#include <stdlib.h>
#include <time.h>

static long long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
	long long busy = argc > 1 ? atoll(argv[1]) : 200;
	long long period = argc > 2 ? atoll(argv[2]) : 20000;

	for (;;) {
		long long end = now_us() + busy;
		struct timespec rest = { 0, (period - busy) * 1000 };

		while (now_us() < end)
			;
		nanosleep(&rest, NULL);
	}
}
