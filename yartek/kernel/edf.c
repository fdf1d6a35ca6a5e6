/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which job runs next: non-preemptive EDF.
 *
 * Problem:  queues sorted by deadline cost O(n^2) when n tasks are released at once, and a deadline
 *           that changes corrupts them.
 * Approach: a table with the next job of each task, and a bit for each that may run. A scan finds
 *           the first: 32 tasks at most. Only the next job of a task counts: those after it have
 *           later deadlines.
 *
 * No division and no multiplication of 64 bits: not all of our machines have them.
 */
#include "yartek.h"

#include <stdbool.h>
#include <stddef.h>

static uint32_t bit(uint32_t task)
{
	return (uint32_t)1 << task;
}

static void set_start(struct yk_task *task, const struct yk_task_def *def, yk_ticks start)
{
	task->start = start;
	task->deadline = start == YK_NEVER ? YK_NEVER : start + def->deadline;
}

/* The next job of the task waits for its start. */
static void wait_for_start(struct yk_edf *edf, uint32_t n)
{
	edf->released &= ~bit(n);
	if (edf->tasks[n].start < edf->soonest)
		edf->soonest = edf->tasks[n].start;
}

/* Makes a job of the first arrival that has none; else the next job has no start yet. */
static void take_arrival(struct yk_task *task, const struct yk_task_def *def)
{
	struct yk_arrivals *arrivals = def->arrivals;
	uint32_t taken = arrivals->taken;
	yk_ticks at;

	if (taken == arrivals->came) {
		set_start(task, def, YK_NEVER);
		return;
	}
	at = arrivals->at[taken % YK_MAX_ARRIVALS];
	/* From here on the writer may use the place again. */
	arrivals->taken = taken + 1;
	if (at < arrivals->earliest)
		at = arrivals->earliest;
	arrivals->earliest = at + def->period;
	set_start(task, def, at);
}

/* The job of this activation is over. */
static void advance(struct yk_task *task, const struct yk_task_def *def)
{
	task->activation++;
	if (def->arrivals)
		take_arrival(task, def);
	else
		set_start(task, def, task->start + def->period);
}

/* Drops the jobs whose deadline is over at `now`. That of the task's next job is. */
static void skip(struct yk_task *task, const struct yk_task_def *def, yk_ticks now)
{
	yk_ticks late = now - task->deadline, step = def->period;
	uint32_t jobs = 1, unit = 1;

	if (def->arrivals) {
		take_arrival(task, def);
	} else {
		/* Over by less than a period: one job. Each period more: one more, by long division. */
		for (; step <= late >> 1; step <<= 1)
			unit <<= 1;
		task->start += def->period;
		for (; unit; unit >>= 1, step >>= 1) {
			if (late < step)
				continue;
			late -= step;
			task->start += step;
			jobs += unit;
		}
		set_start(task, def, task->start);
	}
	task->activation += jobs;
	task->skipped += jobs;
	task->stats.skipped += jobs;
}

void yk_edf_begin(struct yk_edf *edf, const struct yk_task_def *defs, struct yk_task *tasks,
		  uint32_t count, yk_ticks epoch)
{
	edf->defs = defs;
	edf->tasks = tasks;
	edf->count = count;
	edf->released = 0;
	edf->soonest = YK_NEVER;
	for (uint32_t n = 0; n < count; n++) {
		tasks[n] = (struct yk_task){ 0 };
		set_start(&tasks[n], &defs[n], defs[n].arrivals ? YK_NEVER : epoch + defs[n].offset);
		if (defs[n].arrivals) {
			defs[n].arrivals->taken = defs[n].arrivals->came;
			defs[n].arrivals->earliest = epoch;
		}
		wait_for_start(edf, n);
	}
}

/* Releases the tasks whose start has come. */
static void release(struct yk_edf *edf, yk_ticks now)
{
	edf->soonest = YK_NEVER;
	for (uint32_t n = 0; n < edf->count; n++) {
		if (edf->released & bit(n))
			continue;
		if (edf->tasks[n].start <= now)
			edf->released |= bit(n);
		else if (edf->tasks[n].start < edf->soonest)
			edf->soonest = edf->tasks[n].start;
	}
}

/* Does the job of `a` go before that of `b`? Of equals the first in the table does. */
static bool is_before(const struct yk_task *a, const struct yk_task *b)
{
	return a->deadline != b->deadline ? a->deadline < b->deadline : a->start < b->start;
}

/* The released task whose job runs first; `count`: there is none. */
static uint32_t first_of(const struct yk_edf *edf)
{
	uint32_t first = edf->count, set = edf->released;

	for (uint32_t n = 0; set; n++, set >>= 1)
		if (set & 1 && (first == edf->count || is_before(&edf->tasks[n], &edf->tasks[first])))
			first = n;
	return first;
}

enum yk_next yk_edf_next(struct yk_edf *edf, yk_ticks now, struct yk_job *job)
{
	if (edf->soonest <= now)
		release(edf, now);
	for (;;) {
		uint32_t n = first_of(edf);
		struct yk_task *task = &edf->tasks[n];
		bool is_over;

		if (n == edf->count)
			return YK_IDLE;
		is_over = task->deadline <= now;
		if (is_over && edf->defs[n].late == YK_SKIP) {
			skip(task, &edf->defs[n], now);
			if (task->start > now)
				wait_for_start(edf, n);
			continue;
		}
		*job = (struct yk_job){
			.task = n,
			.activation = task->activation,
			.skipped = task->skipped,
			.start = task->start,
			.deadline = task->deadline,
			.begun = now,
		};
		return is_over && edf->defs[n].late == YK_FAULT ? YK_NOT_BEGUN : YK_RUN;
	}
}

static void at_least(yk_ticks *longest, yk_ticks ticks)
{
	if (ticks > *longest)
		*longest = ticks;
}

enum yk_next yk_edf_ended(struct yk_edf *edf, const struct yk_job *job, yk_ticks now)
{
	const struct yk_task_def *def = &edf->defs[job->task];
	struct yk_task *task = &edf->tasks[job->task];
	struct yk_stats *stats = &task->stats;

	stats->ended++;
	stats->missed += now > job->deadline;
	stats->over_budget += now - job->begun > def->budget;
	at_least(&stats->response, now - job->start);
	at_least(&stats->lateness, job->begun - job->start);
	at_least(&stats->run, now - job->begun);
	if (now > job->deadline && def->late == YK_FAULT)
		return YK_NOT_ENDED;
	task->skipped = 0;
	advance(task, def);
	wait_for_start(edf, job->task);
	return YK_RUN;
}

void yk_edf_arrive(const struct yk_task_def *def, yk_ticks at)
{
	struct yk_arrivals *arrivals = def->arrivals;
	uint32_t came = arrivals->came;

	if (came - arrivals->taken == YK_MAX_ARRIVALS) {
		arrivals->refused++;
		return;
	}
	arrivals->at[came % YK_MAX_ARRIVALS] = at;
	/* The reader looks at the place once it sees this. */
	arrivals->came = came + 1;
}

void yk_edf_arrived(struct yk_edf *edf)
{
	for (uint32_t n = 0; n < edf->count; n++) {
		if (!edf->defs[n].arrivals || edf->tasks[n].start != YK_NEVER)
			continue;
		take_arrival(&edf->tasks[n], &edf->defs[n]);
		wait_for_start(edf, n);
	}
}
