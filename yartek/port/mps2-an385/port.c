/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * MPS2 with an AN385 image: Cortex-M3, 25 MHz.
 *
 * Clock:  TIMER0, 32 bits, and a count of its wraps (every 172 s).
 * Alarm:  TIMER1.
 * Guard:  SysTick, only where a task asks for it.
 * Lines:  any interrupt number of the NVIC.
 * Serial: UART1, 9600 baud.
 */
#include "../../kernel/port.h"

struct timer {
	uint32_t control;
	uint32_t value;
	uint32_t reload;
	/* Reads: does it interrupt? Writes of 1: it no longer does. */
	uint32_t interrupt;
};
enum { TIMER_RUNS = 1, TIMER_INTERRUPTS = 8 };

#define WORD(address) (*(volatile uint32_t *)(address))
#define BYTE(address) (*(volatile uint8_t *)(address))
#define TIMER0 ((volatile struct timer *)0x40000000)
#define TIMER1 ((volatile struct timer *)0x40001000)
#define UART_DATA WORD(0x40004000)
#define UART_STATE WORD(0x40004004)
#define UART_CONTROL WORD(0x40004008)
#define UART_DIVIDER WORD(0x40004010)
#define SERIAL(offset) WORD(0x40005000 + (offset))
#define NVIC_ENABLE(n) WORD(0xe000e100 + (n) / 32 * 4)
#define NVIC_DISABLE(n) WORD(0xe000e180 + (n) / 32 * 4)
#define NVIC_PEND(n) WORD(0xe000e200 + (n) / 32 * 4)
#define NVIC_PRIORITY(n) BYTE(0xe000e400 + (n))
#define SYSTICK_CONTROL WORD(0xe000e010)
#define SYSTICK_RELOAD WORD(0xe000e014)
#define SYSTICK_VALUE WORD(0xe000e018)
#define SYSTICK_PRIORITY BYTE(0xe000ed23)
#define VECTORS_AT WORD(0xe000ed08)

/* Of UART1. STATE: full, of what is sent and of what has come. */
enum { DATA = 0, STATE = 4, CONTROL = 8, INTERRUPT = 12, DIVIDER = 16, FULL_OUT = 1, FULL_IN = 2 };
enum { SERIAL_OUT = 1, SERIAL_IN = 2, CAME_IRQ = 2, SENT_IRQ = 3 };

enum { CLOCK_IRQ = 8, ALARM_IRQ = 9, IRQS = 32, EXCEPTIONS = 16 };
/* The least number is the most urgent. Three bits count. */
enum { URGENT = 0, GUARD = 0x20, LINES = 0x80, ALARM = 0xe0 };
/* The alarm is set in pieces of so many ticks; the guard looks so often. */
enum { FARTHEST = 0x7fffffff, GUARD_TICKS = 1000000 };

/* start.S */
extern const uint32_t yk_port_rom_vectors[EXCEPTIONS];
extern const uint8_t yk_port_slept[];

const uint32_t yk_port_spin_ticks = 40;

/* The processor wants them on such a boundary. */
static uint32_t vectors[EXCEPTIONS + IRQS] __attribute__((aligned(256)));
static uint8_t source_of[YK_MAX_LINES];
static volatile uint32_t wraps;
/*
 * Of the alarm's level: the least ticks from a look at the clock to the set of the alarm and the
 * next look. How many depends on the processor. No handler is as short as half of it.
 */
static uint32_t shortest = ~(uint32_t)0;
/* The background's stack while it looks and sleeps, else 0. */
volatile uint32_t *volatile yk_port_sleeper;

static uint32_t bit(uint32_t irq)
{
	return (uint32_t)1 << irq % 32;
}

static void count_wrap(void)
{
	wraps++;
	TIMER0->interrupt = 1;
}

static void alarm(void)
{
	TIMER1->interrupt = 1;
	yk_alarm();
}

yk_ticks yk_port_now(void)
{
	uint32_t high, low;

	/* It counts down, and interrupts at 0. Right after that, the interrupt may not be taken yet. */
	do {
		high = wraps;
		low = -TIMER0->value;
	} while (TIMER0->interrupt || high != wraps);
	return (yk_ticks)high << 32 | low;
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
		TIMER1->value = at - now > FARTHEST ? FARTHEST : (uint32_t)(at - now);
		passed = -TIMER0->value - (uint32_t)now;
		is_shorter = passed < shortest;
		if (is_shorter)
			shortest = passed;
	} while (is_shorter || passed > shortest + shortest / 2 + 1);
	return true;
}

void yk_port_alarm_now(void)
{
	NVIC_PEND(ALARM_IRQ) = bit(ALARM_IRQ);
}

void yk_port_wake(void)
{
	volatile uint32_t *stack = yk_port_sleeper;

	yk_woken = 1;
	/* The interrupt that came first has put eight words below it; the address is the seventh. */
	if (stack)
		stack[-2] = (uint32_t)yk_port_slept;
}

void yk_port_mask(uint32_t line)
{
	NVIC_DISABLE(source_of[line]) = bit(source_of[line]);
}

void yk_port_unmask(uint32_t line)
{
	NVIC_ENABLE(source_of[line]) = bit(source_of[line]);
}

static void serve_irq(uint32_t irq, uint8_t priority, void (*handler)(void))
{
	vectors[EXCEPTIONS + irq] = (uint32_t)handler;
	NVIC_PRIORITY(irq) = priority;
	NVIC_ENABLE(irq) = bit(irq);
}

static void use_vectors(void)
{
	if (vectors[0])
		return;
	for (uint32_t n = 0; n < EXCEPTIONS; n++)
		vectors[n] = yk_port_rom_vectors[n];
	VECTORS_AT = (uint32_t)vectors;
}

void yk_port_attach(uint32_t line, uint32_t source, void (*handler)(void))
{
	use_vectors();
	source_of[line] = (uint8_t)source;
	serve_irq(source, LINES, handler);
}

static void start_timer(volatile struct timer *timer)
{
	/* Sets the value, too. It must not be 0 afterwards: the timer would stop. */
	timer->reload = 0xffffffff;
	timer->control = TIMER_RUNS | TIMER_INTERRUPTS;
}

void yk_port_start(void)
{
	use_vectors();
	if (yk_is_guarded()) {
		vectors[15] = (uint32_t)yk_guard;
		SYSTICK_PRIORITY = GUARD;
		SYSTICK_RELOAD = GUARD_TICKS;
		SYSTICK_VALUE = 0;
		SYSTICK_CONTROL = 7;
	}
	serve_irq(CLOCK_IRQ, URGENT, count_wrap);
	serve_irq(ALARM_IRQ, ALARM, alarm);
	start_timer(TIMER0);
	if (YK_CLOCK_BEGIN) {
		wraps = (uint32_t)((yk_ticks)YK_CLOCK_BEGIN >> 32);
		TIMER0->value = -(uint32_t)YK_CLOCK_BEGIN;
	}
	start_timer(TIMER1);
}

bool yk_port_put(uint8_t byte)
{
	UART_DIVIDER = 16;
	UART_CONTROL = 1;
	if (UART_STATE & 1)
		return false;
	UART_DATA = byte;
	return true;
}

/* Both interrupts have one handler, so that masking its line masks both. */
static void sent(void)
{
	SERIAL(INTERRUPT) = SERIAL_OUT;
	yk_port_serial_ask();
}

void yk_port_serial_start(uint32_t line, void (*handler)(void))
{
	enum { EACH_INTERRUPTS = 4 };

	yk_port_attach(line, CAME_IRQ, handler);
	serve_irq(SENT_IRQ, LINES, sent);
	SERIAL(DIVIDER) = 25000000 / 9600;
	SERIAL(CONTROL) = (SERIAL_OUT | SERIAL_IN) * (1 + EACH_INTERRUPTS);
}

bool yk_port_serial_take(uint8_t *byte)
{
	SERIAL(INTERRUPT) = SERIAL_IN;
	if (!(SERIAL(STATE) & FULL_IN))
		return false;
	*byte = (uint8_t)SERIAL(DATA);
	return true;
}

bool yk_port_serial_has_room(void)
{
	return !(SERIAL(STATE) & FULL_OUT);
}

void yk_port_serial_give(uint8_t byte)
{
	SERIAL(DATA) = byte;
}

void yk_port_serial_rest(void)
{
}

void yk_port_serial_ask(void)
{
	NVIC_PEND(CAME_IRQ) = bit(CAME_IRQ);
}

/* As yk_port_switch() keeps them: the last is where it returns to. */
void *yk_port_stack_for(uint32_t *top, void (*begin)(void))
{
	enum { KEPT = 10, BOUNDARY = 8 };

	top -= (uintptr_t)top % BOUNDARY / sizeof *top;
	top[-1] = (uint32_t)begin;
	return top - KEPT;
}

void yk_port_new_code(void)
{
	__asm__ volatile("dsb\n\tisb" ::: "memory");
}
