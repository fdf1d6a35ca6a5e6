/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Runs the table, and prints each job. */
#include "yartek.h"

#include "console.h"
#include "trace.h"

#include <stddef.h>

/* What is known of the table, if it says so. */
extern const char yk_banner[] __attribute__((weak));

void yk_ended(const struct yk_job *job, yk_ticks end)
{
	yk_trace_keep(job, end);
}

bool yk_background(void)
{
	return yk_trace_print();
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	const char *banner = yk_banner;

	if (banner != NULL) {
		yk_console_text(banner);
		yk_console_byte('\n');
	}
	yk_run();
}
