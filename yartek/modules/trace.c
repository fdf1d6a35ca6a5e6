/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  printing a job takes longer than many a job, and must not hold up the next.
 * Approach: a ring that the jobs' level writes and the background reads.
 */
#include "trace.h"

#include "console.h"
#include "port.h"

#include <stddef.h>

enum { RECORDS = 1024 };

struct record {
	uint32_t task;
	uint32_t activation;
	yk_ticks start;
	yk_ticks begun;
	yk_ticks end;
};

static struct record records[RECORDS];
/* Of the jobs' level: how many were kept, and how many found no room. They wrap. */
static volatile uint32_t kept;
static volatile uint32_t lost;
/* Of the background. */
static volatile uint32_t printed;
static uint32_t told_lost;

yk_ticks yk_trace_until __attribute__((section(".kept")));

void yk_trace_keep(const struct yk_job *job, yk_ticks end)
{
	struct record *record = &records[kept % RECORDS];

	if (kept - printed == RECORDS) {
		lost++;
		return;
	}
	record->task = job->task;
	record->activation = job->activation;
	record->start = job->start;
	record->begun = job->begun;
	record->end = end;
	kept++;
}

static void put_time(yk_ticks at)
{
	yk_console_byte(' ');
	yk_console_hex(at - yk_epoch());
}

static void print(const struct record *record)
{
	yk_console_text("j ");
	yk_console_decimal(record->task);
	yk_console_byte(' ');
	yk_console_hex(record->activation);
	put_time(record->start);
	put_time(record->begun);
	put_time(record->end);
	yk_console_byte('\n');
}

static void tell_lost(void)
{
	uint32_t all = lost;

	if (all == told_lost)
		return;
	yk_console_text("lost ");
	yk_console_decimal(all - told_lost);
	yk_console_byte('\n');
	told_lost = all;
}

static void end_at(yk_ticks now)
{
	yk_console_text("end");
	put_time(now);
	yk_console_byte('\n');
	yk_port_exit(0);
}

bool yk_trace_print(void)
{
	yk_ticks now = yk_now();
	bool is_over = yk_trace_until && now >= yk_epoch() && now - yk_epoch() >= yk_trace_until;

	if (printed == kept) {
		tell_lost();
		if (is_over)
			end_at(now);
		return false;
	}
	print(&records[printed % RECORDS]);
	printed++;
	return true;
}

_Noreturn void yk_trace_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	static const char *const words[] = {
		[YK_WHY_NOT_BEGUN] = "not-begun",
		[YK_WHY_NOT_ENDED] = "not-ended",
		[YK_WHY_TOO_LONG] = "too-long",
		[YK_WHY_TRAP] = "trap",
		[YK_WHY_STACK] = "stack",
	};

	/* The background may have been in the midst of a line. */
	yk_console_text("\nfault ");
	yk_console_text(words[why]);
	yk_console_byte(' ');
	yk_console_hex(address);
	if (job) {
		yk_console_byte(' ');
		yk_console_decimal(job->task);
		yk_console_byte(' ');
		yk_console_hex(job->activation);
	}
	yk_console_byte('\n');
	yk_port_exit(1);
}
