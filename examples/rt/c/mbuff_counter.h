// SPDX-License-Identifier: Apache-2.0 OR MIT
#define NAME "counter"

/* Two words, each whole by itself: they may be of two different counts. */
struct counter {
	unsigned long number;
	hrtime_t at_ns;
};
