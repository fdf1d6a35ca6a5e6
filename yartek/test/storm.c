/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Jobs of a known number of instructions, and with STORM an interrupt as often as it may from the
 * begin of each: at once after the one before, or each 100 instructions or so where a timer makes
 * it. It ends after some raises, else the background would serve them for ever.
 */
#include "board.h"
#include "port.h"
#include "traced.h"

enum { RAISES_A_JOB = 40, GAP_NS = 2400 };

void work(const struct yk_job *job);
void serve(uint32_t raises);

static volatile uint32_t left;

static void YK_HANDLER handle(void)
{
	if (--left)
		source_again_ns(GAP_NS);
	else
		source_quiet();
	yk_raise(0);
}

void serve(uint32_t raises)
{
	(void)raises;
}

/* Two instructions a round, so it takes less than its budget. */
void work(const struct yk_job *job)
{
	uint32_t ticks = (uint32_t)yk_table.task_defs[job->task].budget - yk_port_spin_ticks;
	uint32_t rounds = ticks / 2 * INSTRUCTIONS_A_TICK;

#ifdef STORM
	left = RAISES_A_JOB;
	source_again_ns(GAP_NS);
#endif
	count_down(rounds);
}

int main(void)
{
	sources_start();
	yk_port_attach(0, SOURCE, handle);
	yk_run();
}
