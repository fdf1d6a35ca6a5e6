/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A shell on the serial line: a person, or a program, asks what the board does. `help` lists what
 * it knows. Lines end with CR, LF or both. Backspace takes a character back; Ctrl-C gives the line
 * up, but ends no program. What is typed is sent back.
 *
 * It is a thread: yk_thread_begin(&thread, "shell", yk_shell, &shell, stack, words). Its command
 * `ps` says how much of its stack is used. Times that it prints are in ticks.
 */
#ifndef YK_SHELL_H
#define YK_SHELL_H

#include "heap.h"
#include "program.h"
#include "ramdisk.h"
#include "thread.h"

/* What `exec` begins, beside programs of the disk. */
struct yk_program {
	const char *name;
	/* In one line, for `help`. */
	const char *does;
	void (*run)(void *argument);
	void *argument;
};

/* Where a program runs. */
struct yk_place {
	struct yk_thread thread;
	uint32_t *stack;
	uint32_t words;
};

/* What the application lets the shell see. Pointers may be NULL, and counts 0. */
struct yk_shell {
	const struct yk_program *programs;
	uint32_t programs_count;
	struct yk_place *places;
	uint32_t places_count;
	struct yk_disk *disk;
	/* For programs of the disk. */
	struct yk_area *area;
	const struct yk_heap *heap;
};

/* The thread's function. It does not return. */
void yk_shell(void *shell);

/* For threads alone: words and numbers for the serial line. They wait for room. */
void yk_shell_byte(char byte);
void yk_shell_text(const char *text);
void yk_shell_decimal(uint32_t number);

#endif
