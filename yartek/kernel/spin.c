/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The body of tasks that the application has not written yet. */
#include "port.h"

void yk_spin(const struct yk_job *job)
{
	yk_ticks end = job->begun + yk_table.task_defs[job->task].budget - yk_port_spin_ticks;

	while ((int64_t)(end - yk_port_now()) > 0)
		;
}
