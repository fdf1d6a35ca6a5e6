// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The other side of mbuff_counter.c, an ordinary program: prints the number COUNT times (10), ten
 * times a second. Only names of RTLinux. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rtl_time.h>
#include <mbuff.h>

#include "mbuff_counter.h"

int main(int argc, char **argv)
{
	volatile struct counter *counter = mbuff_attach(NAME, sizeof(*counter));

	if (counter == NULL) {
		perror("mbuff_attach");
		return 1;
	}
	for (int left = argc == 2 ? atoi(argv[1]) : 10; left > 0; left--) {
		printf("%lu\n", counter->number);
		fflush(stdout);
		usleep(100000);
	}
	mbuff_detach(NAME, (void *)counter);
	return 0;
}
