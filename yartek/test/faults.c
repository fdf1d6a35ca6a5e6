/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Jobs that do what no job may. The table of tests/boards.rs chooses one. */
#include "traced.h"

void hang(const struct yk_job *job);
void trap(const struct yk_job *job);
void mask(const struct yk_job *job);

void hang(const struct yk_job *job)
{
	if (job->activation < 2)
		return;
	for (;;)
		;
}

void trap(const struct yk_job *job)
{
	(void)job;
#ifdef __mcoldfire__
	__asm__ volatile("illegal");
#else
	__asm__ volatile("udf #0");
#endif
}

#ifdef PLANT
void mask(const struct yk_job *job)
{
	(void)job;
#ifdef __mcoldfire__
	__asm__ volatile("move.w #0x2700, %sr");
#else
	__asm__ volatile("cpsid i");
#endif
}
#endif

int main(void)
{
	yk_run();
}
