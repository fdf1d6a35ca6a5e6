/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * MCF5208EVB: ColdFire V2, 166.67 MHz, its timers 83.33 MHz / 64.
 *
 * Clock:  PIT0, 16 bits, and a sum of what its wraps are worth (50 ms each).
 * Alarm:  PIT1.
 * Guard:  in the interrupt of the wraps.
 * Lines:  any source of the interrupt controller.
 * Serial: UART1, 9600 baud.
 */
#include "../../kernel/port.h"

struct pit {
	uint16_t control;
	uint16_t modulus;
	uint16_t count;
};
enum {
	PIT_RUNS = 0x01,
	PIT_RELOADS = 0x02,
	/* Reads: does it ask for an interrupt? Writes of 1: it no longer does. */
	PIT_FLAG = 0x04,
	PIT_INTERRUPTS = 0x08,
	PIT_TAKES_MODULUS_AT_ONCE = 0x10,
	PIT_BY_64 = 6 << 8
};

#define BYTE(address) (*(volatile uint8_t *)(address))
#define PIT0 ((volatile struct pit *)0xfc080000)
#define PIT1 ((volatile struct pit *)0xfc084000)
#define UART_STATUS BYTE(0xfc060004)
#define UART_COMMAND BYTE(0xfc060008)
#define UART_DATA BYTE(0xfc06000c)
#define SERIAL(offset) BYTE(0xfc064000 + (offset))
#define INTERRUPT_MASK BYTE(0xfc04801c)
#define INTERRUPT_UNMASK BYTE(0xfc04801d)
#define INTERRUPT_LEVEL(source) BYTE(0xfc048040 + (source))

/* Of UART1, in its status, its commands and its interrupts. */
enum { MODE = 0, STATUS = 4, COMMAND = 8, DATA = 12, INTERRUPTS = 20, DIVIDER = 24 };
enum { HAS_COME = 1, HAS_ROOM = 4, HEARS_AND_SENDS = 5, FOR_ROOM = 1, FOR_BYTES = 2 };

enum { CLOCK_SOURCE = 4, ALARM_SOURCE = 5, SERIAL_SOURCE = 27, FIRST_VECTOR = 64 };
enum { ALARM = 1, LINES = 3, URGENT = 6 };
/* PIT0 counts so many steps from wrap to wrap. (QEMU's does; the manual says one more.) */
enum { WRAP = 0xffff };
enum { FARTHEST = 0xffff };

/* link.ld, start.S */
extern uint32_t yk_port_vectors[256];
extern const uint8_t yk_port_slept[];

const uint32_t yk_port_spin_ticks = 5;

static uint8_t source_of[YK_MAX_LINES];
/* What the wraps are worth. The low half is written last, and read first. */
static volatile uint32_t wrapped_high;
static volatile uint32_t wrapped_low;
/*
 * Of the alarm's level: the least ticks from a look at the clock to the set of the alarm and the
 * next look. How many depends on the processor. No handler is as short as half of it.
 */
static uint32_t shortest = ~(uint32_t)0;
/* The guard runs at the level that counts wraps. */
static volatile bool is_guarding;
/* The background's stack while it looks and sleeps, else 0. */
volatile uint32_t *volatile yk_port_sleeper;

static void count(void)
{
	uint32_t low = wrapped_low + WRAP;

	wrapped_high += low < WRAP;
	wrapped_low = low;
	PIT0->control |= PIT_FLAG;
}

static void YK_HANDLER count_wrap(void)
{
	count();
	is_guarding = true;
	yk_guard();
	is_guarding = false;
}

static void YK_HANDLER alarm(void)
{
	PIT1->control |= PIT_FLAG;
	yk_alarm();
}

yk_ticks yk_port_now(void)
{
	uint32_t high, low, left;

	/* It counts down. Right after a wrap, its interrupt may not be taken yet. */
	for (;;) {
		low = wrapped_low;
		high = wrapped_high;
		left = PIT0->count;
		if (!(PIT0->control & PIT_FLAG) && low == wrapped_low)
			return ((yk_ticks)high << 32 | low) + (WRAP - left);
		/* Nor is it before the guard returns, which may look for long. */
		if (is_guarding && PIT0->control & PIT_FLAG)
			count();
	}
}

/* The low word of the clock. At a wrap it is wrong. */
static uint32_t low_word(void)
{
	uint32_t low = wrapped_low;

	return low + (WRAP - PIT0->count);
}

bool yk_port_alarm(yk_ticks at)
{
	uint32_t passed;
	bool is_shorter;

	/* The timer counts from its set on: an interrupt before that would delay the alarm. */
	do {
		yk_ticks now = yk_port_now();

		if (at <= now)
			return false;
		PIT1->modulus = at - now > FARTHEST ? FARTHEST : (uint16_t)(at - now);
		passed = low_word() - (uint32_t)now;
		is_shorter = passed < shortest;
		if (is_shorter)
			shortest = passed;
	} while (is_shorter || passed > shortest + shortest / 2 + 1);
	return true;
}

void yk_port_alarm_now(void)
{
	PIT1->modulus = 1;
}

void yk_port_wake(void)
{
	volatile uint32_t *stack = yk_port_sleeper;

	yk_woken = 1;
	/* The interrupt that came first has put two words below it; the address is the second. */
	if (stack)
		stack[-1] = (uint32_t)yk_port_slept;
}

void yk_port_mask(uint32_t line)
{
	INTERRUPT_MASK = source_of[line];
}

void yk_port_unmask(uint32_t line)
{
	INTERRUPT_UNMASK = source_of[line];
}

static void serve_source(uint32_t source, uint8_t level, void (*handler)(void))
{
	yk_port_vectors[FIRST_VECTOR + source] = (uint32_t)handler;
	INTERRUPT_LEVEL(source) = level;
	INTERRUPT_UNMASK = (uint8_t)source;
}

void yk_port_attach(uint32_t line, uint32_t source, void (*handler)(void))
{
	source_of[line] = (uint8_t)source;
	serve_source(source, LINES, handler);
}

void yk_port_start(void)
{
	enum { CLOCK = PIT_BY_64 | PIT_TAKES_MODULUS_AT_ONCE | PIT_INTERRUPTS };

	if (YK_CLOCK_BEGIN) {
		wrapped_high = (uint32_t)((yk_ticks)YK_CLOCK_BEGIN >> 32);
		wrapped_low = (uint32_t)YK_CLOCK_BEGIN;
	}
	serve_source(CLOCK_SOURCE, URGENT, count_wrap);
	serve_source(ALARM_SOURCE, ALARM, alarm);
	/* In this order: else the first count is 0. */
	PIT0->control = CLOCK | PIT_RELOADS;
	PIT0->modulus = WRAP;
	PIT0->control = CLOCK | PIT_RELOADS | PIT_RUNS;
	PIT1->control = CLOCK;
	PIT1->modulus = FARTHEST;
	PIT1->control = CLOCK | PIT_RUNS;
}

bool yk_port_put(uint8_t byte)
{
	enum { TRANSMITS = 4 };

	UART_COMMAND = TRANSMITS;
	if (!(UART_STATUS & HAS_ROOM))
		return false;
	UART_DATA = byte;
	return true;
}

void yk_port_serial_start(uint32_t line, void (*handler)(void))
{
	enum { EIGHT_BITS_NO_PARITY = 0x13, ONE_STOP_BIT = 7, OF_BUS_CLOCK = 0xdd };
	/* Of the bus clock by 32. */
	enum { BY = 83333333 / 32 / 9600 };

	yk_port_attach(line, SERIAL_SOURCE, handler);
	SERIAL(MODE) = EIGHT_BITS_NO_PARITY;
	SERIAL(MODE) = ONE_STOP_BIT;
	SERIAL(STATUS) = OF_BUS_CLOCK;
	SERIAL(DIVIDER) = BY >> 8;
	SERIAL(DIVIDER + 4) = BY & 0xff;
	SERIAL(COMMAND) = HEARS_AND_SENDS;
	SERIAL(INTERRUPTS) = FOR_BYTES;
}

bool yk_port_serial_take(uint8_t *byte)
{
	if (!(SERIAL(STATUS) & HAS_COME))
		return false;
	*byte = SERIAL(DATA);
	return true;
}

bool yk_port_serial_has_room(void)
{
	return SERIAL(STATUS) & HAS_ROOM;
}

void yk_port_serial_give(uint8_t byte)
{
	SERIAL(DATA) = byte;
}

void yk_port_serial_rest(void)
{
	SERIAL(INTERRUPTS) = FOR_BYTES;
}

void yk_port_serial_ask(void)
{
	SERIAL(INTERRUPTS) = FOR_BYTES | FOR_ROOM;
}

/* As yk_port_switch() keeps them: above them is where it returns to. */
void *yk_port_stack_for(uint32_t *top, void (*begin)(void))
{
	enum { KEPT = 11 };

	top[-1] = (uint32_t)begin;
	return top - 1 - KEPT;
}

/* The cache is off after a reset, and stays so. */
void yk_port_new_code(void)
{
}
