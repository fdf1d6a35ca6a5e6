/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Threads of the background, each with a stack of its own. They take turns: a thread runs until it
 * waits, sleeps, yields or ends. So between threads plain variables do. Services of lines run
 * between two rounds, in each of which each thread has a turn: one that computes for long should
 * yield.
 *
 * Jobs and handlers interrupt a thread on its stack. It must have room for them, too.
 *
 * For the background alone. The application's yk_background() returns yk_threads_run(). Threads
 * alone may exit, yield, sleep and wait: neither services nor yk_background() itself.
 */
#ifndef YK_THREAD_H
#define YK_THREAD_H

#include "yartek.h"

/* A stack has so many words at least, besides those that jobs and handlers need. */
enum { YK_THREAD_LEAST = 64 };

enum yk_thread_state { YK_THREAD_ENDED, YK_THREAD_READY, YK_THREAD_WAITS, YK_THREAD_SLEEPS };

/* Its fields are the module's. Others may read them. All zero: it has not begun. */
struct yk_thread {
	const char *name;
	enum yk_thread_state state;
	/* It runs no further until it is resumed. */
	bool is_suspended;
	void (*run)(void *argument);
	void *argument;
	/* What it waits for. */
	bool (*condition)(void *argument);
	void *of_condition;
	/* When it goes on. */
	yk_ticks at;
	uint32_t *stack;
	uint32_t words;
	/* The stack's pointer while another runs. */
	void *pointer;
	struct yk_thread *next;
};

/*
 * Begins it with that stack of so many words (the paper's exec). It runs at its first turn.
 * `false`: it has begun already and not ended, or the stack is too small.
 */
bool yk_thread_begin(struct yk_thread *thread, const char *name, void (*run)(void *argument),
		     void *argument, uint32_t *stack, uint32_t words);
/* Ends the thread that runs. To return from its function does so, too. */
_Noreturn void yk_thread_exit(void);
/*
 * Ends another, wherever it is, or this one. `false`: it has ended. What it holds stays held: files
 * that it has open, and blocks of the heap.
 */
bool yk_thread_kill(struct yk_thread *thread);
/* It has no turn until it is resumed. A thread may suspend itself. `false`: it has ended. */
bool yk_thread_suspend(struct yk_thread *thread);
bool yk_thread_resume(struct yk_thread *thread);
/* Gives the others a turn. */
void yk_thread_yield(void);
/*
 * Goes on so many ticks later, at the first turn after that. No alarm is set for it: while a thread
 * sleeps, the background looks at the clock again and again, and the processor does not sleep.
 */
void yk_thread_sleep(yk_ticks ticks);
/*
 * Goes on once the condition holds. It is asked for at each turn, so after each interrupt. It must
 * not wait. For reads and writes that block: wait for a byte, or for room.
 */
void yk_thread_wait(bool (*condition)(void *argument), void *argument);
/* How many words of its stack have never been used. 0: it may have overflowed. */
uint32_t yk_thread_unused(const struct yk_thread *thread);
/* The threads that have not ended, in the order of their turns. NULL: none. */
const struct yk_thread *yk_threads(void);
/* A turn for each. `false`: none is ready and none sleeps: the background may wait. */
bool yk_threads_run(void);

#endif
