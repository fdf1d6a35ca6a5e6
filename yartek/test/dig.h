/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* For tests of stacks. */
#include "console.h"

static void say(const char *what, uint32_t number)
{
	yk_console_text(what);
	yk_console_byte(' ');
	yk_console_decimal(number);
	yk_console_byte('\n');
}

/* Needs more than 32 bytes of stack for each step. */
static uint32_t dig(uint32_t depth)
{
	volatile uint32_t words[8] = { depth };

	return depth ? dig(depth - 1) + words[0] : 0;
}
