/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The start, the work in the background, and the end after a fault. The jobs are in tasks.c. */
#include "tasks.h"

#include "console.h"
#include "trace.h"

/*
 * A deadline of a task with `late = "fault"` is over, a job runs for longer than its `most`, or the
 * processor refuses an instruction. The machine is made safe first. Then this tells why, and
 * leaves the emulator; a board waits for ever.
 */
void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	motor_stop();
	yk_trace_fault(why, job, address);
}

/* Each job, at its end. */
void yk_ended(const struct yk_job *job, yk_ticks end)
{
	yk_trace_keep(job, end);
}

/* A piece of work, each time no job runs. `true`: more is left. */
bool yk_background(void)
{
	uint8_t speed;

	if (yk_ring_get(&speeds, &speed)) {
		yk_console_text("speed ");
		yk_console_decimal(speed);
		yk_console_byte('\n');
		return true;
	}
	/* Tells of the jobs that ended, and ends a run of `asmp yartek run`. */
	return yk_trace_print();
}

int main(void)
{
	/* Devices are set up here. */
	yk_run();
}
