/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A job that never returns, and a yk_fault() that looks at the clock before and after each of ten
 * loops of LOOP_ROUNDS rounds. Prints how many ticks they took.
 */
#include "board.h"
#include "console.h"
#include "port.h"
#include "trace.h"

enum { LOOPS = 10 };

void hang(const struct yk_job *job);

void hang(const struct yk_job *job)
{
	(void)job;
	for (;;)
		;
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_ticks begun = yk_now(), last = begun;
	bool is_back = false;

	(void)job;
	(void)address;
	for (uint32_t n = 0; n < LOOPS; n++) {
		yk_ticks now;

		count_down(LOOP_ROUNDS);
		now = yk_now();
		is_back |= now < last;
		last = now;
	}
	yk_console_text("ticks ");
	yk_console_decimal((uint32_t)(last - begun));
	yk_console_byte('\n');
	yk_port_exit(is_back || why != YK_WHY_TOO_LONG);
}

/* An image that can be run ends its trace. */
bool yk_background(void)
{
	return yk_trace_print();
}

int main(void)
{
	yk_run();
}
