/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "../clock.h"

/* Instructions of that machine. */
#define __asm__
#define volatile(...)
#include "../../port/rv32-virt/port.c"

/* The timer has 64 bits, read as two words: nothing counts its wraps. */
const yk_ticks timer_wrap = (yk_ticks)1 << 32;

MODEL bool timer_map(void)
{
	return map((uintptr_t)&CLOCK(LOW)) && map((uintptr_t)&TIMER(LOW));
}

MODEL void timer_moves(yk_ticks at)
{
	CLOCK(LOW) = (uint32_t)at;
	CLOCK(HIGH) = (uint32_t)(at >> 32);
}

MODEL void timer_set(yk_ticks at)
{
	timer_moves(at);
}

MODEL bool timer_counts(void)
{
	return false;
}

/* The alarm is a time, not a count. */
const yk_ticks alarm_late = 0;

MODEL bool timer_alarm(yk_ticks now, yk_ticks *at)
{
	(void)now;
	*at = (yk_ticks)TIMER(HIGH) << 32 | TIMER(LOW);
	return true;
}
