/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Interrupts at any instant. Each test that includes it has a function `handle`, which is called by
 * the interrupt, and calls provoke() where it wants one at once. A timer interrupts by itself, too,
 * if the board has one left.
 *
 * NAME/board.h has for the board NAME:
 *   SOURCE, OTHER_SOURCE   numbers of two interrupts that the kernel does not use
 *   sources_start()        prepares both; call it before you attach them
 *   source_now(), other_now()
 *                          makes the source interrupt, right there
 *   source_quiet(), other_quiet()
 *                          makes the source stop interrupting
 *   source_again_ns(ns)    makes it stop, and interrupt again after that time. A board without a
 *                          timer interrupts at once if the time is less than 4000 ns, else not
 *                          before source_now()
 *   INSTRUCTIONS_A_TICK    no more instructions fit into a tick of the clock
 *   count_down(rounds)     is a loop of two instructions a round
 *   REFUSED_INSTRUCTION    the processor refuses it
 *   MASKING_INSTRUCTION    masks interrupts
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
