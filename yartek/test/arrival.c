/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What an arrival of a sporadic task takes, for the example `dispatch`, whose table has TASKS such
 * tasks and no others: its handler, a look for arrivals of all tasks, and a further pass of the
 * alarm that finds nothing. Prints for each the ticks of SAMPLES of them.
 */
#include "board.h"
#include "console.h"
#include "port.h"
#include "trace.h"

enum { SAMPLES = 1024, ROUNDS = 500 };

struct yk_arrivals came_for[TASKS];

static yk_ticks handlers, scans, passes;
static volatile uint32_t handled, jobs;

void work(const struct yk_job *job);
void serve(uint32_t raises);

void serve(uint32_t raises)
{
	(void)raises;
}

static void YK_HANDLER handle(void)
{
	source_quiet();
	handled++;
	/* Within a job: the last task is the one that arrives. */
	yk_arrive(TASKS - 1);
}

static yk_ticks loop(void)
{
	yk_ticks begun = yk_now();

	count_down(ROUNDS);
	return yk_now() - begun;
}

/* So that samples begin at different parts of a tick. */
static void differ(uint32_t by)
{
	for (uint32_t n = by % 13; n; n--)
		__asm__ volatile("");
}

/* Runs for the last task, too, and then does nothing. */
void work(const struct yk_job *job)
{
	yk_ticks begun, alone;

	jobs++;
	if (job->task)
		return;
	differ(jobs);
	alone = loop();
	begun = yk_now();
	source_now();
	count_down(ROUNDS);
	handlers += yk_now() - begun - alone;
}

static void scan(uint32_t sample)
{
	static struct yk_task_def defs[TASKS];
	static struct yk_task tasks[TASKS];
	static struct yk_arrivals arrivals[TASKS];
	struct yk_edf edf;
	yk_ticks begun;

	for (uint32_t n = 0; n < TASKS; n++)
		defs[n] = (struct yk_task_def){ .period = 1000, .deadline = 1000,
						.arrivals = &arrivals[n] };
	yk_edf_begin(&edf, defs, tasks, TASKS, 0);
	yk_edf_arrive(&defs[TASKS - 1], 1);
	differ(sample);
	begun = yk_now();
	yk_edf_arrived(&edf);
	scans += yk_now() - begun;
}

static void pass(uint32_t sample)
{
	yk_ticks begun, alone;

	differ(sample);
	alone = loop();
	begun = yk_now();
	yk_port_alarm_now();
	count_down(ROUNDS);
	passes += yk_now() - begun - alone;
}

static void say(const char *what, yk_ticks ticks)
{
	yk_console_text(what);
	yk_console_byte(' ');
	yk_console_decimal((uint32_t)ticks);
	yk_console_byte('\n');
}

bool yk_background(void)
{
	static uint32_t samples;

	if (yk_now() < yk_epoch())
		return true;
	if (samples == SAMPLES) {
		say("handlers", handlers);
		say("scans", scans);
		say("passes", passes);
		yk_port_exit(handled == SAMPLES && jobs == 2 * SAMPLES ? 0 : 1);
	}
	scan(samples);
	pass(samples);
	/* Here it is no handler that arrives, and none interrupts. */
	yk_arrive(0);
	while (jobs < 2 * (samples + 1))
		;
	samples++;
	return true;
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	sources_start();
	yk_port_attach(0, SOURCE, handle);
	yk_run();
}
