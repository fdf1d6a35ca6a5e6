/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A program for a disk: its variables, constants and zeros are its own at each begin. */
#include "shell.h"

#include <stddef.h>

enum { MOST = 9, TIMES = 3 };

static const char *const words[TIMES] = { "one ", "two ", "three " };
static uint32_t step = 2;
static uint32_t sum;

void program(void *argument)
{
	for (uint32_t n = 0; n < TIMES; n++) {
		yk_shell_text(words[n]);
		sum += step++;
		yk_thread_yield();
	}
	/* 2 + 3 + 4. */
	yk_shell_text(argument == NULL && sum == MOST ? "good\r\n" : "bad\r\n");
}
