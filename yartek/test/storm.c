/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Jobs of a known number of instructions, and with STORM an interrupt as often as it may from the
 * begin of each: again at once on the ColdFire, each 100 instructions on the Cortex-M3. It ends
 * after some raises, else the background would serve them for ever.
 */
#include "port.h"
#include "traced.h"

enum { RAISES_A_JOB = 40 };

void work(const struct yk_job *job);
void serve(uint32_t raises);

#ifdef __mcoldfire__

#define UART(offset) (*(volatile uint8_t *)(0xfc064000 + (offset)))
enum { COMMAND = 8, INTERRUPTS = 0x14, SOURCE = 27, INSTRUCTIONS_A_TICK = 24 };

static void attach(void)
{
	UART(COMMAND) = 4;
}

static void storm(bool is_on)
{
	UART(INTERRUPTS) = is_on;
}

static void done(void)
{
}

#else

#define DUAL_TIMER(offset) (*(volatile uint32_t *)(0x40002000 + (offset)))
enum { LOAD = 0, CONTROL = 8, CLEAR = 12, SOURCE = 10, INSTRUCTIONS_A_TICK = 1, GAP = 80 };

static void attach(void)
{
	DUAL_TIMER(LOAD) = GAP;
}

static void storm(bool is_on)
{
	DUAL_TIMER(CONTROL) = is_on ? 0xe2 : 0;
}

static void done(void)
{
	DUAL_TIMER(CLEAR) = 1;
}

#endif

static volatile uint32_t left;

static void YK_HANDLER handle(void)
{
	done();
	yk_raise(0);
	if (!--left)
		storm(false);
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
	storm(true);
#endif
#ifdef __mcoldfire__
	__asm__ volatile("1: subq.l #1, %0\n\tbne.s 1b" : "+d"(rounds) : : "cc");
#else
	__asm__ volatile("1: subs %0, #1\n\tbne 1b" : "+l"(rounds) : : "cc");
#endif
}

int main(void)
{
	attach();
	yk_port_attach(0, SOURCE, handle);
	yk_run();
}
