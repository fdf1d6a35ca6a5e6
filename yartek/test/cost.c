/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A job of a known number of instructions, for the example `dispatch`. */
#include "trace.h"

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

void yk_ended(const struct yk_job *job, yk_ticks end)
{
	yk_trace_keep(job, end);
}

bool yk_background(void)
{
	return yk_trace_print();
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	yk_run();
}
