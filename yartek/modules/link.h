/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Frames of bytes over a line that loses, changes and doubles bytes.
 *
 * On the line: 7e, then the frame, then 7e. Within the frame 7e and 7d become 7d and the byte xor
 * 20. A frame is its number, its length, as many bytes, and 16 bits of CRC, low byte first: framing
 * and CRC are those of RFC 1662, appendix C. Numbers go from 0 to 255, then on from 1: 0 is the
 * first of a sender that has just begun.
 *
 * Nothing is sent again by itself: to answer and to ask again is up to the application.
 */
#ifndef YK_LINK_H
#define YK_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a frame, its number and so on not counted. */
enum { YK_LINK_MOST = 64 };
/* How many bytes a frame of `length` bytes takes on the line, at most. */
#define YK_LINK_ROOM(length) (2 * ((length) + 4) + 2)

/* One end of a link. It begins as zeros. The counts wrap. */
struct yk_link {
	/* The frame that has come, until the next byte is taken. */
	uint8_t bytes[YK_LINK_MOST];
	uint32_t length;

	/* Frames that came, and those that numbers say were lost before them. */
	uint32_t came;
	uint32_t missed;
	/* Frames that were dropped: a wrong CRC; not as long as they say, or too long; the number of
	 * the frame before; a number from before that. */
	uint32_t wrong;
	uint32_t cut;
	uint32_t doubled;
	uint32_t late;

	/* Of the module. What has come of a frame, and its CRC so far. */
	uint8_t head[2];
	uint32_t taken;
	uint16_t crc;
	bool is_escaped;
	bool has_begun;
	uint8_t last;
	/* Of the sender. */
	uint8_t next;
};

/* Takes a byte of the line. `true`: a frame is complete. */
bool yk_link_take(struct yk_link *link, uint8_t byte);
/*
 * Sends a frame of `length` bytes, YK_LINK_MOST at most. `put` sends a byte; there must be room for
 * YK_LINK_ROOM(length).
 */
void yk_link_send(struct yk_link *link, const uint8_t *bytes, uint32_t length,
		  bool (*put)(uint8_t byte));

#endif
