/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory for the background: first fit. Neither handlers nor jobs may call it. A call takes longer
 * the more blocks there are, and one that interrupts another would find the blocks half changed.
 */
#ifndef YK_HEAP_H
#define YK_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* A block is as many of these as it says; the first is its head. */
struct yk_unit {
	_Alignas(8) uint32_t units;
	uint32_t is_used;
};

struct yk_heap {
	struct yk_unit *units;
	uint32_t count;
};

/* Makes one free block of `count` units, one at least. */
void yk_heap_begin(struct yk_heap *heap, struct yk_unit *units, uint32_t count);
/* A block of so many bytes, on a boundary of 8. NULL: no free block is so large. */
void *yk_heap_alloc(struct yk_heap *heap, uint32_t bytes);
/* Joins it with free neighbours. `false`, and nothing is done: it is no block in use. */
bool yk_heap_free(struct yk_heap *heap, void *block);
/* How many bytes the largest block would have that there is room for. */
uint32_t yk_heap_largest(const struct yk_heap *heap);

#endif
