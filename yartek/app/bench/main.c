/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the kernel takes: section 4.2 of the paper, by the table of crates/yartek/src/bench.rs. Task
 * 0 has the entry bench_job, line 0 the service bench_service. Prints a line for each measurement,
 * `m NAME SAMPLES LEAST SUM MOST`, hexadecimal, in ticks, then `end`. With several tasks it
 * measures how late the first job begins, and nothing else.
 *
 * It works through phases of some activations each, so that no measurement disturbs another.
 */
#include "yartek.h"

#include "board.h"
#include "console.h"
#include "heap.h"
#include "port.h"

enum { SAMPLES = 1024 };
enum phase { ASLEEP, BUSY, SERVICE, RAISE, NEXT, HEAP, PHASES };

struct measured {
	const char *name;
	uint32_t samples;
	yk_ticks least;
	yk_ticks sum;
	yk_ticks most;
};

/* Two readings of the clock: what a measurement itself takes. */
static struct measured readings = { .name = "readings" };
/* From the start of a job to its begin. */
static struct measured job_asleep = { .name = "job-asleep" };
static struct measured job_busy = { .name = "job-busy" };
/* What a job without a body takes from a background that is busy. */
static struct measured activation = { .name = "activation" };
/* From an interrupt, or from the raise in its handler, to the line's service. */
static struct measured interrupt_to_service = { .name = "interrupt-to-service" };
static struct measured raise_to_service = { .name = "raise-to-service" };
/* yk_edf_next() with one task to release. */
static struct measured next = { .name = "next" };
/* Of a heap with one block. */
static struct measured alloc = { .name = "alloc" };
static struct measured free = { .name = "free" };

static volatile uint32_t jobs;
static volatile bool is_asleep = true;
static yk_ticks provoked_at;
static yk_ticks raised_at;
static enum phase phase;

static void add(struct measured *to, yk_ticks ticks)
{
	if (to->samples == SAMPLES)
		return;
	if (!to->samples || ticks < to->least)
		to->least = ticks;
	if (ticks > to->most)
		to->most = ticks;
	to->sum += ticks;
	to->samples++;
}

void bench_job(const struct yk_job *job);
void bench_service(uint32_t raises);

void bench_job(const struct yk_job *job)
{
	add(is_asleep ? &job_asleep : &job_busy, job->begun - job->start);
	jobs++;
}

static void YK_HANDLER interrupted(void)
{
	other_quiet();
	if (phase == RAISE)
		raised_at = yk_now();
	yk_raise(0);
}

void bench_service(uint32_t raises)
{
	yk_ticks now = yk_now();

	(void)raises;
	if (phase == RAISE)
		add(&raise_to_service, now - raised_at);
	else
		add(&interrupt_to_service, now - provoked_at);
}

/* Looks at the clock until a job has run. That was the longest of all distances. */
static void watch(void)
{
	uint32_t before = jobs;
	yk_ticks least = YK_NEVER, longest = 0, last = yk_now();
	bool is_over;

	do {
		yk_ticks now;

		/* A job after this look falls into the next round. */
		is_over = jobs != before;
		now = yk_now();
		if (now - last < least)
			least = now - last;
		if (now - last > longest)
			longest = now - last;
		last = now;
	} while (!is_over);
	add(&activation, longest - least);
}

static void choose(void)
{
	static struct yk_task task;
	static const struct yk_task_def def = { .period = 1 << 20, .deadline = 1 << 20 };
	struct yk_edf edf;
	struct yk_job job;
	yk_ticks before;

	yk_edf_begin(&edf, &def, &task, 1, 0);
	before = yk_now();
	yk_edf_next(&edf, 1, &job);
	add(&next, yk_now() - before);
}

static void allocate(void)
{
	static struct yk_unit units[16];
	struct yk_heap heap;
	yk_ticks before;
	void *block;

	yk_heap_begin(&heap, units, 16);
	before = yk_now();
	block = yk_heap_alloc(&heap, 20);
	add(&alloc, yk_now() - before);
	before = yk_now();
	yk_heap_free(&heap, block);
	add(&free, yk_now() - before);
}

static void print(const struct measured *of)
{
	yk_console_text("m ");
	yk_console_text(of->name);
	for (uint32_t n = 0; n < 4; n++) {
		const yk_ticks numbers[] = { of->samples, of->least, of->sum, of->most };

		yk_console_byte(' ');
		yk_console_hex(numbers[n]);
	}
	yk_console_byte('\n');
}

static void end(void)
{
	const struct measured *const all[] = {
		&readings, &job_asleep,	      &job_busy, &activation, &interrupt_to_service,
		&raise_to_service, &next, &alloc, &free,
	};

	for (uint32_t n = 0; n < sizeof(all) / sizeof(all[0]); n++)
		if (all[n]->samples)
			print(all[n]);
	yk_console_text("end\n");
	yk_port_exit(0);
}

bool yk_background(void)
{
	static uint32_t seen;
	yk_ticks before;

	if (phase == PHASES)
		end();
	if (phase == BUSY) {
		watch();
		phase += activation.samples == SAMPLES;
		return true;
	}
	/* Once after each job: the next is far away. */
	if (seen == jobs)
		return false;
	seen = jobs;
	switch (phase) {
	case ASLEEP:
		before = yk_now();
		add(&readings, yk_now() - before);
		if (job_asleep.samples == SAMPLES) {
			phase = yk_table.tasks_count > 1 ? PHASES : BUSY;
			is_asleep = false;
		}
		break;
	case SERVICE:
		phase += interrupt_to_service.samples == SAMPLES;
		provoked_at = yk_now();
		other_now();
		break;
	case RAISE:
		phase += raise_to_service.samples == SAMPLES;
		other_now();
		break;
	case NEXT:
		choose();
		phase += next.samples == SAMPLES;
		break;
	case HEAP:
		allocate();
		phase += free.samples == SAMPLES;
		break;
	default:
		break;
	}
	return true;
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	(void)why;
	(void)job;
	(void)address;
	yk_port_exit(1);
}

int main(void)
{
	sources_start();
	yk_port_attach(0, OTHER_SOURCE, interrupted);
	yk_run();
}
