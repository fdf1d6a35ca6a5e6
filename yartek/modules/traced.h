/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The hooks of an application that prints its jobs and does nothing else. One file includes it. */
#ifndef YK_TRACED_H
#define YK_TRACED_H

#include "trace.h"

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

#endif
