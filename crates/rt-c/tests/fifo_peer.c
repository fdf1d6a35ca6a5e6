// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The time-sharing side of fifo_echo.c: writes numbers to FIFO 1 and expects them back from FIFO 2.
 *
 *   fifo_peer COUNT  so many, then "echoed"; 0: for ever
 *   fifo_peer read   reads FIFO 2 until its real-time side is gone, then writes to FIFO 1; prints
 *                    what that answers */
#include <asmp_rt.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct rtf_file *in, *out;
	unsigned int got = 0, number, mark = 0x80000000u | getpid();
	unsigned int count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;

	if (rtf_open_np(1, O_WRONLY, &in) != 0 || rtf_open_np(2, O_RDONLY, &out) != 0)
		return 2;
	puts("open");
	fflush(stdout);
	if (argc == 2 && strcmp(argv[1], "read") == 0) {
		long result;

		while ((result = rtf_read_np(out, &number, sizeof(number))) > 0)
			;
		printf("%ld", result);
		while ((result = rtf_write_np(in, &number, sizeof(number))) > 0)
			;
		printf(" %ld\n", result);
		return 0;
	}
	/* What a peer killed before us has left comes first, whole or in part: a mark of this process
	 * stands before ours. */
	number = mark;
	if (rtf_write_np(in, &number, sizeof(number)) != sizeof(number))
		return 3;
	for (unsigned char byte; got != mark; got = got >> 8 | (unsigned int)byte << 24)
		if (rtf_read_np(out, &byte, 1) != 1)
			return 4;
	for (number = 0; count == 0 || number < count; number++) {
		if (rtf_write_np(in, &number, sizeof(number)) != sizeof(number))
			return 5;
		for (size_t have = 0; have < sizeof(got);) {
			long result = rtf_read_np(out, (char *)&got + have, sizeof(got) - have);

			if (result <= 0)
				return 6;
			have += result;
		}
		if (got != number)
			return 7;
	}
	puts("echoed");
	return 0;
}
