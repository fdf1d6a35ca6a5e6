/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  work of the background that waits for something would hold up all other work there.
 * Approach: a stack each. The background itself is one more: it gives turns, and a thread that
 *           waits goes back to it. Levels above notice nothing.
 */
#include "thread.h"

#include "port.h"

#include <stddef.h>

/* What a stack has where it was never used. */
#define UNUSED 0x5eed5eed

static struct yk_thread *threads;
static struct yk_thread *current;
/* Of the background, while a thread runs. */
static void *background;

/* The first thing that a thread does. */
static void begin(void)
{
	current->run(current->argument);
	yk_thread_exit();
}

bool yk_thread_begin(struct yk_thread *thread, const char *name, void (*run)(void *argument),
		     void *argument, uint32_t *stack, uint32_t words)
{
	struct yk_thread **last = &threads;

	if (thread->state != YK_THREAD_ENDED || words < YK_THREAD_LEAST)
		return false;
	for (uint32_t n = 0; n < words; n++)
		stack[n] = UNUSED;
	*thread = (struct yk_thread){
		.name = name,
		.state = YK_THREAD_READY,
		.run = run,
		.argument = argument,
		.stack = stack,
		.words = words,
		.pointer = yk_port_stack_for(stack + words, begin),
	};
	while (*last)
		last = &(*last)->next;
	*last = thread;
	return true;
}

static void give_turn(struct yk_thread *thread)
{
	current = thread;
	yk_port_switch(&background, thread->pointer);
	current = NULL;
	if (thread->stack[0] != UNUSED) {
		yk_fault(YK_WHY_STACK, NULL, (uintptr_t)thread->stack);
		yk_thread_kill(thread);
	}
}

static void end_turn(void)
{
	yk_port_switch(&current->pointer, background);
}

_Noreturn void yk_thread_exit(void)
{
	yk_thread_kill(current);
	for (;;)
		end_turn();
}

bool yk_thread_kill(struct yk_thread *thread)
{
	struct yk_thread **place = &threads;

	if (thread->state == YK_THREAD_ENDED)
		return false;
	while (*place != thread)
		place = &(*place)->next;
	*place = thread->next;
	thread->state = YK_THREAD_ENDED;
	if (thread == current)
		end_turn();
	return true;
}

bool yk_thread_suspend(struct yk_thread *thread)
{
	if (thread->state == YK_THREAD_ENDED)
		return false;
	thread->is_suspended = true;
	if (thread == current)
		end_turn();
	return true;
}

bool yk_thread_resume(struct yk_thread *thread)
{
	thread->is_suspended = false;
	return thread->state != YK_THREAD_ENDED;
}

void yk_thread_yield(void)
{
	end_turn();
}

void yk_thread_sleep(yk_ticks ticks)
{
	yk_ticks now = yk_now();

	current->at = ticks < YK_NEVER - now ? now + ticks : YK_NEVER;
	current->state = YK_THREAD_SLEEPS;
	end_turn();
}

void yk_thread_wait(bool (*condition)(void *argument), void *argument)
{
	current->condition = condition;
	current->of_condition = argument;
	current->state = YK_THREAD_WAITS;
	end_turn();
}

uint32_t yk_thread_unused(const struct yk_thread *thread)
{
	uint32_t n = 0;

	while (n < thread->words && thread->stack[n] == UNUSED)
		n++;
	return n;
}

const struct yk_thread *yk_threads(void)
{
	return threads;
}

static bool is_ready(struct yk_thread *thread)
{
	if (thread->is_suspended)
		return false;
	if (thread->state == YK_THREAD_SLEEPS && thread->at <= yk_now())
		thread->state = YK_THREAD_READY;
	if (thread->state == YK_THREAD_WAITS && thread->condition(thread->of_condition))
		thread->state = YK_THREAD_READY;
	return thread->state == YK_THREAD_READY;
}

bool yk_threads_run(void)
{
	struct yk_thread *thread = threads;
	bool is_busy = false;

	while (thread) {
		if (is_ready(thread)) {
			give_turn(thread);
			/* What others wait for may be true now. */
			is_busy = true;
		}
		is_busy |= !thread->is_suspended && thread->state == YK_THREAD_SLEEPS;
		/* If it has ended, or others have, this still is the next. */
		thread = thread->next;
	}
	return is_busy;
}
