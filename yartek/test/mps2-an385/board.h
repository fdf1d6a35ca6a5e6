/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The first dual timer counts down, 25 a microsecond. It runs at all times: a test that has
 * silenced it ends within 172 s. Any source may be made pending.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#define DUAL_TIMER(offset) (*(volatile uint32_t *)(0x40002000 + (offset)))
#define NVIC_PEND (*(volatile uint32_t *)0xe000e200)
enum { LOAD = 0, CONTROL = 8, CLEAR = 12 };
#define LATER 0xffffffff

enum { SOURCE = 10, OTHER_SOURCE = 20, INSTRUCTIONS_A_TICK = 1 };

static inline void sources_start(void)
{
	DUAL_TIMER(LOAD) = LATER;
	DUAL_TIMER(CONTROL) = 0xe2;
}

static inline void source_now(void)
{
	NVIC_PEND = 1 << SOURCE;
}

static inline void source_quiet(void)
{
	DUAL_TIMER(CLEAR) = 1;
	DUAL_TIMER(LOAD) = LATER;
}

static inline void source_again_ns(uint32_t ns)
{
	DUAL_TIMER(CLEAR) = 1;
	DUAL_TIMER(LOAD) = ns / 40;
}

static inline void other_now(void)
{
	NVIC_PEND = 1 << OTHER_SOURCE;
}

static inline void other_quiet(void)
{
}

static inline void count_down(uint32_t rounds)
{
	__asm__ volatile("1: subs %0, #1\n\tbne 1b" : "+l"(rounds) : : "cc");
}

#define REFUSED_INSTRUCTION "udf #0"
#define MASKING_INSTRUCTION "cpsid i"

#endif
