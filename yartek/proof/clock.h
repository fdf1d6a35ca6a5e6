/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A port and its timer, in this machine's memory. NAME/clock.c includes its port after this. */
#ifndef CLOCK_H
#define CLOCK_H

#include "yartek.h"

#include <stddef.h>
#include <sys/mman.h>

/* Not of the code that is explored. */
#define MODEL __attribute__((no_sanitize("thread")))

/* Makes memory at this address. */
MODEL static inline bool map(uintptr_t address)
{
	void *page = (void *)(address & ~(uintptr_t)0xfff);

	return mmap(page, 0x1000, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page;
}

/* From wrap to wrap. */
extern const yk_ticks timer_wrap;
/* Makes memory of its registers. */
bool timer_map(void);
/* The timer and the count of its wraps show this time. */
void timer_set(yk_ticks at);
/* The timer shows this time, the count does not: its interrupt waits where it has wrapped. */
void timer_moves(yk_ticks at);
/* The interrupt of the wrap is served. `false`: there is none. */
bool timer_counts(void);
/* For when the alarm has been set, if it has since the last call. The time is that of its set. */
bool timer_alarm(yk_ticks now, yk_ticks *at);
/* So much later the alarm may be: no handler that raises a line is so short. */
extern const yk_ticks alarm_late;

#endif
