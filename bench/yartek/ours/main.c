/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* yartek: an interrupt's work in a line's service, or in a job, and a periodic job. */
#include "../measure.h"

#include "yartek.h"

#include "port.h"

#define CLOCK WORD(0x40000004)
enum { LINE = 0, WATCHED_LINE = 1, ARRIVING = 1 };

void deferred(uint32_t raises);
void unused(uint32_t raises);
void periodic(const struct yk_job *job);
void arriving(const struct yk_job *job);

static void interrupted(void)
{
	DUAL_CLEAR = 1;
#ifdef ARRIVES
	yk_arrive(ARRIVING);
#else
	yk_raise(LINE);
#endif
}

void deferred(uint32_t raises)
{
	uint32_t now = DUAL_VALUE;

	(void)raises;
	keep(since(now));
}

void arriving(const struct yk_job *job)
{
	uint32_t now = DUAL_VALUE;

	(void)job;
	keep(since(now));
}

/* The kernel's clock counts up, its timer down. */
void periodic(const struct yk_job *job)
{
	uint32_t now = CLOCK;

	begin_round(-now - (uint32_t)job->start);
}

bool yk_background(void)
{
	return trigger();
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	(void)why;
	(void)job;
	(void)address;
	yk_port_exit(1);
}

#ifndef SMALL
static void watched(void)
{
	uint32_t now = DUAL_VALUE;

	keep(since(now));
}

/* Of the line of `watched`, which raises none. */
void unused(uint32_t raises)
{
	(void)raises;
}
#endif

int main(void)
{
	start();
	yk_port_attach(LINE, DUAL_IRQ, interrupted);
#ifndef SMALL
	yk_port_attach(WATCHED_LINE, WATCHED_IRQ, watched);
#endif
	yk_run();
}
