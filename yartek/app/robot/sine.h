/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sines without floating point, and without a product or quotient of 64 bits. */
#ifndef ROBOT_SINE_H
#define ROBOT_SINE_H

#include <stdint.h>

/* A full turn is 65536. Angles are counted to the left, and wrap. */
enum { QUARTER_TURN = 16384 };
/* What sine() gives for the sine 1. */
enum { SINE_ONE = 16384 };

/*
 * Of the sines at the 64th parts of a quarter turn, rounded, and in between on the straight line
 * from one to the next, rounded: floor((256 - p) a + p b + 128) / 256) with p in 0..255. The other
 * three quarters are mirrored. Off by 0.01 % of 1 at most.
 */
int32_t sine(uint32_t angle);
int32_t cosine(uint32_t angle);

#endif
