/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K4: yk_port_alarm() sets the alarm for the time that it is told, or before; never later by more
 * than a few ticks, whichever access to memory a long handler interrupts, and where the clock wraps
 * meanwhile. `false`: that time is not ahead.
 *
 * clock.h says what each board models.
 */
#include "clock.h"
#include "explore.h"

bool yk_port_alarm(yk_ticks at);

/* Moves of the timer: by a tick, or by a handler. */
enum { MOVES = 2, HANDLER = 1000 };

static yk_ticks now, set_for;
static uint32_t moves;
static bool is_at_work, is_set;

static void look(void)
{
	is_set |= timer_alarm(now, &set_for);
}

void at_access(void)
{
	static const uint32_t steps[] = { 0, 1, HANDLER };

	if (!is_at_work)
		return;
	is_at_work = false;
	/* What the access before has set was set at this time. */
	look();
	if (moves < MOVES) {
		uint32_t step = steps[choose(3)];

		moves += step > 0;
		now += step;
		if (step) {
			timer_moves(now);
			timer_counts();
		}
	}
	is_at_work = true;
}

void scenario(void)
{
	static const yk_ticks ahead[] = { 0, 1, 3, HANDLER + 2, 5 * HANDLER, (yk_ticks)3 << 31 };
	static bool is_mapped;
	yk_ticks at;
	bool is_ahead;

	if (!is_mapped)
		is_mapped = timer_map();
	must("this machine gives memory at the address of the timers", is_mapped);
	moves = 0;
	is_at_work = is_set = false;
	now = 65537 * timer_wrap - HANDLER - 3 + choose(2) * HANDLER + choose(4);
	timer_set(now);
	at = now + ahead[choose(6)];
	look();
	is_set = false;
	is_at_work = true;
	is_ahead = yk_port_alarm(at);
	is_at_work = false;
	look();
	if (is_ahead)
		must("K4 the alarm is set in time", is_set && set_for <= at + alarm_late);
	else
		must("K4 a time that is ahead has an alarm", at <= now);
}
