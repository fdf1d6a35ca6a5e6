/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Jobs that do what no job may. The table of tests/boards.rs chooses one. */
#include "board.h"
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
	__asm__ volatile(REFUSED_INSTRUCTION);
}

#ifdef PLANT
void mask(const struct yk_job *job)
{
	(void)job;
	__asm__ volatile(MASKING_INSTRUCTION);
}
#endif

int main(void)
{
	yk_run();
}
