/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs JOBS jobs by the table of tests/endurance.rs, and prints what became of each task:
 * `task ENDED MISSED SKIPPED OVER-BUDGET`, then `ticks` since the epoch.
 */
#include "yartek.h"

#include "console.h"
#include "port.h"
#include "trace.h"

static void put(uint32_t number)
{
	yk_console_byte(' ');
	yk_console_decimal(number);
}

bool yk_background(void)
{
	uint32_t ended[YK_MAX_TASKS], jobs = 0;
	yk_ticks at = yk_now();

	for (uint32_t n = 0; n < yk_table.tasks_count; n++)
		jobs += ended[n] = yk_stats(n)->ended;
	if (jobs < JOBS)
		return false;
	for (uint32_t n = 0; n < yk_table.tasks_count; n++) {
		const struct yk_stats *stats = yk_stats(n);

		yk_console_text("task");
		put(ended[n]);
		put(stats->missed);
		put(stats->skipped);
		put(stats->over_budget);
		yk_console_byte('\n');
	}
	yk_console_text("ticks ");
	yk_console_hex(at - yk_epoch());
	yk_console_byte('\n');
	yk_port_exit(0);
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	yk_run();
}
