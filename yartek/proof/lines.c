/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K2 and K3: the background serves a line, and handlers raise lines meanwhile.
 *
 * Any state that may occur between two services, but the counts, of which only differences matter,
 * begin at a wrap, and few raises are unserved. It is asserted afterwards, too, so that what holds
 * for one service holds for all.
 */
#include "../kernel/port.h"
#include "explore.h"

#include <string.h>

/* At most so many raises in one run; at most so many unserved before. */
enum { LINES = 2, RAISES = 4, UNSERVED = 3 };

static void service_0(uint32_t raises);
static void service_1(uint32_t raises);

static struct yk_line_def defs[LINES] = { { service_0, 0 }, { service_1, 0 } };
static struct yk_line lines[LINES];
const struct yk_table yk_table = { .line_defs = defs, .lines = lines, .lines_count = LINES };

/* Of lines.c, which exports them for this. */
extern volatile uint8_t queue[YK_MAX_LINES];
extern volatile uint32_t queue_in, queue_out;

/* The machine's: whose source is masked. */
static bool is_masked[LINES];
/* The lines in the order in which they came into the queue. */
static uint8_t came[YK_MAX_LINES];
static uint32_t came_in;
/* Raises since the begin, and those that services were told of. */
static uint32_t raised[LINES], handed[LINES];
/* The line whose service ran, how often one ran. */
static uint32_t serviced, services;
static bool is_woken;
/* Handlers may interrupt; one runs. */
static bool has_handlers, in_handler;
static uint32_t raises;

void yk_port_mask(uint32_t line)
{
	is_masked[line] = true;
}

void yk_port_unmask(uint32_t line)
{
	is_masked[line] = false;
}

void yk_port_wake(void)
{
	is_woken = true;
}

static bool is_queued(uint32_t line)
{
	return lines[line].queued != lines[line].taken;
}

static uint32_t unserved(uint32_t line)
{
	return lines[line].raised - lines[line].served;
}

static void raise(uint32_t line)
{
	uint32_t most = defs[line].most;

	given(!is_masked[line]);
	if (!is_queued(line))
		came[came_in++ % YK_MAX_LINES] = (uint8_t)line;
	raised[line]++;
	in_handler = true;
	yk_raise(line);
	in_handler = false;
	must("K3 no more than `most` raises are unserved", !most || unserved(line) <= most);
	must("K3 the source is masked at `most` unserved raises",
	     !most || unserved(line) < most || is_masked[line]);
}

static void interrupt(void)
{
	while (raises < RAISES) {
		uint32_t line = choose(LINES + 1);

		if (line == LINES)
			return;
		raises++;
		raise(line);
	}
}

void at_access(void)
{
	if (has_handlers && !in_handler)
		interrupt();
}

static void serve(uint32_t line, uint32_t told)
{
	must("K2 a service is told of one raise at least", told > 0);
	must("K3 a service is told of `most` raises at most",
	     !defs[line].most || told <= defs[line].most);
	handed[line] += told;
	serviced = line;
	services++;
	interrupt();
}

static void service_0(uint32_t told)
{
	serve(0, told);
}

static void service_1(uint32_t told)
{
	serve(1, told);
}

/* What holds whenever the background is between two services. */
static void must_be_valid(void)
{
	uint32_t length = queue_in - queue_out, queued = 0;

	for (uint32_t n = 0; n < LINES; n++) {
		const struct yk_line *line = &lines[n];
		uint32_t most = defs[n].most;

		must("K2 a line is in the queue once at most", line->queued - line->taken <= 1);
		queued += is_queued(n);
		must("K2 a line with unserved raises is in the queue", !unserved(n) || is_queued(n));
		must("K3 the kernel knows whether a source is masked",
		     is_masked[n] == (line->masked != line->unmasked));
		must("K3 a source is masked if and only if `most` raises are unserved",
		     is_masked[n] == (most && unserved(n) == most));
	}
	must("K2 the queue has the lines that are in it", length == queued && came_in == queue_in);
	for (uint32_t n = 0; n < length; n++)
		must("K2 the queue has the lines in the order in which they came",
		     queue[(queue_out + n) % YK_MAX_LINES] == came[(queue_out + n) % YK_MAX_LINES]);
}

/* Just before a wrap, or just after it. */
static uint32_t begin(void)
{
	return choose(2) ? UINT32_MAX : 0;
}

static void take_any_state(void)
{
	queue_in = queue_out = came_in = begin();
	for (uint32_t n = 0; n < LINES; n++) {
		struct yk_line *line = &lines[n];

		memset(line, 0, sizeof *line);
		defs[n].most = choose(UNSERVED + 1);
		line->served = begin();
		line->taken = line->unmasked = line->served;
		line->raised = line->served + choose(UNSERVED + 1);
		/* A service may have been told of the raises for which the line is in the queue. */
		line->queued = line->taken + (unserved(n) ? 1 : choose(2));
		given(!defs[n].most || unserved(n) <= defs[n].most);
		is_masked[n] = defs[n].most && unserved(n) == defs[n].most;
		line->masked = line->unmasked + is_masked[n];
	}
	/* In any order. */
	for (uint32_t left = LINES, first = choose(LINES); left; left--, first++) {
		uint32_t n = first % LINES;

		if (is_queued(n))
			queue[queue_in++ % YK_MAX_LINES] = came[came_in++ % YK_MAX_LINES] = (uint8_t)n;
	}
}

void scenario(void)
{
	uint32_t pending[LINES], first;
	bool is_empty, has_served;

	memset(raised, 0, sizeof raised);
	memset(handed, 0, sizeof handed);
	raises = services = 0;
	is_woken = in_handler = has_handlers = false;
	take_any_state();
	must_be_valid();
	for (uint32_t n = 0; n < LINES; n++)
		pending[n] = unserved(n);
	is_empty = queue_in == queue_out;
	first = queue[queue_out % YK_MAX_LINES];

	has_handlers = true;
	has_served = yk_serve();
	has_handlers = false;

	must_be_valid();
	for (uint32_t n = 0; n < LINES; n++) {
		must("K2 served and pending raises are what was raised",
		     handed[n] + unserved(n) == pending[n] + raised[n]);
		must("K2 no other line's raises are handed over",
		     !handed[n] || (services == 1 && serviced == n));
	}
	must("K2 what is in the queue is served", is_empty || has_served);
	must("K2 first come, first served", is_empty || !services || serviced == first);
	must("K2 the pending raises of the line are handed over",
	     is_empty || handed[first] >= pending[first]);
	must("K2 a raise wakes the background", is_woken || !raises);
}
