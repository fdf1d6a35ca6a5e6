/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "stack.h"

#include "port.h"

#include <stddef.h>

/* What the stack has where it was never used. */
#define UNUSED 0x5eed5eed
/* Not marked below the frame of yk_stack_watch(): the function itself may use it. */
enum { BELOW_WORDS = 16 };

static uint32_t *lowest;
static bool is_told;

void yk_stack_watch(uint32_t bytes)
{
	uint32_t *here = __builtin_frame_address(0), *word;
	uintptr_t most = (uintptr_t)yk_port_stack - (uintptr_t)yk_port_bss_end;

	if (bytes > most)
		bytes = most;
	word = lowest = yk_port_stack - bytes / sizeof *lowest;
	while (word < here - BELOW_WORDS)
		*word++ = UNUSED;
}

void yk_stack_look(void)
{
	if (is_told || !lowest || *lowest == UNUSED)
		return;
	is_told = true;
	yk_fault(YK_WHY_STACK, NULL, (uintptr_t)lowest);
}

bool yk_stack_is_watched(void)
{
	return lowest;
}

uint32_t yk_stack_unused(void)
{
	const uint32_t *word = lowest;

	while (*word == UNUSED)
		word++;
	return (uint32_t)(word - lowest) * sizeof *word;
}
