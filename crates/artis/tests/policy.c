// SPDX-License-Identifier: Apache-2.0 OR MIT
// Checks of src/bpf/policy.h. Prints each that fails, and exits with 1 then.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
typedef uint64_t u64;
typedef uint32_t u32;
typedef int64_t s64;
#include "../src/bpf/policy.h"

#define MS 1000000LL
#define SECOND (1000 * MS)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
static int failed;

static void holds(bool is_true, const char *what)
{
	if (is_true)
		return;
	fprintf(stderr, "not so: %s\n", what);
	failed = 1;
}

// Who comes to the queue at the same time: does the first go before the second?
static bool before(u32 prio, u64 used, u32 other_prio, u64 other_used)
{
	u64 now = 5 * SECOND, most = 9 * SECOND;

	return (s64)(place_in_queue(prio, now, used, most) -
		     place_in_queue(other_prio, now, other_used, most)) < 0;
}

static void places(void)
{
	u64 used[] = { 0, 8 * SECOND, 9 * SECOND, 10 * SECOND, ~0ULL >> 1 };

	for (u32 i = 0; i < COUNT(used); i++) {
		holds(before(1, used[i], 0, 0), "RT1 of any priority goes before Linux");
		holds(before(99, used[i], 98, 0), "the higher priority goes first");
	}
	holds(before(0, 9 * SECOND, 0, 9 * SECOND + MS), "who used less goes first");
	for (u32 prio = 0; prio < 100; prio++)
		for (u32 i = 0; i < COUNT(used); i++) {
			s64 wait = place_in_queue(prio, 5 * SECOND, used[i], 9 * SECOND) - 5 * SECOND;

			holds(wait >= 0 && wait <= 2 * SECOND, "all that comes in 2 s goes behind");
		}
}

// Guests of these weights that compute for ever on one CPU: what each gets of it, in ms.
static void compute(const u32 *weights, const u32 *prios, u32 count, u64 end, u64 *got_ms)
{
	u64 used[16] = { 0 }, place[16], used_most = 0, slice = 3 * MS;

	for (u32 i = 0; i < count; i++) {
		got_ms[i] = 0;
		place[i] = place_in_queue(prios[i], 0, 0, 0);
	}
	for (u64 now = 0; now < end; now += slice) {
		u32 next = 0;

		for (u32 i = 1; i < count; i++)
			if ((s64)(place[i] - place[next]) < 0)
				next = i;
		if (!prios[next]) {
			if ((s64)(used[next] - used_most) > 0)
				used_most = used[next];
			used[next] = after_run(used[next], used_most, slice, weights[next]);
		}
		got_ms[next] += slice / MS;
		place[next] = place_in_queue(prios[next], now + slice, used[next], used_most);
	}
}

static void shares(void)
{
	// 100 is nice 0, 11 is nice 10.
	u32 weights[] = { 100, 100, 100, 100, 11, 11, 11, 11 }, linux_tasks[8] = { 0 };
	u32 prios[] = { 20, 20, 20, 1, 0, 0, 0, 0 };
	u64 got[8];

	compute(weights, linux_tasks, 8, 60 * SECOND, got);
	for (u32 i = 0; i < 4; i++)
		holds(got[i] >= 6 * got[4 + i] && got[i] <= 12 * got[4 + i],
		      "nice 0 gets about nine times as much as nice 10");
	holds(got[0] < got[1] + 20 && got[1] < got[0] + 20, "equal weights get as much");
	compute(weights, prios, 8, 60 * SECOND, got);
	for (u32 i = 0; i < 4; i++)
		holds(got[4 + i] >= 30 && got[4 + i] <= 600,
		      "a Linux task has its turns beside RT1 that compute, and few");
	holds(got[0] > 17 * SECOND / MS && got[3] < 6 * SECOND / MS && got[3] > got[4],
	      "RT1 gets the rest, by priority");
}

static void sleepers_and_debts(void)
{
	u64 most = 9 * SECOND, slice = 3 * MS;

	holds(lag_of(0, most, slice) == -(s64)slice, "sleep saves one slice");
	holds(lag_of(most + MS, most, slice) == MS, "sleep takes no debt away");
	holds(lag_of(most - MS, most, slice) == -MS, "a short sleep saves what it is");
	holds(lag_of(0, most, MOST_LAG_NS) == -MOST_LAG_NS, "nor does a wait save without end");
	holds(lag_of(~0ULL >> 1, most, slice) == MOST_LAG_NS, "a debt has an end");
	holds(after_run(most, most, 4 * MS, 100) == most + 4 * MS, "weight 100 counts time as it is");
	holds(after_run(most, most, 4 * MS, 50) == most + 8 * MS, "half the weight, twice the use");
	holds(after_run(most, most, 7200 * SECOND, 1) == most + MOST_LAG_NS, "hours are forgotten");
}

static void moves(void)
{
	u64 stay = 0;
	u32 tries = 0;

	holds(is_worth(1000, 499) && !is_worth(1000, 500), "a stay must last longer than two moves");
	while (!is_worth(stay, 25000) && tries < 100000) {
		stay = after_refusal(stay, RETURNED);
		tries++;
	}
	holds(tries > 10 && tries < 1000, "a guest that is kept off is tried again");
	for (stay = 100000, tries = 0; !is_worth(stay, 500000) && tries < 100; tries++)
		stay = after_refusal(stay, COMPUTED);
	holds(tries > 5 && tries < 25, "one that computes is tried again within some slices");
	holds(mean(800, 800, 3) == 800 && mean(800, 0, 3) == 700, "the mean follows an eighth");
	holds(median(3200, 1000000) == 3301 && median(3200, 0) == 3099, "the median follows in steps");
	holds(!user_first(SECOND, SECOND), "of two that came together the one in the kernel goes first");
	holds(!user_first(SECOND, SECOND - 20 * MS), "and before one that came a little earlier");
	holds(user_first(SECOND, SECOND - 30 * MS), "but not before one that came much earlier");
	holds(!user_first(-10 * MS, 20 * MS), "places compare also where the clock wraps");
}

int main(void)
{
	places();
	shares();
	sleepers_and_debts();
	moves();
	return failed;
}
