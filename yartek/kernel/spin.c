/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The body of tasks that the application has not written yet. */
#include "port.h"

/* An emulator takes long to read a clock. Rounds of a loop instead take less than LOOKS looks. */
enum { ROUNDS = 64, LOOKS = 4 };

void yk_spin(const struct yk_job *job)
{
	yk_ticks end = job->begun + yk_table.task_defs[job->task].budget - yk_port_spin_ticks;
	int64_t left;

	while ((left = (int64_t)(end - yk_port_now())) > 0)
		if (left > LOOKS * (int64_t)yk_port_spin_ticks)
			for (uint32_t n = 0; n < ROUNDS; n++)
				__asm__ volatile("");
}
