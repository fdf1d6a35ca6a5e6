/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Jobs that end just before and just after the next start of all tasks, for the example `dispatch`:
 * a tick later from job to job, SWEEP times, the first of them BEFORE ticks before that start.
 * Every other job ends at once, for the background.
 */
#include "port.h"
#include "traced.h"

void last(const struct yk_job *job);

void last(const struct yk_job *job)
{
	yk_ticks next = job->start + yk_table.task_defs[job->task].period;
	yk_ticks end = next - BEFORE + job->activation / 2 % SWEEP;
	int64_t left;

	if (job->activation % 2)
		return;
	/* An emulator takes long to read a clock: rounds of a loop while it is far, as yk_spin(). */
	while ((left = (int64_t)(end - yk_now())) > 0)
		if (left > 4 * (int64_t)yk_port_spin_ticks)
			for (uint32_t n = 0; n < 64; n++)
				__asm__ volatile("");
	/* A tick may have room for some. */
	for (uint32_t n = job->activation / 2 % 13; n; n--)
		__asm__ volatile("");
}

int main(void)
{
	yk_run();
}
