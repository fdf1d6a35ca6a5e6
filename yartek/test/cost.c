/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A job of a known number of instructions, for the example `dispatch`. */
#include "traced.h"

void count(const struct yk_job *job);

/* Two instructions a round. */
void count(const struct yk_job *job)
{
	uint32_t rounds = COUNT_ROUNDS;

	(void)job;
#ifdef __mcoldfire__
	__asm__ volatile("1: subq.l #1, %0\n\tbne.s 1b" : "+d"(rounds) : : "cc");
#else
	__asm__ volatile("1: subs %0, #1\n\tbne 1b" : "+l"(rounds) : : "cc");
#endif
}

int main(void)
{
	yk_run();
}
