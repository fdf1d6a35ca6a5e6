/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two threads pass items to each other, the one that waits first before the one that gives. Prints
 * how many ticks that took: no interrupt must be waited for.
 */
#include "console.h"
#include "port.h"
#include "thread.h"

#include <stddef.h>

enum { STACK = 512, ITEMS = 100 };

static struct yk_thread taker, giver;
static uint32_t stacks[2][STACK];
static bool has_item;
static yk_ticks begun;

static bool is_there(void *unused)
{
	(void)unused;
	return has_item;
}

static bool is_taken(void *unused)
{
	(void)unused;
	return !has_item;
}

static void take(void *unused)
{
	(void)unused;
	for (uint32_t n = 0; n < ITEMS; n++) {
		yk_thread_wait(is_there, NULL);
		has_item = false;
	}
	yk_console_text("ticks ");
	yk_console_decimal((uint32_t)(yk_now() - begun));
	yk_console_byte('\n');
	yk_port_exit(0);
}

static void give(void *unused)
{
	(void)unused;
	begun = yk_now();
	for (;;) {
		yk_thread_wait(is_taken, NULL);
		has_item = true;
	}
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	(void)why;
	(void)job;
	(void)address;
	yk_port_exit(1);
}

bool yk_background(void)
{
	return yk_threads_run();
}

int main(void)
{
	yk_thread_begin(&taker, "taker", take, NULL, stacks[0], STACK);
	yk_thread_begin(&giver, "giver", give, NULL, stacks[1], STACK);
	yk_run();
}
