/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K7, ring: no byte is lost, doubled, torn or out of order. A ring of two bytes whose counts are at
 * a wrap: one side works, and the other interrupts it at any access.
 */
#include "yartek.h"
#include "sides.h"

enum { SIZE = 2, STEPS = 3 };

static volatile uint8_t bytes[SIZE];
static struct yk_ring ring;
/* Bytes put and taken so far: 0, 1, 2, ... Those put that found no room have no number. */
static uint8_t put, got;
static uint32_t refused;

static void write_one(void)
{
	if (yk_ring_put(&ring, put))
		put++;
	else
		refused++;
	must("K7 the ring counts the bytes that it refuses", ring.refused == refused);
}

static void read_one(void)
{
	uint8_t byte;

	if (!yk_ring_get(&ring, &byte))
		return;
	must("K7 bytes come out as they went in", byte == got);
	got++;
}

static void must_have_length(uint32_t least, uint32_t most)
{
	uint32_t length = yk_ring_length(&ring);

	must("K7 the length is that of an instant", length >= least && length <= most);
}

void scenario(void)
{
	uint32_t length;

	begin_sides();
	ring = (struct yk_ring){ .bytes = bytes, .size = SIZE };
	ring.in = ring.out = choose(2) ? UINT32_MAX : UINT32_MAX - 1;
	put = got = 0;
	refused = 0;
	for (length = choose(SIZE + 1); length; length--)
		write_one();

	is_at_work = true;
	for (uint32_t n = 0; n < STEPS; n++) {
		uint32_t before = (uint8_t)(put - got);

		if (writer_is_above) {
			must_have_length(before, SIZE);
			read_one();
		} else {
			must_have_length(0, before);
			write_one();
		}
	}
	is_at_work = false;
	while ((uint8_t)(put - got))
		read_one();
	must("K7 an empty ring has no byte", !yk_ring_length(&ring));
}
