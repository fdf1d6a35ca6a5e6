/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * QEMU's RISC-V machine `virt`: RV32IMAC, its clock 10 MHz.
 *
 * Clock:  mtime, 64 bits.
 * Alarm:  the software interrupt. The timer's makes it pending, and handlers do.
 * Guard:  in the timer's interrupt, which comes each 50 ms at least.
 * Lines:  any source of the PLIC.
 * Serial: a 16550 on the PCI bus, which board.toml puts there, 9600 baud.
 */
#include "../../kernel/port.h"

#define WORD(address) (*(volatile uint32_t *)(address))
#define ALARM_PENDING WORD(0x02000000)
#define TIMER(half) WORD(0x02004000 + (half) * 4)
#define CLOCK(half) WORD(0x0200bff8 + (half) * 4)
#define PLIC_PRIORITY(source) WORD(0x0c000000 + (source) * 4)
#define PLIC_ENABLE(source) WORD(0x0c002000 + (source) / 32 * 4)
/* Reads: which source interrupts? Writes: its handler has ended. */
#define PLIC_CLAIM WORD(0x0c200004)
#define UART(offset) (*(volatile uint8_t *)(0x10000000 + (offset)))

#define PCI(offset) WORD(0x30008000 + (offset))
#define SERIAL(offset) (*(volatile uint8_t *)(0x03001000 + (offset)))

enum { LOW, HIGH, DATA = 0, STATUS = 5, HAS_COME = 1, HAS_ROOM = 0x20 };
/* Of the 16550, too. */
enum { INTERRUPTS = 1, MODE = 3, FOR_BYTES = 1, FOR_ROOM = 2 };
/* The bus has four interrupts, 32 and those after it. The device has the first of slot 1. */
enum { SERIAL_SOURCE = 32 + 1 };
/* The alarm is set in pieces of so many ticks; the guard looks so often. */
enum { FARTHEST = 500000, SOURCES = 96 };

/* Of start.S, and for it. */
void yk_port_tick(void);
void yk_port_external(void);
extern const uint8_t yk_port_slept[];

const uint32_t yk_port_spin_ticks = 16;

static void (*handlers[SOURCES])(void);
static uint8_t source_of[YK_MAX_LINES];
/* How often the timer interrupted. It wraps. */
static volatile uint32_t expired;
/* The background's stack while it looks and sleeps, else 0. */
volatile uint32_t *volatile yk_port_sleeper;

yk_ticks yk_port_now(void)
{
	uint32_t high, low;

	do {
		high = CLOCK(HIGH);
		low = CLOCK(LOW);
	} while (high != CLOCK(HIGH));
	return (yk_ticks)high << 32 | low;
}

static void set_timer(yk_ticks at)
{
	/* In this order it is never earlier than the old and the new. */
	TIMER(LOW) = 0xffffffff;
	TIMER(HIGH) = (uint32_t)(at >> 32);
	TIMER(LOW) = (uint32_t)at;
}

void yk_port_tick(void)
{
	set_timer(yk_port_now() + FARTHEST);
	expired++;
	ALARM_PENDING = 1;
	yk_guard();
}

void yk_port_external(void)
{
	uint32_t source = PLIC_CLAIM;

	/* 0: it was masked just before. */
	if (source) {
		handlers[source]();
		PLIC_CLAIM = source;
	}
}

bool yk_port_alarm(yk_ticks at)
{
	uint32_t seen;
	bool is_ahead;

	/* The timer is set in two halves. If it interrupts between them, they are not of one time. */
	do {
		yk_ticks now = yk_port_now();

		seen = expired;
		is_ahead = at > now;
		/* Not ahead: it is the guard's. */
		set_timer(is_ahead && at - now < FARTHEST ? at : now + FARTHEST);
	} while (seen != expired);
	return is_ahead;
}

void yk_port_alarm_now(void)
{
	ALARM_PENDING = 1;
}

void yk_port_wake(void)
{
	yk_woken = 1;
	/* The interrupt that came first has put its frame below; the address is the last word but two. */
	if (yk_port_sleeper)
		yk_port_sleeper[-3] = (uint32_t)yk_port_slept;
}

/* Not by PLIC_ENABLE: the PLIC ignores the end of a handler whose source is not enabled. */
void yk_port_mask(uint32_t line)
{
	PLIC_PRIORITY(source_of[line]) = 0;
}

void yk_port_unmask(uint32_t line)
{
	PLIC_PRIORITY(source_of[line]) = 1;
}

void yk_port_attach(uint32_t line, uint32_t source, void (*handler)(void))
{
	source_of[line] = (uint8_t)source;
	handlers[source] = handler;
	PLIC_ENABLE(source) |= (uint32_t)1 << source % 32;
	PLIC_PRIORITY(source) = 1;
}

void yk_port_start(void)
{
	set_timer(YK_NEVER);
	CLOCK(HIGH) = (uint32_t)((yk_ticks)YK_CLOCK_BEGIN >> 32);
	CLOCK(LOW) = (uint32_t)YK_CLOCK_BEGIN;
	/* Software, timer, external: start.S makes the levels. */
	__asm__ volatile("csrs mie, %0" : : "r"(0x888));
}

bool yk_port_put(uint8_t byte)
{
	if (!(UART(STATUS) & HAS_ROOM))
		return false;
	UART(DATA) = byte;
	return true;
}

static void (*serial_handler)(void);

/* Where a byte has come meanwhile, QEMU's PLIC needs an edge to tell it. */
static void serial_interrupts(void)
{
	uint8_t interrupts;

	serial_handler();
	interrupts = SERIAL(INTERRUPTS);
	SERIAL(INTERRUPTS) = 0;
	SERIAL(INTERRUPTS) = interrupts;
}

void yk_port_serial_start(uint32_t line, void (*handler)(void))
{
	enum { COMMAND = 4, FIRST_PLACE = 16, AT = 0x1000, HEARS_PORTS = 1 };
	enum { EIGHT_BITS = 3, SETS_DIVIDER = 0x80, BY = 115200 / 9600 };

	PCI(FIRST_PLACE) = AT;
	PCI(COMMAND) = HEARS_PORTS;
	serial_handler = handler;
	yk_port_attach(line, SERIAL_SOURCE, serial_interrupts);
	SERIAL(MODE) = SETS_DIVIDER;
	SERIAL(DATA) = BY;
	SERIAL(INTERRUPTS) = 0;
	SERIAL(MODE) = EIGHT_BITS;
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

/* As yk_port_switch() keeps them: the second word is where it returns to. */
void *yk_port_stack_for(uint32_t *top, void (*begin)(void))
{
	enum { KEPT = 28, BOUNDARY = 16 };

	top -= (uintptr_t)top % BOUNDARY / sizeof *top + KEPT;
	top[1] = (uint32_t)begin;
	return top;
}

/* fence.i, which compilers know by a name that older ones refuse. */
void yk_port_new_code(void)
{
	__asm__ volatile(".word 0x0000100f" ::: "memory");
}

_Noreturn void yk_port_exit(int code)
{
	WORD(0x00100000) = code ? (uint32_t)code << 16 | 0x3333 : 0x5555;
	for (;;)
		;
}
