/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Both timers are the kernel's. The transmitters of UART1 and UART2 are ready at all times, and so
 * interrupt as soon as they may.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#define UART_INTERRUPTS(n) (*(volatile uint8_t *)(0xfc060014 + (n) * 0x4000))
#define UART_COMMAND(n) (*(volatile uint8_t *)(0xfc060008 + (n) * 0x4000))

enum { SOURCE = 27, OTHER_SOURCE = 28, INSTRUCTIONS_A_TICK = 24 };

static inline void sources_start(void)
{
	UART_COMMAND(1) = UART_COMMAND(2) = 4;
}

static inline void source_now(void)
{
	UART_INTERRUPTS(1) = 1;
}

static inline void source_quiet(void)
{
	UART_INTERRUPTS(1) = 0;
}

static inline void source_again_ns(uint32_t ns)
{
	UART_INTERRUPTS(1) = ns < 4000;
}

static inline void other_now(void)
{
	UART_INTERRUPTS(2) = 1;
}

static inline void other_quiet(void)
{
	UART_INTERRUPTS(2) = 0;
}

static inline void count_down(uint32_t rounds)
{
	__asm__ volatile("1: subq.l #1, %0\n\tbne.s 1b" : "+d"(rounds) : : "cc");
}

#define REFUSED_INSTRUCTION "illegal"
#define MASKING_INSTRUCTION "move.w #0x2700, %sr"

#endif
