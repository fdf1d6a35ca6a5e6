/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Bytes from one level to another.
 *
 * Problem:  each side may be interrupted by the other at any instruction, and nothing is masked.
 * Approach: two counts, each of one side; the byte is there before it is counted.
 */
#include "yartek.h"

bool yk_ring_put(struct yk_ring *ring, uint8_t byte)
{
	uint32_t in = ring->in;

	if (in - ring->out == ring->size) {
		ring->refused++;
		return false;
	}
	ring->bytes[in & (ring->size - 1)] = byte;
	/* The reader looks at the place once it sees this. */
	ring->in = in + 1;
	return true;
}

bool yk_ring_get(struct yk_ring *ring, uint8_t *byte)
{
	uint32_t out = ring->out;

	if (out == ring->in)
		return false;
	*byte = ring->bytes[out & (ring->size - 1)];
	/* From here on the writer may use the place again. */
	ring->out = out + 1;
	return true;
}

uint32_t yk_ring_length(const struct yk_ring *ring)
{
	return ring->in - ring->out;
}
