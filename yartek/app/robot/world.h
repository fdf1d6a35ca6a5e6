/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What answers the robot's pins and encoders, since no board of QEMU has any: three rooms, and a
 * robot that drives through them on a fixed path. It is no part of the robot's program, and
 * `asmp yartek build` lists its size apart. But a job that asks it pays for the answer.
 *
 * Times are microseconds since the start of the drive. Calls must come in the order of time, and
 * from one level.
 */
#ifndef ROBOT_WORLD_H
#define ROBOT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

enum { WORLD_SONARS = 6, WORLD_WHEELS = 2 };

/* What a sonar hears. */
enum world_beam {
	/* The wall in its direction. */
	WORLD_IDEAL,
	/* The nearest wall within 12.5 degrees of its direction. */
	WORLD_CONE
};

struct world_pose {
	int32_t x_mm;
	int32_t y_mm;
	/* As in sine.h; 0 is to the right. */
	uint32_t angle;
};

/* Puts the robot to the start of its path. */
void world_begin(enum world_beam beam);
/* The counter of a wheel, 0 is the left one: 32 a millimetre, of 16 bits. It wraps. */
uint16_t world_encoder(uint32_t wheel, uint32_t us);
/* Fires a sonar. */
void world_fire(uint32_t sonar, uint32_t us);
/* Its pin: high once the echo of what it fired last has come back. Nothing comes from 3 m on. */
bool world_pin(uint32_t sonar, uint32_t us);

/* --- The truth, for tests. --- */

struct world_pose world_pose(uint32_t us);
/* In mm, up to where the nearest echo of a sonar comes from. 3000: none. */
uint32_t world_distance(uint32_t sonar, uint32_t us);

#endif
