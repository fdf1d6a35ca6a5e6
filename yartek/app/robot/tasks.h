/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The tasks of the robot of Yartek (Mumolo, Nolich, Lenac 2008, section 5.2). robot.toml has their
 * periods and costs, and names the functions of the jobs.
 */
#ifndef ROBOT_TASKS_H
#define ROBOT_TASKS_H

#include "map.h"
#include "world.h"

#include "yartek.h"

/* 12.8 m by 6.4 m. */
enum { ROBOT_COLUMNS = 256, ROBOT_ROWS = 128 };
/* Only so many readings count in the map: those of 6 minutes or so. */
#ifndef ROBOT_READINGS
#define ROBOT_READINGS 4096
#endif

/* Before yk_run(). */
void robot_begin(enum world_beam beam);

/* --- For the background. The job of update_map does what is asked for. --- */

/* Empties the map. The robot stays where it is. */
void robot_clear(void);
/* Keeps the map as it is then, for robot_read(). */
void robot_compute(void);
/* Has all been done? */
bool robot_is_done(void);
/* Reads the map that was kept last. The next robot_compute() must come after the last byte. */
void robot_read(struct map_reader *reader);

/* --- The application's. --- */

/* Microseconds since the epoch, for jobs. They wrap after 71 minutes. */
uint32_t robot_us(void);

/* What the map is made of, in this order. */
enum robot_event {
	/* Number of the sonar; both counters as it fired, right << 16 | left; us, 0: no echo. */
	ROBOT_SONAR,
	/* Wheel, counter. */
	ROBOT_ODOMETER,
	/* update_map has counted all readings so far. */
	ROBOT_UPDATE,
	ROBOT_ANTISENSOR,
	ROBOT_CLEAR,
	ROBOT_COMPUTE
};

/* Sees each event, within the job. */
void robot_saw(enum robot_event event, uint32_t a, uint32_t b, uint32_t c);

#endif
