/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An interrupt at any instant. Each test that includes it has a function `handle`, which is called
 * by the interrupt, and calls provoke() where it wants one at once.
 *
 * On the Cortex-M3 a timer interrupts by itself, too. On the ColdFire both timers are the kernel's:
 * there the transmitter of UART1, which is ready at all times, interrupts as soon as it may.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include "yartek.h"

#include "port.h"

static void handle(void);

static uint32_t random_up_to(uint32_t most)
{
	static uint32_t state = 1;

	state = state * 1664525 + 1013904223;
	return (state >> 8) % (most + 1);
}

#ifdef __mcoldfire__

#define UART(offset) (*(volatile uint8_t *)(0xfc064000 + (offset)))
enum { COMMAND = 8, INTERRUPTS = 0x14, SOURCE = 27 };

static void YK_HANDLER interrupted(void)
{
	UART(INTERRUPTS) = 0;
	handle();
}

static void provoke(void)
{
	UART(INTERRUPTS) = 1;
}

static void attach(uint32_t line)
{
	yk_port_attach(line, SOURCE, interrupted);
	UART(COMMAND) = 4;
}

#else

/* The first dual timer counts down, 25 a microsecond. */
#define DUAL_TIMER(offset) (*(volatile uint32_t *)(0x40002000 + (offset)))
#define NVIC_PEND (*(volatile uint32_t *)0xe000e200)
enum { LOAD = 0, CONTROL = 8, CLEAR = 12, SOURCE = 10 };
enum { SHORT = 100, LONG = 20000 };

static void interrupted(void)
{
	DUAL_TIMER(CLEAR) = 1;
	DUAL_TIMER(LOAD) = random_up_to(9) ? LONG + random_up_to(2 * LONG) : SHORT;
	handle();
}

static void provoke(void)
{
	NVIC_PEND = 1 << SOURCE;
}

static void attach(uint32_t line)
{
	yk_port_attach(line, SOURCE, interrupted);
	DUAL_TIMER(LOAD) = LONG;
	DUAL_TIMER(CONTROL) = 0xe2;
}

#endif

#endif
