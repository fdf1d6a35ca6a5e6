/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "link.h"

enum { FLAG = 0x7e, ESCAPE = 0x7d, FLIP = 0x20, HEAD = 2, CHECK = 2 };
/* What the CRC is before the first byte, and after that of a frame, its own bytes included. */
enum { CRC_BEGIN = 0xffff, CRC_GOOD = 0xf0b8 };

static uint16_t with(uint16_t crc, uint8_t byte)
{
	crc ^= byte;
	for (uint32_t n = 0; n < 8; n++)
		crc = (uint16_t)(crc >> 1 ^ (crc & 1 ? 0x8408 : 0));
	return crc;
}

/* A number after this one. */
static uint8_t after(uint8_t number)
{
	return number == 255 ? 1 : (uint8_t)(number + 1);
}

/* Is it the frame to expect, or one after it? Counts what it is else. */
static bool is_in_order(struct yk_link *link, uint8_t number)
{
	/* Numbers have 255 places, 0 but once. How many were skipped? */
	uint32_t expected = after(link->last);
	uint32_t skipped = (number + 255u - expected) % 255;
	bool is_first = !link->has_begun || (number == 0 && link->last != 0);

	if (!is_first && number == link->last) {
		link->doubled++;
		return false;
	}
	if (!is_first && skipped > 127) {
		link->late++;
		return false;
	}
	link->missed += is_first ? 0 : skipped;
	link->has_begun = true;
	link->last = number;
	return true;
}

static bool ends(struct yk_link *link)
{
	uint32_t taken = link->taken;

	/* A flag may end a frame and begin the next. */
	if (taken == 0 && !link->is_escaped)
		return false;
	if (taken < HEAD + CHECK || taken - HEAD - CHECK != link->head[1] ||
	    taken > HEAD + YK_LINK_MOST + CHECK || link->is_escaped) {
		link->cut++;
		return false;
	}
	if (link->crc != CRC_GOOD) {
		link->wrong++;
		return false;
	}
	if (!is_in_order(link, link->head[0]))
		return false;
	link->length = link->head[1];
	link->came++;
	return true;
}

bool yk_link_take(struct yk_link *link, uint8_t byte)
{
	uint32_t at = link->taken;

	if (byte == FLAG) {
		bool is_whole = ends(link);

		link->taken = 0;
		link->is_escaped = false;
		return is_whole;
	}
	if (byte == ESCAPE) {
		link->is_escaped = true;
		return false;
	}
	if (link->is_escaped) {
		link->is_escaped = false;
		byte ^= FLIP;
	}
	if (at < HEAD)
		link->head[at] = byte;
	else if (at - HEAD < YK_LINK_MOST)
		link->bytes[at - HEAD] = byte;
	/* Too long: it stays so, however much comes. */
	if (at < HEAD + YK_LINK_MOST + CHECK + 1)
		link->taken = at + 1;
	link->crc = with(at ? link->crc : CRC_BEGIN, byte);
	return false;
}

static void send(uint8_t byte, bool (*put)(uint8_t byte))
{
	if (byte == FLAG || byte == ESCAPE) {
		put(ESCAPE);
		byte ^= FLIP;
	}
	put(byte);
}

void yk_link_send(struct yk_link *link, const uint8_t *bytes, uint32_t length,
		  bool (*put)(uint8_t byte))
{
	uint8_t head[HEAD] = { link->next, (uint8_t)length };
	uint16_t crc = CRC_BEGIN;

	link->next = after(link->next);
	put(FLAG);
	for (uint32_t n = 0; n < HEAD + length; n++) {
		uint8_t byte = n < HEAD ? head[n] : bytes[n - HEAD];

		crc = with(crc, byte);
		send(byte, put);
	}
	send((uint8_t)~crc, put);
	send((uint8_t)(~crc >> 8), put);
	put(FLAG);
}
