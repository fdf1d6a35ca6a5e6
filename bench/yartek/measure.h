/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What takes how many instructions on mps2-an385: the part that ours and FreeRTOS share. For RTIC
 * rtic/src/measure.rs does the same in Rust.
 *
 * Problem:  three systems are to be measured by the same clock, from the same instant.
 * Approach: the dual timer is the trigger and the clock. It counts down from SPAN and begins again,
 *           so that one reading of 32 bits says how long ago it expired. Where the background makes
 *           the interrupt pending instead, it starts the timer by the store before.
 *
 * QEMU lets an instruction take 1,024 ns (-icount shift=10), and the timer counts each 40 ns: 25.6
 * ticks an instruction. A sample is rounded to instructions, so none is lost or gained.
 *
 * A periodic task begins each round, and says which trigger comes in it: at most one. With SMALL
 * nothing is measured: for sizes.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#define WORD(address) (*(volatile uint32_t *)(address))
#define DUAL_LOAD WORD(0x40002000)
#define DUAL_VALUE WORD(0x40002004)
#define DUAL_CONTROL WORD(0x40002008)
#define DUAL_CLEAR WORD(0x4000200c)
#define NVIC_PEND WORD(0xe000e200)

/* DUAL's is the timer's, WATCHED is made pending only. */
enum { DUAL_IRQ = 10, WATCHED_IRQ = 20 };
/* It runs, in 32 bits, and begins again; it interrupts, too. */
enum { DUAL_COUNTS = 0xc2, DUAL_INTERRUPTS = 0xe2 };
/* A round takes 20 ms, and an interrupt of the timer falls 12 ms after its begin. */
enum { SPAN = 300000, ROUND_MS = 20 };

/* How long ago the trigger came, in ticks, if the timer says `value`. */
static inline uint32_t since(uint32_t value)
{
	return SPAN - value;
}

#ifdef SMALL

static volatile uint32_t last;

static inline void keep(uint32_t ticks)
{
	last = ticks;
}

static inline void begin_round(uint32_t ticks)
{
	last = ticks;
}

static inline bool trigger(void)
{
	return false;
}

static inline void start(void)
{
	DUAL_LOAD = SPAN;
	DUAL_CONTROL = DUAL_INTERRUPTS;
}

#else

#define UART_DATA WORD(0x40004000)
#define UART_STATE WORD(0x40004004)
#define UART_CONTROL WORD(0x40004008)
#define UART_DIVIDER WORD(0x40004010)

enum { SAMPLES = 1024 };
/*
 * From the start of the round to the periodic task; from the timer's interrupt to the task that it
 * is deferred to, with the CPU asleep; the same from a pending bit that the background sets; from
 * there to the first statement of a handler.
 */
enum phase { PERIODIC, ASLEEP, PENDING, HANDLER, PHASES };

static struct {
	const char *name;
	uint32_t samples;
	uint32_t least;
	uint32_t sum;
	uint32_t most;
} measured[PHASES] = {
	{ .name = "periodic" },
	{ .name = "asleep" },
	{ .name = "pending" },
	{ .name = "handler" },
};
static volatile enum phase phase;
/* The background has to trigger. */
static volatile bool is_due;

static inline void start(void)
{
}

static void keep(uint32_t ticks)
{
	/* The store that made the interrupt pending comes after that to the timer. */
	uint32_t triggered = phase == PENDING || phase == HANDLER;
	uint32_t taken = (ticks * 5 + 64) / 128 - triggered;

	if (!measured[phase].samples || taken < measured[phase].least)
		measured[phase].least = taken;
	if (taken > measured[phase].most)
		measured[phase].most = taken;
	measured[phase].sum += taken;
	if (++measured[phase].samples == SAMPLES)
		phase++;
}

static void put(char byte)
{
	while (UART_STATE & 1)
		;
	UART_DATA = (uint8_t)byte;
}

static void put_number(uint32_t number)
{
	if (number >= 10)
		put_number(number / 10);
	put((char)('0' + number % 10));
}

/* `m NAME SAMPLES LEAST SUM MOST` each; then leaves QEMU by semihosting (SYS_EXIT, no error). */
static void end(void)
{
	UART_DIVIDER = 16;
	UART_CONTROL = 1;
	for (uint32_t n = 0; n < PHASES; n++) {
		const uint32_t numbers[] = { measured[n].samples, measured[n].least,
					     measured[n].sum, measured[n].most };

		put('m');
		put(' ');
		for (const char *at = measured[n].name; *at; at++)
			put(*at);
		for (uint32_t k = 0; k < 4; k++) {
			put(' ');
			put_number(numbers[k]);
		}
		put('\n');
	}
	__asm__ volatile("mov r0, %0\n\tmov r1, %1\n\tbkpt 0xab"
			 :
			 : "r"(0x18), "r"(0x20026)
			 : "r0", "r1", "memory");
}

/* The periodic task's: the round began so many ticks ago. */
static void begin_round(uint32_t ticks)
{
	switch (phase) {
	case PERIODIC:
		keep(ticks);
		break;
	case ASLEEP:
		DUAL_LOAD = SPAN;
		DUAL_CONTROL = DUAL_INTERRUPTS;
		break;
	case PENDING:
	case HANDLER:
		DUAL_CONTROL = DUAL_COUNTS;
		is_due = true;
		break;
	default:
		end();
	}
}

/* The background's. `false`: nothing was to be done. */
static inline bool trigger(void)
{
	uint32_t bit = (uint32_t)1 << (phase == HANDLER ? WATCHED_IRQ : DUAL_IRQ);

	if (!is_due)
		return false;
	is_due = false;
	__asm__ volatile("str %0, [%1]\n\tstr %2, [%3]"
			 :
			 : "r"(SPAN), "r"(&DUAL_LOAD), "r"(bit), "r"(&NVIC_PEND)
			 : "memory");
	return true;
}

#endif
#endif
