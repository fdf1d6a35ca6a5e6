/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler decides by: pure functions of times and counts. Units: ns. */
#pragma once
#include "kernel.h"

/* A mean over about the last 2^shift samples. */
static inline u64 mean(u64 old, u64 sample, u32 shift)
{
	return old - (old >> shift) + (sample >> shift);
}

/* Follows the median of the samples in steps of 1/32: a few of any size do not move it far. */
static inline u64 median(u64 old, u64 sample)
{
	u64 step = (old >> 5) + 1;

	return sample > old ? old + step : old - step;
}

/*
 * Is it worth a move to an RT CPU? Its stay there ends with a move back, in which it does not run:
 * it must last longer than that.
 */
static inline bool is_worth(u64 stay_ns, u64 move_ns)
{
	return stay_ns > 2 * move_ns;
}

/* A guest that is kept off RT CPUs has no stays there. They grow, so that it is tried again. */
static inline u64 after_refusal(u64 stay_ns)
{
	return stay_ns + (stay_ns >> 6) + 1;
}

/*
 * RT1+ go before Linux tasks, and among themselves by priority; Linux tasks by what they used. The
 * kernel compares places as times, which wrap: 2^62 ns before 0 is before all that is used in a
 * hundred years.
 */
static inline u64 place_in_queue(u32 prio, u64 used, u64 least)
{
	if (prio)
		return 100 - prio - (1ULL << 62);
	return (s64)(used - least) < 0 ? least : used;
}

/* NRT CPUs serve guests in the kernel first. Every eighth time those in user mode go first, as RT
 * CPUs may be taken for long. */
static inline bool user_first(u32 turn)
{
	return turn % 8 == 0;
}
