/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For scenarios with a writer and a reader: one works, the other interrupts it at any access, up to
 * ACTIONS times. Include it once.
 */
#ifndef SIDES_H
#define SIDES_H

#include "explore.h"

enum { ACTIONS = 4 };

/* Who interrupts: the writer, or the reader. The scenario sets it, and when the other works. */
static bool writer_is_above, is_at_work;
static bool is_above;
static uint32_t actions;

static void write_one(void);
static void read_one(void);

static void begin_sides(void)
{
	writer_is_above = choose(2);
	is_at_work = is_above = false;
	actions = 0;
}

void at_access(void)
{
	if (!is_at_work || is_above)
		return;
	is_above = true;
	for (; actions < ACTIONS && choose(2); actions++)
		if (writer_is_above)
			write_one();
		else
			read_one();
	is_above = false;
}

#endif
