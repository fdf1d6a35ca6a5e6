/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A job of a known number of instructions, for the example `dispatch`. */
#include "board.h"
#include "traced.h"

void count(const struct yk_job *job);

void count(const struct yk_job *job)
{
	(void)job;
	count_down(COUNT_ROUNDS);
}

int main(void)
{
	yk_run();
}
