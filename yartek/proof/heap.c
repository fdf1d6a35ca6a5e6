/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K8: each sequence of STEPS calls on a heap of UNITS units, beside a model that knows which units
 * are taken. No two blocks overlap, first fit, freed neighbours join, what is no block is refused.
 */
#include "../modules/heap.h"
#include "explore.h"

#include <stddef.h>
#include <string.h>

enum { UNITS = 7, STEPS = 6, UNIT = sizeof(struct yk_unit) };

void at_access(void)
{
}

/* One more at each end, which must stay as it is. */
static struct yk_unit memory[UNITS + 2];
static struct yk_unit *const units = memory + 1;
static struct yk_heap heap;
/* Of each unit that a block begins with: how many units it has, head included. 0: none begins. */
static uint32_t blocks[UNITS];

static uint8_t *bytes_of(uint32_t at)
{
	return (uint8_t *)(units + at + 1);
}

static bool is_free(uint32_t unit)
{
	for (uint32_t at = 0; at <= unit; at++)
		if (at + blocks[at] > unit)
			return false;
	return true;
}

/* Units in a row that are free, from this one on. */
static uint32_t gap_at(uint32_t at)
{
	uint32_t gap = 0;

	while (at + gap < UNITS && is_free(at + gap))
		gap++;
	return gap;
}

/* The bytes of each block are as its owner has left them: its number. */
static void must_be_whole(void)
{
	uint32_t largest = 1;

	for (uint32_t at = 0; at < UNITS; at++) {
		for (uint32_t n = 0; blocks[at] && n < (blocks[at] - 1) * UNIT; n++)
			must("K8 nothing writes into a block in use", bytes_of(at)[n] == at + 1);
		if (gap_at(at) > largest)
			largest = gap_at(at);
	}
	must("K8 free neighbours are one block", yk_heap_largest(&heap) == (largest - 1) * UNIT);
	must("K8 nothing is written outside of the heap",
	     memory[0].units == 77 && memory[UNITS + 1].units == 77);
}

static void alloc(void)
{
	static const uint32_t sizes[] = { 0, 8, 9, 24, UNITS * UNIT, UINT32_MAX };
	uint32_t bytes = sizes[choose(6)], at = 0;
	/* As 64 bits hold it. */
	uint64_t need = 1 + ((bytes ? bytes : 1) + (uint64_t)UNIT - 1) / UNIT;
	uint8_t *block = yk_heap_alloc(&heap, bytes);

	while (at < UNITS && gap_at(at) < need)
		at += blocks[at] ? blocks[at] : 1;
	if (at >= UNITS) {
		must("K8 a block is refused only if none is large enough", !block);
		return;
	}
	must("K8 a block is at the first place where it fits", block == bytes_of(at));
	blocks[at] = (uint32_t)need;
	memset(block, (int)at + 1, (need - 1) * UNIT);
}

static void release(uint32_t at)
{
	bool is_block = blocks[at];

	must("K8 a block in use is freed, and nothing else is",
	     yk_heap_free(&heap, bytes_of(at)) == is_block);
	blocks[at] = 0;
}

void scenario(void)
{
	memset(memory, 0, sizeof memory);
	memset(blocks, 0, sizeof blocks);
	memory[0].units = memory[UNITS + 1].units = 77;
	yk_heap_begin(&heap, units, UNITS);
	must_be_whole();
	for (uint32_t n = 0; n < STEPS; n++) {
		uint32_t at = choose(UNITS + 1);

		if (at == UNITS)
			alloc();
		else
			release(at);
		must_be_whole();
	}
	must("K8 what is nowhere is no block", !yk_heap_free(&heap, NULL));
	for (uint32_t at = 0; at < UNITS; at++)
		if (blocks[at])
			release(at);
	must("K8 all freed are one block", yk_heap_largest(&heap) == (UNITS - 1) * UNIT);
}
