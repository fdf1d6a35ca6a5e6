/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Arrivals for sporadic tasks at any instant: while a job runs, at its end, while the next is
 * chosen, while the alarm is set, and while nothing is to be done. Tasks 1 and 2 of the table of
 * tests/arrivals.rs are sporadic.
 *
 * Prints each job, and each arrival that found room: `a TASK AT`, as the trace prints its times;
 * and once `refused COUNT`, when all have arrived.
 * The linker puts the functions __wrap_ between the kernel's files.
 */
#include "source.h"

#include "console.h"
#include "trace.h"

enum { ARRIVALS = 3000, SPORADIC = 2, RECORDS = 1024 };

struct yk_arrivals came_for[SPORADIC];
static uint32_t refused[SPORADIC];
static bool is_wrong;

/* Of the handler; of the background. */
static struct {
	uint32_t task;
	yk_ticks at;
} records[RECORDS];
static volatile uint32_t kept;
static uint32_t printed;

static void arrive(uint32_t n)
{
	struct yk_arrivals *arrivals = &came_for[n];
	uint32_t came = arrivals->came;

	yk_arrive(1 + n);
	if (arrivals->came == came) {
		refused[n]++;
		is_wrong |= yk_stats(1 + n)->refused != refused[n];
		return;
	}
	records[kept % RECORDS].task = 1 + n;
	records[kept % RECORDS].at = arrivals->at[came % YK_MAX_ARRIVALS];
	kept++;
}

/* The first time, two more than can wait; some that follow find no room, either. */
static void handle(void)
{
	uint32_t n = random_up_to(SPORADIC - 1), times = kept ? 1 : YK_MAX_ARRIVALS + 2;

	if (kept >= ARRIVALS || yk_now() < yk_epoch())
		return;
	while (times--)
		arrive(n);
}

/* Once in a while. */
static void provoke_within(uint32_t times)
{
	if (!random_up_to(times - 1))
		provoke();
}

bool __real_yk_port_alarm(yk_ticks at);
bool __wrap_yk_port_alarm(yk_ticks at);
enum yk_next __real_yk_edf_next(struct yk_edf *edf, yk_ticks now, struct yk_job *job);
enum yk_next __wrap_yk_edf_next(struct yk_edf *edf, yk_ticks now, struct yk_job *job);
void work(const struct yk_job *job);

bool __wrap_yk_port_alarm(yk_ticks at)
{
	bool is_set;

	provoke_within(16);
	is_set = __real_yk_port_alarm(at);
	provoke_within(16);
	return is_set;
}

enum yk_next __wrap_yk_edf_next(struct yk_edf *edf, yk_ticks now, struct yk_job *job)
{
	enum yk_next next;

	provoke_within(16);
	next = __real_yk_edf_next(edf, now, job);
	provoke_within(16);
	return next;
}

void work(const struct yk_job *job)
{
	for (uint32_t n = random_up_to(1000); n; n--)
		__asm__ volatile("");
	provoke_within(8);
	yk_spin(job);
}

void yk_ended(const struct yk_job *job, yk_ticks end)
{
	provoke_within(16);
	yk_trace_keep(job, end);
}

bool yk_background(void)
{
	for (uint32_t n = random_up_to(50); n; n--)
		__asm__ volatile("");
	provoke_within(64);
	if (printed == ARRIVALS) {
		yk_console_text(is_wrong ? "wrong " : "refused ");
		yk_console_decimal(refused[0] + refused[1]);
		yk_console_byte('\n');
		printed++;
	}
	if (printed >= kept)
		return yk_trace_print();
	yk_console_text("a ");
	yk_console_decimal(records[printed % RECORDS].task);
	yk_console_byte(' ');
	yk_console_hex(records[printed % RECORDS].at - yk_epoch());
	yk_console_byte('\n');
	printed++;
	return true;
}

void serve(uint32_t raises);
void serve(uint32_t raises)
{
	(void)raises;
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	attach(0);
	yk_run();
}
