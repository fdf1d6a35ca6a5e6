/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "../clock.h"

/* Instructions of that machine. */
#define __asm__
#define volatile(...)
#include "../../port/mps2-an385/port.c"

const yk_ticks timer_wrap = (yk_ticks)1 << 32;
static yk_ticks shown;

MODEL bool timer_map(void)
{
	return map((uintptr_t)TIMER0) && map((uintptr_t)TIMER1);
}

MODEL void timer_moves(yk_ticks at)
{
	TIMER0->value = -(uint32_t)at;
	if (at >> 32 != shown >> 32)
		TIMER0->interrupt = 1;
	shown = at;
	shortest = 0;
}

MODEL void timer_set(yk_ticks at)
{
	shown = at;
	wraps = (uint32_t)(at >> 32);
	TIMER0->interrupt = 0;
	timer_moves(at);
}

MODEL bool timer_counts(void)
{
	if (!TIMER0->interrupt)
		return false;
	count_wrap();
	/* It has written 1. */
	TIMER0->interrupt = 0;
	return true;
}

/* A tick more than the shortest way, of none here. */
const yk_ticks alarm_late = 1;

MODEL bool timer_alarm(yk_ticks now, yk_ticks *at)
{
	if (!TIMER1->value)
		return false;
	*at = now + TIMER1->value;
	TIMER1->value = 0;
	return true;
}
