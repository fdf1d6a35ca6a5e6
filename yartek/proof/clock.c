/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K6: what yk_port_now() answers is the time of an instant while it ran, at any level but that
 * which counts the wraps. So it never goes back. The timer goes on, and wraps, at any access; the
 * interrupt of the wrap comes at once, or later, or not before the end, as where a handler of the
 * same level reads the clock.
 *
 * The port is compiled for this machine, and clock.h says what each board models.
 */
#include "clock.h"
#include "explore.h"

yk_ticks yk_port_now(void);

/* Moves of the timer in one reading, and accesses: a reading may wait for the interrupt. */
enum { MOVES = 3, ACCESSES = 40 };

static yk_ticks now;
static uint32_t moves, accesses;
static bool is_at_work, is_counted;

void at_access(void)
{
	static const uint32_t steps[] = { 0, 1, 2 };

	if (!is_at_work)
		return;
	/* The interrupt is served at last: a reading that waits for it is no case. */
	given(++accesses < ACCESSES);
	is_at_work = false;
	if (moves < MOVES) {
		uint32_t step = steps[choose(3)];

		moves += step > 0;
		now += step;
		if (step)
			timer_moves(now);
	}
	if (!is_counted && (accesses > ACCESSES / 2 || choose(2)))
		is_counted = timer_counts();
	is_at_work = true;
}

void scenario(void)
{
	static const yk_ticks wraps[] = { 1, 65537, 65538 };
	static bool is_mapped;
	yk_ticks began, read;

	if (!is_mapped)
		is_mapped = timer_map();
	must("this machine gives memory at the address of the timer", is_mapped);
	moves = accesses = 0;
	is_counted = false;
	/* Near a wrap of the timer; of one of 16 bits also near those where 32 bits of time wrap. */
	now = timer_wrap * wraps[choose(3)] - 3 + choose(5);
	is_at_work = false;
	timer_set(now);
	began = now;
	is_at_work = true;
	read = yk_port_now();
	is_at_work = false;
	must("K6 the clock tells the time of an instant while it is read",
	     began <= read && read <= now);
}
