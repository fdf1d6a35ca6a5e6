/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Runs the table, and nothing else. */
#include "yartek.h"

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	(void)why;
	(void)job;
	(void)address;
	for (;;)
		;
}

int main(void)
{
	yk_run();
}
