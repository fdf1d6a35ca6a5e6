/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K7, arrivals of a sporadic task: handlers note them, at any access of the jobs' level, which
 * makes jobs of them. None is lost, doubled or out of order. None, four or eight wait before, and
 * the counts are at a wrap.
 */
#include "yartek.h"
#include "explore.h"

#include <stddef.h>

enum { ARRIVALS = 4, STEPS = 3, PERIOD = 10, KNOWN = YK_MAX_ARRIVALS + ARRIVALS, EPOCH = 1002 };

static struct yk_arrivals arrivals;
static struct yk_task_def def;
static struct yk_task task;
static struct yk_edf edf;
/* Times of those that found room; how many there are, and of how many jobs were made. */
static yk_ticks at[KNOWN];
static uint32_t came, taken, refused, actions;
static yk_ticks now, earliest;
static bool is_at_work, is_above;

static void arrive(void)
{
	/* Nearer to each other than the period, or not. */
	now += choose(2) ? 1 : 2 * PERIOD;
	if (came - taken == YK_MAX_ARRIVALS)
		refused++;
	else
		at[came++] = now;
	yk_edf_arrive(&def, now);
	must("K7 an arrival is refused only where eight wait, and counted",
	     arrivals.refused <= refused);
}

void at_access(void)
{
	if (!is_at_work || is_above)
		return;
	is_above = true;
	for (; actions < ARRIVALS && choose(2); actions++)
		arrive();
	is_above = false;
}

/* The job of the next arrival, if there is a new one, is as it should be. */
static void see_job(uint32_t activation)
{
	yk_ticks start;

	if (task.start == YK_NEVER)
		return;
	must("K7 a job is made of an arrival", taken < came && task.activation == activation);
	start = at[taken] < earliest ? earliest : at[taken];
	must("K7 jobs are made in the order of arrivals, a period apart", task.start == start);
	must("K7 the deadline counts from the start", task.deadline == start + def.deadline);
	must("K7 the alarm is set for it", edf.soonest <= start);
	earliest = start + PERIOD;
	taken++;
}

void scenario(void)
{
	uint32_t waiting, activation = 0;

	is_at_work = is_above = false;
	came = taken = refused = actions = 0;
	now = 1000;
	/* The first arrivals come before it. */
	earliest = EPOCH;
	def = (struct yk_task_def){ .period = PERIOD, .deadline = 7, .arrivals = &arrivals };
	arrivals = (struct yk_arrivals){ 0 };
	arrivals.came = arrivals.taken = choose(2) ? UINT32_MAX : UINT32_MAX - 5;
	yk_edf_begin(&edf, &def, &task, 1, EPOCH);
	must("K7 there is no job without an arrival", task.start == YK_NEVER);
	for (waiting = choose(3) * (YK_MAX_ARRIVALS / 2); waiting; waiting--)
		arrive();

	is_at_work = true;
	for (uint32_t n = 0; n < STEPS; n++) {
		if (task.start == YK_NEVER) {
			yk_edf_arrived(&edf);
		} else {
			struct yk_job job = { .start = task.start, .deadline = task.deadline,
					      .begun = task.start, .activation = activation };

			/* Its end, in time. Handlers may interrupt that, too. */
			edf.released = 0;
			yk_edf_ended(&edf, &job, task.start);
			activation++;
		}
		see_job(activation);
	}
	is_at_work = false;
	/* What arrived last is seen by the next look. */
	if (task.start == YK_NEVER) {
		yk_edf_arrived(&edf);
		see_job(activation);
		must("K7 no arrival is lost", task.start != YK_NEVER || taken == came);
	}
	must("K7 what waits is what has come", arrivals.came - arrivals.taken == came - taken);
	must("K7 arrivals are refused only where eight wait", arrivals.refused == refused);
}
