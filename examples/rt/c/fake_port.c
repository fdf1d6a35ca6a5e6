// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A port that is a line of text on stdout: "PORT VALUE". */
#include <stdio.h>
#include <unistd.h>

void outb(unsigned char value, unsigned short port)
{
	char line[16];
	int length = snprintf(line, sizeof(line), "%x %u\n", port, value);

	/* One write a line: a reader sees whole lines, also when the thread is cancelled next. */
	if (write(1, line, length) != length)
		_exit(9);
}
