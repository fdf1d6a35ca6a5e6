/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K7, serial line: what the background puts is sent, and what comes is got, each byte once and in
 * order, whichever access of the background the handler interrupts. Two models of a device: one
 * interrupts as long as it has a reason; the other once for each reason that arises.
 */
#include "../kernel/port.h"
#include "../modules/serial.h"
#include "explore.h"

#include <string.h>

enum { STEPS = 4, EVENTS = 3, LINE = 5 };
/*
 * Bytes that may come in the longest busy period of the paper's robot, 280 ms, at 960 a second. As
 * many are sent meanwhile. MOST: the `most` of its line.
 */
enum { IN_A_BUSY_PERIOD = 269 };

/* Of serial.c, which exports them for this. */
extern struct yk_ring in, out;

static void (*handler)(void);
/* The device. It holds one byte each way. */
static bool is_edge, has_come, is_sending, wants_room, is_pending;
static uint8_t arriving;
/* Numbers of the bytes: 0, 1, 2, ... */
static uint8_t came, got, put, sent;
static uint32_t events, raises, handled;
static bool may_interrupt, in_handler;
/* Raises that no service has been told of. The line is masked at MOST of them. */
static uint32_t unserved;

void yk_port_serial_start(uint32_t line, void (*of)(void))
{
	must("K7 the line is that of the application", line == LINE);
	handler = of;
}

bool yk_port_serial_take(uint8_t *byte)
{
	if (!has_come)
		return false;
	has_come = false;
	*byte = arriving;
	return true;
}

bool yk_port_serial_has_room(void)
{
	return !is_sending;
}

void yk_port_serial_give(uint8_t byte)
{
	must("K7 a byte is given where there is room", !is_sending);
	must("K7 bytes are sent in the order in which they were put", byte == sent);
	sent++;
	is_sending = true;
}

void yk_port_serial_rest(void)
{
	wants_room = false;
}

void yk_port_serial_ask(void)
{
	wants_room = is_pending = true;
}

void yk_raise(uint32_t line)
{
	must("K7 the line is raised", line == LINE);
	raises++;
	unserved++;
}

static bool interrupts(void)
{
	if (unserved >= MOST)
		return false;
	return is_edge ? is_pending : has_come || (wants_room && !is_sending);
}

static void run_handler(void)
{
	/* Each time, it takes or gives a byte, or rests: it comes to an end. */
	for (uint32_t turns = 0; interrupts(); turns++) {
		must("K7 the device falls silent", turns < 16);
		is_pending = false;
		in_handler = true;
		handler();
		in_handler = false;
		handled++;
	}
	must("K7 each interrupt raises the line", raises == handled);
}

static void byte_comes(void)
{
	/* The background runs in between, but in a busy period. */
	if (may_interrupt)
		unserved = 0;
	given(!has_come);
	arriving = came++;
	has_come = is_pending = true;
}

static void byte_is_sent(void)
{
	given(is_sending);
	is_sending = false;
	is_pending = true;
}

void at_access(void)
{
	if (!may_interrupt || in_handler)
		return;
	for (; events < EVENTS && choose(2); events++) {
		if (choose(2))
			byte_comes();
		else
			byte_is_sent();
		run_handler();
	}
	/* It may have been asked for. */
	run_handler();
}

static void get_one(void)
{
	uint8_t byte;

	if (!yk_serial_get(&byte))
		return;
	must("K7 bytes are got in the order in which they came", byte == got);
	got++;
}

static void put_one(void)
{
	uint32_t room = yk_serial_room();

	if (yk_serial_put(put))
		put++;
	else
		must("K7 a byte is refused only where there is no room", room == 0);
}

/* No byte is lost while the background does not run at all. */
static void busy_period(void)
{
	for (uint32_t n = 0; n < IN_A_BUSY_PERIOD; n++) {
		must("K7 no byte is lost in a busy period: the line is masked", !has_come);
		byte_comes();
		run_handler();
		/* A byte has gone meanwhile: the device has room. */
		wants_room = is_pending = true;
		run_handler();
	}
	must("K7 no byte is lost in a busy period", !yk_serial_lost());
	must("K7 all are there", yk_serial_length() == IN_A_BUSY_PERIOD);
	for (uint32_t n = 0; n < IN_A_BUSY_PERIOD; n++)
		get_one();
}

void scenario(void)
{
	is_edge = choose(2);
	has_come = is_sending = wants_room = is_pending = in_handler = may_interrupt = false;
	came = got = put = sent = 0;
	events = raises = handled = unserved = 0;
	in.in = in.out = in.refused = 0;
	out.in = out.out = 0;
	yk_serial_begin(LINE);
	if (choose(2)) {
		busy_period();
		return;
	}
	/* Full, or not at all. */
	if (choose(2)) {
		is_sending = true;
		while (yk_serial_room())
			put_one();
		run_handler();
	}

	may_interrupt = true;
	for (uint32_t n = 0; n < STEPS; n++) {
		if (choose(2))
			put_one();
		else
			get_one();
	}
	may_interrupt = false;

	run_handler();
	while (is_sending) {
		byte_is_sent();
		run_handler();
	}
	must("K7 all that was put is sent", put == sent);
	while (got != came) {
		uint8_t before = got;

		get_one();
		must("K7 all that came is got", got != before);
	}
	must("K7 nothing is lost", !yk_serial_lost() && !out.refused);
}
