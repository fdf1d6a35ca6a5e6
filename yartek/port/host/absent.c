/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What a process has no use for: the watch on the main stack, and programs from the disk. */
#include "../../kernel/port.h"
#include "../../modules/stack.h"

/* modules/program.c: no program is made for these bytes. */
__asm__(".section .rodata\n"
	".globl yk_port_text, yk_port_text_end\n"
	"yk_port_text: .zero 64\n"
	"yk_port_text_end: .previous");

void yk_port_new_code(void)
{
}

/* modules/stack.h. */
void yk_stack_watch(uint32_t bytes)
{
	(void)bytes;
}

void yk_stack_look(void)
{
}

bool yk_stack_is_watched(void)
{
	return false;
}

uint32_t yk_stack_unused(void)
{
	return 0;
}
