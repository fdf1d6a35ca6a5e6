/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * This machine: the kernel is a process, and its time virtual. For tests, sanitizers and debuggers:
 * it needs no emulator, and two runs print the same.
 *
 * Clock:  YK_HOST_HZ. It goes on by a tick where it is read and where an interrupt is taken, and to
 *         the next event where the background sleeps. A loop without these never ends.
 * Levels: interrupts are taken where the clock is read, and where they arise; nowhere else.
 * Lines:  sources that host.h makes interrupt.
 * Serial: standard input and output, 960 bytes a second. The other end waits while we send; for its
 *         next byte, or its end, all time stands still. The console is standard error.
 *
 * YARTEK_UNTIL=TICKS in the environment ends the trace. Not here: traps and the watches on stacks
 * (those of threads are the port's, and long), and programs from the disk.
 */
#include "../../kernel/port.h"
#include "host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef YK_HOST_HZ
#define YK_HOST_HZ 1000000
#endif

enum { SOURCES = 32, SERIAL = SOURCES, GUARD_TICKS = YK_HOST_HZ / 20, BYTE_TICKS = YK_HOST_HZ / 960,
       STACKS = 16, STACK_BYTES = 1 << 18 };

const uint32_t yk_port_spin_ticks = 2;

static yk_ticks ticks = YK_CLOCK_BEGIN;
static enum level { BACKGROUND, ALARM, LINES, GUARD } level;
/* When they interrupt. */
static yk_ticks alarm_at = YK_NEVER, guard_at = YK_NEVER;

static struct source {
	void (*handler)(void);
	yk_ticks at;
	bool is_masked;
} sources[SOURCES + 1];
static uint32_t source_of[YK_MAX_LINES];

/* The serial line: when the next byte comes, and when there is room for the next one. */
static yk_ticks comes_at = YK_NEVER, room_at;
static bool has_come, wants_room;
static uint8_t came;

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "\nhost: %s\n", why);
	exit(2);
}

/* A byte comes, if there is one. */
static void hear(void)
{
	if (!has_come && !wants_room && ticks >= comes_at) {
		has_come = read(STDIN_FILENO, &came, 1) == 1;
		comes_at = has_come ? ticks + BYTE_TICKS : YK_NEVER;
	}
	sources[SERIAL].at = has_come ? ticks : wants_room ? room_at : comes_at;
}

/* The source that interrupts. NULL: none does. */
static struct source *due(void)
{
	for (struct source *source = sources; source <= sources + SERIAL; source++)
		if (source->handler && !source->is_masked && ticks >= source->at)
			return source;
	return NULL;
}

static void enter(enum level to, void (*handler)(void))
{
	enum level from = level;

	ticks++;
	level = to;
	handler();
	level = from;
}

/* Takes all that interrupts the present level. */
static void take(void)
{
	for (;;) {
		struct source *source;

		hear();
		if (level < GUARD && ticks >= guard_at) {
			guard_at = ticks + GUARD_TICKS;
			enter(GUARD, yk_guard);
		} else if (level < LINES && (source = due()) != NULL) {
			source->at = YK_NEVER;
			enter(LINES, source->handler);
		} else if (level < ALARM && ticks >= alarm_at) {
			alarm_at = YK_NEVER;
			enter(ALARM, yk_alarm);
		} else {
			return;
		}
	}
}

/* Interrupts come between the reading and the return: the time may be over by then. */
yk_ticks yk_port_now(void)
{
	yk_ticks now = ++ticks;

	take();
	return now;
}

bool yk_port_alarm(yk_ticks at)
{
	if (at <= yk_port_now())
		return false;
	alarm_at = at;
	return true;
}

void yk_port_alarm_now(void)
{
	alarm_at = 0;
	take();
}

void yk_port_wake(void)
{
	yk_woken = 1;
}

void yk_port_sleep(void)
{
	while (!yk_woken) {
		yk_ticks next = alarm_at < guard_at ? alarm_at : guard_at;

		for (uint32_t n = 0; n <= SERIAL; n++)
			if (sources[n].handler && !sources[n].is_masked && sources[n].at < next)
				next = sources[n].at;
		if (next == YK_NEVER)
			die("nothing is left that could wake the background");
		if (next > ticks)
			ticks = next;
		take();
	}
}

void yk_port_mask(uint32_t line)
{
	sources[source_of[line]].is_masked = true;
}

void yk_port_unmask(uint32_t line)
{
	sources[source_of[line]].is_masked = false;
	take();
}

void yk_port_attach(uint32_t line, uint32_t source, void (*handler)(void))
{
	if (source > SERIAL)
		die("sources have the numbers 0 to 31");
	source_of[line] = source;
	sources[source] = (struct source){ .handler = handler, .at = YK_NEVER };
}

void yk_host_interrupt(uint32_t source, yk_ticks after)
{
	if (source >= SOURCES || !sources[source].handler)
		die("an interrupt of a source that is not attached");
	sources[source].at = after < YK_NEVER - ticks ? ticks + after : YK_NEVER;
	take();
}

void yk_port_start(void)
{
	/* modules/trace.c. */
	extern yk_ticks yk_trace_until __attribute__((weak));
	const char *until = getenv("YARTEK_UNTIL");
	char more;

	if (yk_is_guarded())
		guard_at = ticks + GUARD_TICKS;
	if (until && &yk_trace_until && sscanf(until, "%" SCNu64 "%c", &yk_trace_until, &more) != 1)
		die("YARTEK_UNTIL is no number of ticks");
}

bool yk_port_put(uint8_t byte)
{
	return putc(byte, stderr) != EOF;
}

void yk_port_serial_start(uint32_t line, void (*handler)(void))
{
	yk_port_attach(line, SERIAL, handler);
	comes_at = ticks + BYTE_TICKS;
}

bool yk_port_serial_take(uint8_t *byte)
{
	if (!has_come)
		return false;
	has_come = false;
	*byte = came;
	return true;
}

bool yk_port_serial_has_room(void)
{
	return ticks >= room_at;
}

void yk_port_serial_give(uint8_t byte)
{
	if (write(STDOUT_FILENO, &byte, 1) != 1)
		die("the serial line cannot be written: standard output");
	room_at = ticks + BYTE_TICKS;
	wants_room = true;
}

void yk_port_serial_rest(void)
{
	wants_room = false;
}

void yk_port_serial_ask(void)
{
	wants_room = true;
	take();
}

/* For threads. The stacks that an application gives are too short for this processor. */
static struct stack {
	const uint32_t *of;
	ucontext_t context;
	uint8_t bytes[STACK_BYTES];
} stacks[STACKS];

static __attribute__((noinline)) struct stack *stack_of(const uint32_t *top)
{
	for (struct stack *stack = stacks; stack < stacks + STACKS; stack++) {
		if (!stack->of || stack->of == top) {
			stack->of = top;
			return stack;
		}
	}
	die("more than 16 stacks of threads");
}

void *yk_port_stack_for(uint32_t *top, void (*begin)(void))
{
	struct stack *stack = stack_of(top);

	getcontext(&stack->context);
	stack->context.uc_stack.ss_sp = stack->bytes;
	stack->context.uc_stack.ss_size = sizeof stack->bytes;
	makecontext(&stack->context, begin, 0);
	return &stack->context;
}

void yk_port_switch(void **keep, void *pointer)
{
	static ucontext_t first, *running = &first;
	ucontext_t *from = running;

	*keep = from;
	running = pointer;
	if (swapcontext(from, running))
		die("no switch of threads");
}

_Noreturn void yk_port_exit(int code)
{
	exit(code);
}
