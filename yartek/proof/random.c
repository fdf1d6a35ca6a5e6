/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The choices of explore.h at random: CASES runs of a scenario, of STEPS calls each. */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>

enum { CASES = 2000 };

/* The number of the run, from which all of its choices follow. */
static uint32_t seed;
static uint64_t state;

uint32_t choose(uint32_t of)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)((state >> 32) * of >> 32);
}

void must(const char *contract, bool condition)
{
	if (condition)
		return;
	printf("broken: %s\nseed: %u\n", contract, seed);
	exit(1);
}

/* AddressSanitizer and UndefinedBehaviorSanitizer call them, and then end the program. */
void __asan_on_error(void);
void __ubsan_on_report(void);
void __asan_on_error(void)
{
	printf("broken: K10 no call touches what it was not given\nseed: %u\n", seed);
	fflush(stdout);
}

void __ubsan_on_report(void)
{
	__asan_on_error();
}

int main(void)
{
	for (seed = 1; seed <= CASES; seed++) {
		state = seed;
		scenario();
	}
	printf("%u calls in %u cases\n", CASES * STEPS, CASES);
	return 0;
}
