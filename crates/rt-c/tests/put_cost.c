// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What a put of 64 bytes costs: so many puts into a FIFO that holds them all. Run it under a
 * counter of instructions, twice, with different counts; the difference is that of the puts. No
 * reader is needed: the writer looks at the reader's position when its own knowledge leaves no
 * room, and at nothing else of it.
 *
 *   put_cost rtf COUNT    by its number
 *   put_cost fifo COUNT   by its pointer */
#include <asmp_rt.h>

#include <stdlib.h>
#include <string.h>

static const char record[64] = "record";

static int by_number(int count)
{
	if (rtf_create(0, sizeof(record) * count) != 0)
		return 1;
	for (int put = 0; put < count; put++)
		if (rtf_put(0, (void *)record, sizeof(record)) != sizeof(record))
			return 2;
	return rtf_destroy(0) != 0;
}

static int by_pointer(int count)
{
	struct asmp_fifo *fifo = asmp_fifo_create("cost", count, sizeof(record), 0);

	if (fifo == NULL)
		return 1;
	for (int put = 0; put < count; put++)
		if (asmp_fifo_put(fifo, record, sizeof(record)) != 0)
			return 2;
	asmp_fifo_close(fifo);
	return 0;
}

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[2]) : 0;

	if (count < 1)
		return 1;
	return strcmp(argv[1], "rtf") == 0 ? by_number(count) : by_pointer(count);
}
