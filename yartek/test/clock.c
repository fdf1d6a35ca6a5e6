/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * All levels read the clock over and over while it wraps, by the table of tests/wraps.rs. It must
 * not go back: no reading is less than one that was taken before, at whichever level.
 *
 * The image is built with -DYK_CLOCK_BEGIN=yk_trace_until: what runs it says where the clock
 * begins.
 * Prints the level that was running at the wrap, and `good`, or what was wrong.
 */
#include "source.h"

#include "console.h"
#include "trace.h"

enum level { BACKGROUND, JOB, HANDLER, LEVELS };
/* Of the clock, from the epoch on. Handlers that are remembered. */
enum { WRAPS_AT_BITS = 32, HANDLERS = 64 };

static const char *const names[LEVELS] = { "background", "job", "handler" };
/* Each level's last reading. */
static volatile yk_ticks last[LEVELS];
static volatile enum level level_at_wrap = LEVELS;
static volatile yk_ticks went_back_from;
static volatile yk_ticks went_back_to;
/* When the last handlers ran. */
static struct {
	volatile yk_ticks from, to;
} handlers[HANDLERS];
static volatile uint32_t handled;
/* The longest from the start of a job to its begin, without them. */
static volatile yk_ticks lateness;

/* A level above may write it meanwhile: it takes two words. */
static yk_ticks last_of(enum level level)
{
	yk_ticks once, twice = last[level];

	do {
		once = twice;
		twice = last[level];
	} while (once != twice);
	return once;
}

static void look(enum level level)
{
	yk_ticks before = 0, now;

	for (uint32_t n = 0; n < LEVELS; n++) {
		yk_ticks at = last_of((enum level)n);

		if (at > before)
			before = at;
	}
	now = yk_now();
	if (now < before && !went_back_from) {
		went_back_to = now;
		went_back_from = before;
	}
	if (level_at_wrap == LEVELS && now >> WRAPS_AT_BITS && !(before >> WRAPS_AT_BITS))
		level_at_wrap = level;
	last[level] = now;
}

static void handle(void)
{
	uint32_t n = handled % HANDLERS;

	handlers[n].from = yk_now();
	for (uint32_t looks = random_up_to(20); looks; looks--)
		look(HANDLER);
	yk_raise(0);
	handlers[n].to = yk_now();
	handled++;
}

/* Handlers run in a job, too: what this one reads came before its begin. */
static void measure(const struct yk_job *job)
{
	yk_ticks late = job->begun - job->start;

	for (uint32_t n = 0; n < HANDLERS; n++) {
		yk_ticks from = handlers[n].from, to = handlers[n].to;

		if (to <= job->start || from >= job->begun)
			continue;
		late -= (to < job->begun ? to : job->begun) -
			(from > job->start ? from : job->start);
	}
	if (late > lateness)
		lateness = late;
}

void serve(uint32_t raises);
void work(const struct yk_job *job);

void serve(uint32_t raises)
{
	(void)raises;
}

void work(const struct yk_job *job)
{
	yk_ticks budget = yk_table.task_defs[job->task].budget - 4 * yk_port_spin_ticks;

	measure(job);
	while (yk_now() - job->begun < budget) {
		look(JOB);
		if (!random_up_to(15))
			provoke();
	}
}

static void put(const char *name, yk_ticks number)
{
	yk_console_text(name);
	yk_console_hex(number);
	yk_console_byte('\n');
}

bool yk_background(void)
{
	enum { JOBS_AFTER = 20 };
	static uint32_t jobs_at_wrap;
	uint32_t jobs = yk_stats(0)->ended;

	look(BACKGROUND);
	if (!random_up_to(15))
		provoke();
	if (level_at_wrap == LEVELS || !(last_of(BACKGROUND) >> WRAPS_AT_BITS)) {
		jobs_at_wrap = jobs;
		return true;
	}
	if (jobs - jobs_at_wrap < JOBS_AFTER)
		return true;
	yk_console_text("at ");
	yk_console_text(names[level_at_wrap]);
	yk_console_byte('\n');
	put("lateness ", lateness);
	put("missed ", yk_stats(0)->missed);
	put("from ", went_back_from);
	put("to ", went_back_to);
	yk_console_text(went_back_from ? "wrong\n" : "good\n");
	yk_port_exit(0);
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	attach(0);
	yk_run();
}
