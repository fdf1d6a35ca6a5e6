/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The latest value, from one level to others.
 *
 * Problem:  a reader above the writer cannot wait until a write ends; one below may be interrupted
 *           by several.
 * Approach: two places. The writer fills the older one, then counts. A reader above it finds the
 *           newer one whole; one below sees by the count that it has to read again.
 */
#include "yartek.h"

static volatile uint32_t *place(const struct yk_box *box, uint32_t written)
{
	return written & 1 ? box->words + box->size : box->words;
}

void yk_box_write(struct yk_box *box, const uint32_t *value)
{
	uint32_t written = box->written + 1;
	volatile uint32_t *words = place(box, written);

	for (uint32_t n = 0; n < box->size; n++)
		words[n] = value[n];
	box->written = written;
}

uint32_t yk_box_read(const struct yk_box *box, uint32_t *value)
{
	uint32_t written;

	do {
		const volatile uint32_t *words;

		written = box->written;
		words = place(box, written);
		for (uint32_t n = 0; n < box->size; n++)
			value[n] = words[n];
	} while (written != box->written);
	return written;
}
