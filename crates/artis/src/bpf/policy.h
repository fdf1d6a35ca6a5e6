/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler decides by: pure functions of times and counts. Units: ns. */
#pragma once

/* RT1+ let others go before them for so long for each priority that they have less than 99. */
#define PRIORITY_NS 4000000LL
/* Linux tasks let RT1+ go before them for so long, and each other by what they used. */
#define LINUX_NS 1000000000LL
#define MOST_LAG_NS 500000000LL

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

/*
 * A guest that is kept off RT CPUs has no stays there. They grow, so that it is tried again: soon
 * if it has just computed, slowly if it has just made a call.
 */
enum { COMPUTED = 3, RETURNED = 6 };
static inline u64 after_refusal(u64 stay_ns, u32 shift)
{
	return stay_ns + (stay_ns >> shift) + 1;
}

/*
 * How much more a guest has used than the one that used most on its CPU. If it has used less, the
 * result is negative: it goes before the others until it has caught up. `saved_ns` bounds by how
 * much: a slice for one that has slept or is new, else MOST_LAG_NS.
 */
static inline s64 lag_of(u64 used, u64 used_most, u64 saved_ns)
{
	s64 lag = used - used_most;

	if (lag > MOST_LAG_NS)
		return MOST_LAG_NS;
	return lag < -(s64)saved_ns ? -(s64)saved_ns : lag;
}

/*
 * A place is the time until which others may still come and go before the guest. RT1+ go before
 * Linux tasks, and among themselves by priority; Linux tasks by what they used. But each has its
 * turn, though others compute without end: the kernel ends a scheduler that lets one wait for 20 s.
 */
static inline u64 place_in_queue(u32 prio, u64 now, u64 used, u64 used_most)
{
	if (prio)
		return now + (99 - prio) * PRIORITY_NS;
	return now + LINUX_NS + lag_of(used, used_most, MOST_LAG_NS);
}

/* What a guest used once it has run. One that had an RT CPU for hours owes no more than the lag. */
static inline u64 after_run(u64 used, u64 used_most, u64 ran_ns, u32 weight)
{
	used += ran_ns * 100 / weight;
	return (s64)(used - used_most) > MOST_LAG_NS ? used_most + MOST_LAG_NS : used;
}

/*
 * Two queues wait for an NRT CPU, each with its first place. Guests in the kernel go before those
 * in user mode, which an RT CPU may run as well, but only by so much: each has its turn.
 */
#define KERNEL_LEAD_NS 25000000LL
static inline bool user_first(u64 in_kernel, u64 in_user)
{
	return (s64)(in_user + KERNEL_LEAD_NS - in_kernel) < 0;
}
