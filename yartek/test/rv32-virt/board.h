/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The clock of the calendar has an alarm, in nanoseconds. The transmitter of the UART is ready at
 * all times, and so interrupts as soon as it may.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#define CALENDAR(offset) (*(volatile uint32_t *)(0x101000 + (offset)))
#define UART_INTERRUPTS (*(volatile uint8_t *)0x10000001)
enum { LOW = 0, HIGH = 4, ALARM_LOW = 8, ALARM_HIGH = 12, ENABLE = 16, FORGET = 20, CLEAR = 28 };

enum { SOURCE = 11, OTHER_SOURCE = 10, INSTRUCTIONS_A_TICK = 3 };

static inline void sources_start(void)
{
	CALENDAR(ENABLE) = 1;
}

static inline void source_now(void)
{
	/* Any time before now. */
	CALENDAR(ALARM_HIGH) = 0;
	CALENDAR(ALARM_LOW) = 0;
}

static inline void source_quiet(void)
{
	CALENDAR(FORGET) = 1;
	CALENDAR(CLEAR) = 1;
}

static inline void source_again_ns(uint32_t ns)
{
	uint64_t at;

	CALENDAR(CLEAR) = 1;
	/* Reading the low half keeps the high one. */
	at = CALENDAR(LOW);
	at = (at | (uint64_t)CALENDAR(HIGH) << 32) + ns;
	CALENDAR(ALARM_HIGH) = (uint32_t)(at >> 32);
	CALENDAR(ALARM_LOW) = (uint32_t)at;
}

static inline void other_now(void)
{
	UART_INTERRUPTS = 2;
}

static inline void other_quiet(void)
{
	UART_INTERRUPTS = 0;
}

static inline void count_down(uint32_t rounds)
{
	__asm__ volatile("1: addi %0, %0, -1\n\tbnez %0, 1b" : "+r"(rounds));
}

#define REFUSED_INSTRUCTION "unimp"
#define MASKING_INSTRUCTION "csrci mstatus, 8"

#endif
