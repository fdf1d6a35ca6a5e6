/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How long raises wait for their service, under the jobs of the table, UNTIL ticks after the epoch.
 * Jobs bring them about at random, each 50 us or less.
 */
#include "source.h"

#include "console.h"
#include "trace.h"

/* More than come while the background waits. */
enum { PLACES = 32768, SOURCE_LINE = 0 };

/* Of handlers: when each raise came. */
static yk_ticks came[PLACES];
static volatile uint32_t raised;
static uint32_t served;
static yk_ticks longest;
static bool is_over;

static void handle(void)
{
	came[raised % PLACES] = yk_now();
	raised++;
	yk_raise(SOURCE_LINE);
}

void serve(uint32_t raises);
void serve(uint32_t raises)
{
	yk_ticks now = yk_now();

	is_over |= raised - served > PLACES;
	for (; raises; raises--, served++)
		if (now - came[served % PLACES] > longest)
			longest = now - came[served % PLACES];
}

/* A job that keeps the CPU for its budget. */
void work(const struct yk_job *job);
void work(const struct yk_job *job)
{
	yk_ticks budget = yk_table.task_defs[job->task].budget - yk_port_spin_ticks;

	while (yk_now() - job->begun < budget)
		if (!random_up_to(15))
			provoke();
}

static void put(const char *name, uint32_t number)
{
	yk_console_text(name);
	yk_console_decimal(number);
	yk_console_byte('\n');
}

bool yk_background(void)
{
	if (yk_now() < yk_epoch() + UNTIL)
		return false;
	put("served ", served);
	put("longest ", (uint32_t)longest);
	yk_port_exit(is_over);
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	attach(SOURCE_LINE);
	yk_run();
}
