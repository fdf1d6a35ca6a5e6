// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the guests of the tests have in common.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// A function of the vDSO: no entry into the kernel.
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void count(unsigned long turns)
{
	static volatile unsigned long sink;

	for (unsigned long i = 0; i < turns; i++)
		sink += i;
}
