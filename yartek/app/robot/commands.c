/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "commands.h"

#include "link.h"
#include "serial.h"
#include "tasks.h"

enum { SEND_BYTES = 3 };

static struct yk_link link;
/* What the jobs are asked to do, to be answered once they have. 0: nothing. */
static uint8_t due;
static struct map_reader reader;
/* The next piece of the reader. */
static uint32_t next;

/* An answer that finds no room is lost, as others are. */
static void answer(const uint8_t *bytes, uint32_t length)
{
	if (yk_serial_room() >= YK_LINK_ROOM(length))
		yk_link_send(&link, bytes, length, yk_serial_put);
}

/* The next bytes, up to the size of a piece. */
static uint32_t read_piece(uint8_t *bytes)
{
	uint32_t count = 0;

	while (count < COMMAND_PIECE && map_next(&reader, &bytes[count]))
		count++;
	next++;
	return count;
}

static void send_piece(uint32_t piece)
{
	uint8_t bytes[SEND_BYTES + COMMAND_PIECE] = { COMMAND_SEND, (uint8_t)(piece >> 8),
						      (uint8_t)piece };
	uint32_t count = COMMAND_PIECE;

	/* One that was sent already: from the begin. */
	if (piece < next) {
		robot_read(&reader);
		next = 0;
	}
	do
		count = read_piece(bytes + SEND_BYTES);
	while (next <= piece && count == COMMAND_PIECE);
	/* Behind the last there is nothing. */
	answer(bytes, SEND_BYTES + (next > piece ? count : 0));
}

static void obey(void)
{
	static const uint8_t unknown = COMMAND_UNKNOWN;
	const uint8_t *bytes = link.bytes;

	/* Asked again, or too early. */
	if (due)
		return;
	if (link.length == 1 && (*bytes == COMMAND_CLEAR || *bytes == COMMAND_COMPUTE)) {
		due = *bytes;
		if (due == COMMAND_CLEAR)
			robot_clear();
		else
			robot_compute();
	} else if (link.length == SEND_BYTES && *bytes == COMMAND_SEND) {
		send_piece((uint32_t)bytes[1] << 8 | bytes[2]);
	} else {
		answer(&unknown, 1);
	}
}

bool commands_serve(void)
{
	uint8_t byte;

	if (due && robot_is_done()) {
		answer(&due, 1);
		due = 0;
		robot_read(&reader);
		next = 0;
	}
	while (yk_serial_get(&byte)) {
		if (yk_link_take(&link, byte)) {
			obey();
			return true;
		}
	}
	return false;
}

bool commands_came(void)
{
	return link.came;
}
