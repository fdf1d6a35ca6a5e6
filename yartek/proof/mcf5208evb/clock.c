/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "../clock.h"

#include "../../port/mcf5208evb/port.c"

const yk_ticks timer_wrap = WRAP;
static yk_ticks shown;

void yk_guard(void)
{
}

MODEL bool timer_map(void)
{
	return map((uintptr_t)PIT0) && map((uintptr_t)PIT1);
}

MODEL void timer_moves(yk_ticks at)
{
	PIT0->count = (uint16_t)(WRAP - at % WRAP);
	if (at / WRAP != shown / WRAP)
		PIT0->control |= PIT_FLAG;
	shown = at;
}

MODEL void timer_set(yk_ticks at)
{
	yk_ticks wrapped = at - at % WRAP;

	shown = at;
	wrapped_high = (uint32_t)(wrapped >> 32);
	wrapped_low = (uint32_t)wrapped;
	PIT0->control = 0;
	shortest = 0;
	timer_moves(at);
}

MODEL bool timer_counts(void)
{
	if (!(PIT0->control & PIT_FLAG))
		return false;
	count_wrap();
	/* It has written the flag. */
	PIT0->control = 0;
	return true;
}

/* A tick more than the shortest way, of none here. */
const yk_ticks alarm_late = 1;

MODEL bool timer_alarm(yk_ticks now, yk_ticks *at)
{
	if (!PIT1->modulus)
		return false;
	*at = now + PIT1->modulus;
	PIT1->modulus = 0;
	return true;
}
