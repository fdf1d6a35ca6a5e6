// SPDX-License-Identifier: Apache-2.0 OR MIT
/* busy: computes for ever and touches its 256 pages in turn. */
#include <stdlib.h>

#define PAGES 256
#define PAGE_BYTES 4096

int main(void)
{
	volatile char *pages = malloc(PAGES * PAGE_BYTES);
	unsigned long turn = 0;

	for (;; turn++)
		pages[turn % PAGES * PAGE_BYTES] = (char)turn;
}
