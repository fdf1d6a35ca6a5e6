/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Threads of the background: they wait for each other, sleep, are suspended and killed, and one
 * overflows its stack, while jobs interrupt them. Prints what came of it. SLEEP: ticks.
 */
#include "dig.h"
#include "port.h"
#include "thread.h"

#include <stddef.h>

enum { STACK = 512, ITEMS = 1000, SLEEPS = 20, ROOM = 1024 };

static struct yk_thread producer, consumer, deep, sleeper, stubborn, warden;
/* The one that overflows is in the midst of room. */
static uint32_t stacks[5][STACK], room[ROOM + STACK];

static uint32_t item, sum, broken;
static bool has_item;

static bool is_full(void *unused)
{
	(void)unused;
	return has_item;
}

static bool is_empty(void *unused)
{
	(void)unused;
	return !has_item;
}

static void produce(void *items)
{
	for (uint32_t n = 1; n <= *(uint32_t *)items; n++) {
		yk_thread_wait(is_empty, NULL);
		broken += has_item;
		item = n;
		has_item = true;
	}
}

static void consume(void *items)
{
	do {
		yk_thread_wait(is_full, NULL);
		broken += !has_item;
		sum += item;
		has_item = false;
	} while (item < *(uint32_t *)items);
}

static void overflow(void *unused)
{
	(void)unused;
	dig(STACK / 8);
	yk_thread_yield();
	say("after the overflow", 1);
}

static void sleep(void *unused)
{
	yk_ticks begun = yk_now();

	(void)unused;
	for (uint32_t n = 0; n < SLEEPS; n++)
		yk_thread_sleep(SLEEP);
	say("slept", (uint32_t)(yk_now() - begun));
}

static uint32_t turns;

static void go_on(void *unused)
{
	(void)unused;
	for (;;) {
		turns++;
		yk_thread_yield();
	}
}

static void guard(void *unused)
{
	uint32_t before;

	(void)unused;
	while (turns < 3)
		yk_thread_yield();
	yk_thread_suspend(&stubborn);
	before = turns;
	yk_thread_sleep(SLEEP);
	say("turns while suspended", turns - before);
	yk_thread_resume(&stubborn);
	yk_thread_sleep(SLEEP);
	say("has turns again", turns > before);
	say("killed", yk_thread_kill(&stubborn));
	before = turns;
	yk_thread_sleep(SLEEP);
	say("turns after the kill", turns - before);
	say("killed twice", yk_thread_kill(&stubborn));
	/* Its stack, and its place, may be used anew. */
	say("begun anew", yk_thread_begin(&stubborn, "stubborn", go_on, NULL, stacks[3], STACK));
	say("begun twice", yk_thread_begin(&stubborn, "stubborn", go_on, NULL, stacks[3], STACK));
	yk_thread_yield();
	say("turns anew", turns - before > 0);
	yk_thread_kill(&stubborn);
	yk_thread_exit();
	say("after the exit", 1);
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	(void)job;
	say("stack", why == YK_WHY_STACK && address == (uintptr_t)&room[ROOM]);
}

bool yk_background(void)
{
	bool is_busy = yk_threads_run();

	if (yk_threads())
		return is_busy;
	say("sum", sum);
	say("waits in vain", broken);
	say("unused", yk_thread_unused(&producer) > 0 && yk_thread_unused(&sleeper) > 0);
	say("unused after the overflow", yk_thread_unused(&deep));
	say("jobs", yk_stats(0)->ended);
	say("missed", yk_stats(0)->missed);
	yk_port_exit(0);
}

int main(void)
{
	static uint32_t items = ITEMS;

	yk_thread_begin(&consumer, "consumer", consume, &items, stacks[1], STACK);
	yk_thread_begin(&producer, "producer", produce, &items, stacks[0], STACK);
	yk_thread_begin(&deep, "deep", overflow, NULL, room + ROOM, STACK);
	yk_thread_begin(&sleeper, "sleeper", sleep, NULL, stacks[2], STACK);
	yk_thread_begin(&stubborn, "stubborn", go_on, NULL, stacks[3], STACK);
	yk_thread_begin(&warden, "warden", guard, NULL, stacks[4], STACK);
	yk_run();
}
