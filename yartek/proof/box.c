/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K7, box: a reader gets a whole value, the latest when it began to read or a newer one. A box of
 * three words whose count is at a wrap: the reader is interrupted by writes at any access, or the
 * writer by reads.
 */
#include "yartek.h"
#include "sides.h"

enum { SIZE = 3 };

static volatile uint32_t words[2 * SIZE];
static struct yk_box box;
/* Values are three times their number. */
static uint32_t written;

static void write_one(void)
{
	uint32_t value[SIZE];

	for (uint32_t n = 0; n < SIZE; n++)
		value[n] = written + 1;
	yk_box_write(&box, value);
	written++;
}

static void read_one(void)
{
	uint32_t value[SIZE], before = written;
	uint32_t of = yk_box_read(&box, value);

	must("K7 a value is that of its write", value[0] == of);
	must("K7 a value is whole", value[0] == value[1] && value[1] == value[2]);
	must("K7 a value is not older than the begin of the read, nor newer than its end",
	     of - before <= written - before);
}

void scenario(void)
{
	begin_sides();
	box = (struct yk_box){ .words = words, .size = SIZE };
	for (uint32_t n = 0; n < 2 * SIZE; n++)
		words[n] = 0;
	/* Begins at a wrap, or without a value. */
	if (choose(2))
		box.written = written = UINT32_MAX - 1;
	else
		written = 0;
	if (written)
		write_one();

	is_at_work = true;
	if (writer_is_above) {
		read_one();
	} else {
		write_one();
		write_one();
	}
	is_at_work = false;
	read_one();
}
