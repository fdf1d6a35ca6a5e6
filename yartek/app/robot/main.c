/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The robot on a board: prints its jobs, and obeys commands.h on the serial line. Until a command
 * comes it prints its map each ten seconds, as a line `map HEX`. With ROBOT_LOG it prints all that
 * the map is made of, too: `e EVENT A B C`, in hexadecimal.
 */
#include "tasks.h"

#include "commands.h"
#include "console.h"
#include "serial.h"
#include "trace.h"

#ifndef ROBOT_BEAM
#define ROBOT_BEAM WORLD_IDEAL
#endif

/* The first task's period, half a second, is the measure of time: it is known in ticks. */
enum { HALF_S_NS = 500000000, HALF_S_US = 500000, NS_PER_US = 1000, MAPS_APART = 20 };

uint32_t robot_us(void)
{
	/* Whole halves so far, in ticks since the epoch, and in us. */
	static yk_ticks before;
	static uint32_t before_us;
	uint32_t half = (uint32_t)yk_table.task_defs[0].period;
	/* 40 to 768, and off by 3 ppm at most. */
	uint32_t ns_per_tick = (HALF_S_NS + half / 2) / half;
	yk_ticks now = yk_now() - yk_epoch();

	while (now - before >= half) {
		before += half;
		before_us += HALF_S_US;
	}
	return before_us + (uint32_t)(now - before) * ns_per_tick / NS_PER_US;
}

#ifdef ROBOT_LOG
enum { EVENTS = 1024 };

static struct {
	uint32_t words[4];
} events[EVENTS];
/* Of the jobs, and of the background. They wrap. */
static volatile uint32_t seen, told;

void robot_saw(enum robot_event event, uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t *words = events[seen % EVENTS].words;

	words[0] = event;
	words[1] = a;
	words[2] = b;
	words[3] = c;
	seen++;
}

static void tell_events(void)
{
	if (seen - told > EVENTS)
		yk_console_text("events are lost\n");
	for (; told != seen; told++) {
		yk_console_byte('e');
		for (uint32_t n = 0; n < 4; n++) {
			yk_console_byte(' ');
			yk_console_hex(events[told % EVENTS].words[n]);
		}
		yk_console_byte('\n');
	}
}
#else
void robot_saw(enum robot_event event, uint32_t a, uint32_t b, uint32_t c)
{
	(void)event;
	(void)a;
	(void)b;
	(void)c;
}

static void tell_events(void)
{
}
#endif

static void tell_map(void)
{
	struct map_reader reader;
	uint8_t byte;

	tell_events();
	robot_read(&reader);
	yk_console_text("map ");
	while (map_next(&reader, &byte)) {
		yk_console_hex(byte >> 4);
		yk_console_hex(byte & 15);
	}
	yk_console_byte('\n');
}

void hear(uint32_t raises);

/* The service of the serial line. */
void hear(uint32_t raises)
{
	(void)raises;
	commands_serve();
}

bool yk_background(void)
{
	static bool is_asked;
	static yk_ticks asked_at;
	bool is_busy;
	/* The clock begins before the epoch. */
	yk_ticks now = yk_now(), since = now < yk_epoch() ? 0 : now - yk_epoch();

	tell_events();
	/* More may have come than the service obeyed, and what jobs were asked to do may be done. */
	is_busy = commands_serve();
	if (is_asked && robot_is_done()) {
		is_asked = false;
		tell_map();
	}
	if (!is_asked && !commands_came() &&
	    since - asked_at >= MAPS_APART * (uint32_t)yk_table.task_defs[0].period) {
		asked_at = since;
		robot_compute();
		is_asked = true;
	}
	return yk_trace_print() || is_busy;
}

void yk_ended(const struct yk_job *job, yk_ticks end)
{
	yk_trace_keep(job, end);
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

int main(void)
{
	enum { SERIAL_LINE = 0 };

	robot_begin(ROBOT_BEAM);
	yk_serial_begin(SERIAL_LINE);
	yk_run();
}
