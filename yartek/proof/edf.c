/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K1: one step from any state that may occur, for CBMC, which looks at all values of all variables.
 * Each of begins(), next(), ended(), arrived() and skipped() is a main(): one call of edf.c, with
 * COUNT tasks. What is_valid() says of the state before the call must hold after it.
 *
 * Times are below 2^BITS ticks. A job that is dropped is late by less than SKIPPED periods: the
 * loops of skip() depend on that.
 */
#include "../kernel/edf.c"

#ifndef COUNT
#define COUNT 4
#endif
/* May tasks skip? */
#ifndef SKIPS
#define SKIPS false
#endif
enum { SKIPPED = 3 };
#ifndef BITS
#define BITS 62
#endif
#define LATEST ((yk_ticks)1 << BITS)

bool nondet_bool(void);
uint32_t nondet_u32(void);
uint64_t nondet_u64(void);

#define given(condition) __CPROVER_assume(condition)
#define must(contract, condition) __CPROVER_assert(condition, contract)

static struct yk_arrivals arrivals[COUNT];
static struct yk_task_def defs[COUNT];
static struct yk_task tasks[COUNT];
static struct yk_edf edf = { .defs = defs, .tasks = tasks, .count = COUNT };
/* The last look at the clock. */
static yk_ticks last;

static yk_ticks some_time(void)
{
	yk_ticks time = nondet_u64();

	given(time < LATEST);
	return time;
}

static bool is_released(uint32_t n)
{
	return edf.released >> n & 1;
}

static bool has_job(uint32_t n)
{
	return tasks[n].start != YK_NEVER;
}

static bool is_valid(void)
{
	bool is_start = edf.soonest == YK_NEVER;

	if (edf.released >> COUNT)
		return false;
	for (uint32_t n = 0; n < COUNT; n++) {
		yk_ticks start = tasks[n].start;

		if (has_job(n) ? start >= LATEST || tasks[n].deadline != start + defs[n].deadline
			       : tasks[n].deadline != YK_NEVER || !defs[n].arrivals)
			return false;
		/* A job is released at its start, never before. */
		if (is_released(n) ? start > last : edf.soonest > start)
			return false;
		is_start |= !is_released(n) && start == edf.soonest;
	}
	return is_start;
}

static void take_any_set(void)
{
	for (uint32_t n = 0; n < COUNT; n++) {
		uint32_t waiting = nondet_u32();

		defs[n].period = some_time();
		defs[n].offset = some_time();
		defs[n].deadline = some_time();
		defs[n].budget = some_time();
		defs[n].late = nondet_u32() % 3;
		given(defs[n].period > 0);
		defs[n].arrivals = nondet_bool() ? &arrivals[n] : NULL;
		given(waiting <= YK_MAX_ARRIVALS);
		arrivals[n].taken = nondet_u32();
		arrivals[n].came = arrivals[n].taken + waiting;
		arrivals[n].earliest = some_time();
		for (uint32_t m = 0; m < YK_MAX_ARRIVALS; m++)
			arrivals[n].at[m] = some_time();
	}
}

static void take_any_state(void)
{
	take_any_set();
	edf.released = nondet_u32();
	edf.soonest = nondet_u64();
	last = some_time();
	for (uint32_t n = 0; n < COUNT; n++) {
		tasks[n].start = nondet_u64();
		tasks[n].deadline = nondet_u64();
		tasks[n].activation = nondet_u32();
		tasks[n].skipped = nondet_u32();
	}
	given(is_valid());
}

/* Does the job of task n go before that of task m? By the words of the header. */
static bool goes_before(uint32_t n, uint32_t m)
{
	if (tasks[n].deadline != tasks[m].deadline)
		return tasks[n].deadline < tasks[m].deadline;
	if (tasks[n].start != tasks[m].start)
		return tasks[n].start < tasks[m].start;
	return n < m;
}

void begins(void);
void begins(void)
{
	yk_ticks epoch = some_time();

	take_any_set();
	for (uint32_t n = 0; n < COUNT; n++)
		given(epoch + defs[n].offset < LATEST);
	yk_edf_begin(&edf, defs, tasks, COUNT, epoch);
	must("K1 the state at first is valid", is_valid());
	for (uint32_t n = 0; n < COUNT; n++)
		must("K1 a periodic task begins at its offset, a sporadic one by an arrival",
		     tasks[n].start == (defs[n].arrivals ? YK_NEVER : epoch + defs[n].offset));
	must("K1 nothing is released at first", !edf.released);
}

void next(void);
void next(void)
{
	struct yk_task before[COUNT];
	struct yk_job job;
	enum yk_next what;
	yk_ticks now = some_time();

	take_any_state();
	given(now >= last);
	for (uint32_t n = 0; n < COUNT; n++) {
		before[n] = tasks[n];
		if (defs[n].late != YK_SKIP)
			continue;
		given(SKIPS);
		/* See above. What arrives late is not skipped here: see skipped(). */
		given(!defs[n].arrivals);
		given(tasks[n].deadline > now ||
		      now - tasks[n].deadline < SKIPPED * defs[n].period);
		given(now + defs[n].period < LATEST);
	}
	what = yk_edf_next(&edf, now, &job);
	last = now;

	must("K1 the state after a choice is valid", is_valid());
	for (uint32_t n = 0; n < COUNT; n++) {
		bool is_over = tasks[n].deadline <= now;

		must("K1 all jobs are released whose start has come",
		     is_released(n) == (has_job(n) && tasks[n].start <= now));
		must("K1 no job of a task that skips waits with its deadline over",
		     defs[n].late != YK_SKIP || !is_released(n) || !is_over || what != YK_IDLE);
		must("K1 a job is dropped only if its deadline is over and its task skips",
		     tasks[n].start == before[n].start ||
			     (defs[n].late == YK_SKIP && before[n].deadline <= now));
		must("K1 dropped jobs are counted",
		     tasks[n].activation - before[n].activation ==
			     tasks[n].skipped - before[n].skipped);
		must("K1 the job that runs is the first of those released",
		     what == YK_IDLE || n == job.task || !is_released(n) ||
			     goes_before(job.task, n));
	}
	must("K1 the CPU is idle only if nothing is released", what != YK_IDLE || !edf.released);
	must("K1 the alarm is ahead", what != YK_IDLE || edf.soonest > now);
	if (what == YK_IDLE)
		return;
	must("K1 what runs is released", job.task < COUNT && is_released(job.task));
	must("K1 the job is that of its task",
	     job.start == tasks[job.task].start && job.deadline == tasks[job.task].deadline &&
		     job.activation == tasks[job.task].activation &&
		     job.skipped == tasks[job.task].skipped && job.begun == now);
	must("K1 no job runs that its task drops",
	     defs[job.task].late != YK_SKIP || job.deadline > now);
	must("K1 a job of a task of YK_FAULT is told of as soon as its deadline is over",
	     (what == YK_NOT_BEGUN) == (defs[job.task].late == YK_FAULT && job.deadline <= now));
	must("K1 a choice is one of three", what == YK_RUN || what == YK_NOT_BEGUN);
}

void ended(void);
void ended(void)
{
	struct yk_job job = { .task = nondet_u32(), .begun = some_time() };
	struct yk_task before, others[COUNT];
	struct yk_stats *stats;
	yk_ticks now = some_time(), start;
	enum yk_next what;
	uint32_t n = job.task, waiting;

	take_any_state();
	given(n < COUNT && is_released(n));
	before = tasks[n];
	for (uint32_t m = 0; m < COUNT; m++)
		others[m] = tasks[m];
	job.start = before.start;
	job.deadline = before.deadline;
	job.activation = before.activation;
	given(job.begun >= last && now >= job.begun);
	given(job.start + defs[n].period < LATEST);
	given(arrivals[n].earliest + defs[n].period < LATEST);
	for (uint32_t m = 0; m < YK_MAX_ARRIVALS; m++)
		given(arrivals[n].at[m] + defs[n].period < LATEST);
	waiting = arrivals[n].came - arrivals[n].taken;
	start = arrivals[n].at[arrivals[n].taken % YK_MAX_ARRIVALS];
	if (start < arrivals[n].earliest)
		start = arrivals[n].earliest;
	what = yk_edf_ended(&edf, &job, now);
	last = now;
	stats = &tasks[n].stats;

	must("K1 a late end of a task of YK_FAULT is told of, and only that",
	     (what == YK_NOT_ENDED) == (defs[n].late == YK_FAULT && now > job.deadline));
	must("K1 the end is counted, and whether it was late or too long",
	     stats->ended == before.stats.ended + 1 &&
		     stats->missed == before.stats.missed + (now > job.deadline) &&
		     stats->over_budget ==
			     before.stats.over_budget + (now - job.begun > defs[n].budget));
	must("K1 the longest of each time is kept",
	     stats->response >= now - job.start && stats->response >= before.stats.response &&
		     stats->lateness >= job.begun - job.start && stats->run >= now - job.begun);
	for (uint32_t m = 0; m < COUNT; m++)
		must("K1 the end of a job changes no other task",
		     m == n || (tasks[m].start == others[m].start &&
				tasks[m].deadline == others[m].deadline &&
				tasks[m].activation == others[m].activation));
	if (what == YK_NOT_ENDED)
		return;
	must("K1 the state after an end is valid", is_valid());
	must("K1 the task waits for its next job", !is_released(n));
	must("K1 jobs are numbered one by one", tasks[n].activation == before.activation + 1);
	if (!defs[n].arrivals) {
		must("K1 the next job starts a period later",
		     tasks[n].start == before.start + defs[n].period);
		return;
	}
	must("K1 the next job of a sporadic task is that of its first arrival",
	     tasks[n].start == (waiting ? start : YK_NEVER));
	must("K1 the job after it starts a period later, or more",
	     !waiting || arrivals[n].earliest == start + defs[n].period);
}

void arrived(void);
void arrived(void)
{
	struct yk_task before[COUNT];
	uint32_t released;

	take_any_state();
	released = edf.released;
	for (uint32_t n = 0; n < COUNT; n++) {
		before[n] = tasks[n];
		given(arrivals[n].earliest + defs[n].period < LATEST);
	}
	yk_edf_arrived(&edf);
	must("K1 the state after arrivals is valid", is_valid());
	must("K1 an arrival releases nothing by itself", edf.released == released);
	for (uint32_t n = 0; n < COUNT; n++) {
		must("K1 a task that has a job keeps it",
		     before[n].start == YK_NEVER || tasks[n].start == before[n].start);
		must("K1 an arrival that waits becomes a job",
		     !defs[n].arrivals || before[n].start != YK_NEVER || has_job(n) ||
			     arrivals[n].came == arrivals[n].taken);
	}
}

/* skip() by itself: how many jobs. */
void skipped(void);
void skipped(void)
{
	struct yk_task task = { .start = some_time(), .activation = nondet_u32() }, before;
	struct yk_task_def def = { .period = some_time(), .deadline = some_time() };
	yk_ticks now = some_time(), periods = 0;
	uint32_t jobs;

	given(def.period > 0 && def.period < LATEST / SKIPPED);
	task.deadline = task.start + def.deadline;
	task.skipped = nondet_u32();
	given(task.deadline <= now && now - task.deadline < SKIPPED * def.period);
	before = task;
	skip(&task, &def, now);
	jobs = task.activation - before.activation;
	for (uint32_t n = 0; n < SKIPPED; n++)
		periods += n < jobs ? def.period : 0;
	must("K1 all jobs are dropped whose deadline is over", task.deadline > now);
	must("K1 no job is dropped whose deadline is ahead", task.deadline - def.period <= now);
	must("K1 as many jobs are counted as are dropped",
	     jobs <= SKIPPED && task.start == before.start + jobs * def.period &&
		     task.skipped == before.skipped + jobs &&
		     task.stats.skipped == jobs);
}
