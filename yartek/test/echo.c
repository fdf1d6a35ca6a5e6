/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sends back what comes over the serial line. `q` ends it, once all is sent. */
#include "console.h"
#include "port.h"
#include "serial.h"

static bool is_over;

void serve(uint32_t raises);

void serve(uint32_t raises)
{
	uint8_t byte;

	(void)raises;
	while (yk_serial_room() && yk_serial_get(&byte)) {
		is_over |= byte == 'q';
		if (!is_over)
			yk_serial_put(byte);
	}
}

static void say(const char *what, uint32_t number)
{
	yk_console_text(what);
	yk_console_byte(' ');
	yk_console_decimal(number);
	yk_console_byte('\n');
}

bool yk_background(void)
{
	const struct yk_line *line = &yk_table.lines[0];

	if (!is_over || yk_serial_room() < YK_SERIAL_OUT)
		return false;
	say("lost", yk_serial_lost());
	say("raised", line->raised);
	say("unserved", line->raised - line->served);
	say("masked", line->masked);
	say("jobs", yk_stats(0)->ended);
	yk_port_exit(0);
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	(void)job;
	(void)address;
	say("fault", why);
	yk_port_exit(1);
}

int main(void)
{
	yk_serial_begin(0);
	yk_run();
}
