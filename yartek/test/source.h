/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Interrupts at any instant. Each test that includes it has a function `handle`, which is called by
 * the interrupt, and calls provoke() where it wants one at once. A timer interrupts by itself, too,
 * if the board has one left.
 *
 * NAME/board.h has for the board NAME:
 *   SOURCE, OTHER_SOURCE   of interrupts that the kernel does not use
 *   sources_start          to be called before they are attached
 *   source_now, other_now  it interrupts right here
 *   source_quiet, other_quiet
 *                          it no longer does
 *   source_again_ns        nor does it now, but after that time. Without a timer: at once if the
 *                          time is less than 4000 ns, else not before source_now()
 *   INSTRUCTIONS_A_TICK    of the clock: not more fit into one
 *   count_down             a loop of two instructions a round
 *   REFUSED_INSTRUCTION, MASKING_INSTRUCTION
 *                          that the processor refuses; that masks interrupts
 */
#ifndef SOURCE_H
#define SOURCE_H

#include "yartek.h"

#include "board.h"
#include "port.h"

static void handle(void);

static uint32_t random_up_to(uint32_t most)
{
	static uint32_t state = 1;

	/* Marsaglia, "Xorshift RNGs", 2003. */
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % (most + 1);
}

enum { SHORT_NS = 4000, LONG_NS = 1600000 };

static void YK_HANDLER interrupted(void)
{
	source_again_ns(random_up_to(9) ? LONG_NS + random_up_to(2 * LONG_NS) : SHORT_NS);
	handle();
}

static void provoke(void)
{
	source_now();
}

static void attach(uint32_t line)
{
	sources_start();
	yk_port_attach(line, SOURCE, interrupted);
	source_again_ns(LONG_NS);
}

#endif
