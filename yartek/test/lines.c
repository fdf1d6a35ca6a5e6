/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two lines raised at random instants, under real-time load, by the table of tests/boards.rs.
 * RAISES says how many. Prints what was raised and served, then `good` if nothing was lost, doubled
 * or out of order.
 *
 * Line 0 is bounded by `most`, and storms now and then. Each third raise of it raises line 1, too.
 */
#include "yartek.h"

#include "board.h"
#include "port.h"
#include "console.h"
#include "trace.h"

/* After the last raise all is served in much fewer rounds of the background. */
enum { LINES = 2, LAST_ROUNDS = 10000, PLACES = 4096 };

static uint32_t raised[LINES];
static uint32_t served[LINES];
/* Of handlers: which line came into the queue, in that order. */
static uint8_t came[PLACES];
static volatile uint32_t came_count;
static uint32_t went_count;
static uint32_t passed;
static bool is_wrong;

static uint32_t random_up_to(uint32_t most)
{
	static uint32_t state = 1;

	/* Marsaglia, "Xorshift RNGs", 2003. */
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % (most + 1);
}

static void raise(uint32_t line)
{
	if (yk_table.lines[line].queued == yk_table.lines[line].taken)
		came[came_count++ % PLACES] = (uint8_t)line;
	raised[line]++;
	yk_raise(line);
}

/* Storms now and then: it interrupts again at once, or nearly so. */
static void YK_HANDLER handle(void)
{
	if (raised[0] >= RAISES)
		source_quiet();
	else
		source_again_ns(random_up_to(9) ? 4000 + random_up_to(120000) : 2400);
	raise(0);
	if (raised[0] % 3 == 0)
		other_now();
}

static void YK_HANDLER handle_other(void)
{
	other_quiet();
	raise(1);
}

static void attach(void)
{
	sources_start();
	yk_port_attach(0, SOURCE, handle);
	yk_port_attach(1, OTHER_SOURCE, handle_other);
	source_again_ns(40000);
}

/* Interrupts right here. */
static void provoke(void)
{
	if (raised[0] < RAISES)
		source_now();
}

static void serve(uint32_t line, uint32_t raises)
{
	served[line] += raises;
	is_wrong |= !raises;
	/* A place whose raises the service before has served goes without a service. */
	for (; went_count != came_count && came[went_count % PLACES] != line; went_count++)
		passed++;
	is_wrong |= went_count == came_count;
	went_count++;
}

void serve_0(uint32_t raises);
void serve_1(uint32_t raises);
void work(const struct yk_job *job);

void serve_0(uint32_t raises)
{
	serve(0, raises);
	/* Of any length, so that raises come meanwhile. */
	for (uint32_t n = random_up_to(300); n; n--)
		provoke();
}

void serve_1(uint32_t raises)
{
	serve(1, raises);
}

/* A job that keeps the CPU for its budget. */
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
	static uint32_t last_rounds;
	bool is_done = raised[0] >= RAISES;

	for (uint32_t n = random_up_to(50); n; n--)
		__asm__ volatile("");
	provoke();
	for (uint32_t line = 0; line < LINES; line++)
		is_done &= raised[line] == served[line] && raised[line] == yk_table.lines[line].raised;
	last_rounds += raised[0] >= RAISES;
	is_wrong |= last_rounds > LAST_ROUNDS;
	if (!is_done && last_rounds <= LAST_ROUNDS)
		return random_up_to(1);
	put("raised ", raised[0]);
	put("raised ", raised[1]);
	put("passed ", passed);
	put("masked ", yk_table.lines[0].masked);
	put("jobs ", yk_stats(0)->ended);
	put("kiloticks ", (uint32_t)((yk_now() - yk_epoch()) >> 10));
	is_wrong |= yk_table.lines[0].masked != yk_table.lines[0].unmasked;
	yk_console_text(is_wrong ? "wrong\n" : "good\n");
	yk_port_exit(is_wrong);
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	attach();
	yk_run();
}
