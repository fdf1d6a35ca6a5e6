/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What compilers call by themselves. Libraries of some compilers hold code for other processors. */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
	uint8_t *out = to;
	const uint8_t *in = from;

	while (bytes--)
		*out++ = *in++;
	return to;
}

void *memset(void *to, int byte, size_t bytes)
{
	uint8_t *out = to;

	while (bytes--)
		*out++ = (uint8_t)byte;
	return to;
}
