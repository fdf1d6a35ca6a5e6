/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs jobs, and the background.
 *
 * Problem:  jobs do not preempt each other, handlers preempt jobs, and jobs preempt the background.
 * Approach: the alarm has the lowest interrupt priority, and the jobs run in its interrupt. The
 *           processor itself keeps the order of the levels: there is no context to save.
 */
#include "port.h"

#include <stddef.h>

/* Some ticks after the start of the clock: all is set up by then. */
#define EPOCH ((yk_ticks)YK_CLOCK_BEGIN + 8192)

/* Of the alarm's level. */
static struct yk_edf edf;
static struct yk_job job;
/* &job while it runs, for the levels above. */
static const struct yk_job *volatile running;
/* How often something arrived: of handlers; and how often the alarm's level has looked. */
static volatile uint32_t arrivals;
static uint32_t looked;

volatile uint32_t yk_woken;

/* A deadline is over, and the application has made its machine safe: jobs are over, too. */
static void stop(enum yk_why why)
{
	yk_fault(why, &job, 0);
	edf.count = edf.released = 0;
	edf.soonest = YK_NEVER;
}

static yk_ticks run_job(void)
{
	yk_ticks end;

	job.begun = yk_port_now();
	running = &job;
	edf.defs[job.task].run(&job);
	running = NULL;
	end = yk_port_now();
	yk_ended(&job, end);
	if (yk_edf_ended(&edf, &job, end) == YK_NOT_ENDED)
		stop(YK_WHY_NOT_ENDED);
	return end;
}

void yk_alarm(void)
{
	yk_ticks now = yk_port_now();

	for (;;) {
		uint32_t seen = arrivals;

		if (looked != seen) {
			looked = seen;
			yk_edf_arrived(&edf);
		}
		switch (yk_edf_next(&edf, now, &job)) {
		case YK_RUN:
			/* The next is chosen among those whose start was not after its end. */
			now = run_job();
			continue;
		case YK_IDLE:
			/* What arrived meanwhile has set an alarm, which this one replaced. */
			if (yk_port_alarm(edf.soonest) && looked == arrivals) {
				yk_port_wake();
				return;
			}
			break;
		default:
			stop(YK_WHY_NOT_BEGUN);
		}
		now = yk_port_now();
	}
}

void yk_arrive(uint32_t task)
{
	const struct yk_task_def *def = &yk_table.task_defs[task];

	yk_edf_arrive(def, yk_port_now());
	yk_table.tasks[task].stats.refused = def->arrivals->refused;
	arrivals++;
	yk_port_alarm_now();
}

_Noreturn void yk_run(void)
{
	yk_edf_begin(&edf, yk_table.task_defs, yk_table.tasks, yk_table.tasks_count, EPOCH);
	yk_port_start();
	/* Finds nothing to do before the epoch, and sets the alarm. */
	yk_port_alarm_now();
	for (;;) {
		yk_woken = 0;
		if (!yk_serve() && !yk_background())
			yk_port_sleep();
	}
}

bool yk_is_guarded(void)
{
	for (uint32_t n = 0; n < yk_table.tasks_count; n++)
		if (yk_table.task_defs[n].most)
			return true;
	return false;
}

void yk_guard(void)
{
	/* When the job began of which the application was told. */
	static yk_ticks told;
	const struct yk_job *held_by = running;
	yk_ticks most = held_by ? yk_table.task_defs[held_by->task].most : 0;

	if (most && held_by->begun != told && yk_port_now() - held_by->begun > most) {
		told = held_by->begun;
		yk_fault(YK_WHY_TOO_LONG, held_by, 0);
	}
}

void yk_trap(uintptr_t address)
{
	yk_fault(YK_WHY_TRAP, running, address);
}

yk_ticks yk_now(void)
{
	return yk_port_now();
}

yk_ticks yk_epoch(void)
{
	return EPOCH;
}

const struct yk_stats *yk_stats(uint32_t task)
{
	return &yk_table.tasks[task].stats;
}

__attribute__((weak)) bool yk_background(void)
{
	return false;
}

__attribute__((weak)) void yk_ended(const struct yk_job *ended, yk_ticks end)
{
	(void)ended;
	(void)end;
}
