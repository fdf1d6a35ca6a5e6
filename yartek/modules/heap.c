/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  free blocks in a list need two pointers each, and a block that is freed twice is in it
 *           twice.
 * Approach: no list. The blocks lie side by side, and each says how long it is. A walk over them
 *           finds the first that fits, and the neighbours of one that is freed.
 */
#include "heap.h"

#include <stddef.h>

void yk_heap_begin(struct yk_heap *heap, struct yk_unit *units, uint32_t count)
{
	*heap = (struct yk_heap){ .units = units, .count = count };
	units[0] = (struct yk_unit){ .units = count };
}

enum { UNIT = sizeof(struct yk_unit) };

/* So many bytes and the head. */
static uint32_t units_of(uint32_t bytes)
{
	return 1 + bytes / UNIT + (bytes % UNIT != 0);
}

void *yk_heap_alloc(struct yk_heap *heap, uint32_t bytes)
{
	/* A block without bytes would have the address of the next. */
	uint32_t units = units_of(bytes ? bytes : 1);
	struct yk_unit *end = heap->units + heap->count;

	for (struct yk_unit *at = heap->units; at < end; at += at->units) {
		if (at->is_used || at->units < units)
			continue;
		if (at->units > units)
			at[units] = (struct yk_unit){ .units = at->units - units };
		*at = (struct yk_unit){ .units = units, .is_used = 1 };
		return at + 1;
	}
	return NULL;
}

bool yk_heap_free(struct yk_heap *heap, void *block)
{
	struct yk_unit *end = heap->units + heap->count, *before = NULL;

	for (struct yk_unit *at = heap->units; at < end; before = at, at += at->units) {
		struct yk_unit *after = at + at->units;

		if (at + 1 != block)
			continue;
		if (!at->is_used)
			return false;
		at->is_used = 0;
		if (after < end && !after->is_used)
			at->units += after->units;
		if (before && !before->is_used)
			before->units += at->units;
		return true;
	}
	return false;
}

uint32_t yk_heap_largest(const struct yk_heap *heap)
{
	const struct yk_unit *end = heap->units + heap->count;
	uint32_t largest = 1;

	for (const struct yk_unit *at = heap->units; at < end; at += at->units)
		if (!at->is_used && at->units > largest)
			largest = at->units;
	return (largest - 1) * (uint32_t)sizeof(struct yk_unit);
}
