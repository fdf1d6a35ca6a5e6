/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The jobs do not preempt each other, so they share plain variables, and no two sonars sound at
 * once. Where it differs from the paper's pseudocode:
 * - A sonar's job reads the counters of the wheels, too. Those of the odometers' jobs are up to
 *   1.2 s old, 0.24 m of the robot's way.
 * - A counter's difference is that of 16 bits. The paper's is one tick too small at each wrap, and
 *   takes a wheel that turns back for one that has wrapped.
 * - A reading is kept as its cell. The paper computes it anew to take it back.
 * - The map that is sent is a copy, made by the job that changes it, so it is of one moment.
 */
#include "tasks.h"

#include <stddef.h>

void get_sonar1(const struct yk_job *job);
void get_sonar2(const struct yk_job *job);
void get_sonar3(const struct yk_job *job);
void get_sonar4(const struct yk_job *job);
void get_sonar5(const struct yk_job *job);
void get_sonar6(const struct yk_job *job);
void update_map(const struct yk_job *job);
void get_odo1(const struct yk_job *job);
void get_odo2(const struct yk_job *job);
void anti_sensor(const struct yk_job *job);

enum {
	CELLS = ROBOT_COLUMNS * ROBOT_ROWS,
	/* 3 m, there and back. */
	MOST_US = 17500,
	/* Up to 20 cm the sonar hears itself. */
	LEAST_US = 1166,
	LEFT = 0,
	RIGHT = 1,
	/* Each sonar sounds once between two jobs of update_map; twice, if one of these is late. */
	MOST_PENDING = 2 * WORLD_SONARS
};

struct reading {
	uint32_t sonar;
	int32_t left, right;
	/* 0: no echo. */
	uint32_t us;
};

static uint8_t cells[CELLS];
static uint16_t last[ROBOT_READINGS];
static struct map map = { cells, ROBOT_COLUMNS, ROBOT_ROWS, last, ROBOT_READINGS, 0 };
static struct map_place place;
/* What the wheels have counted since the start, as they were read last. */
static int32_t counted[WORLD_WHEELS];
static struct reading pending[MOST_PENDING];
static uint32_t pendings;
static uint8_t computed[CELLS];

/* Of the background: how often it asked. They wrap. */
static volatile uint32_t asked_clear, asked_compute;
/* Of the jobs. */
static volatile uint32_t done_clear, done_compute;

void robot_begin(enum world_beam beam)
{
	world_begin(beam);
	counted[LEFT] = 0;
	counted[RIGHT] = 0;
	place = map_start(0, 0);
	pendings = 0;
	map_clear(&map);
}

static uint16_t read_wheel(uint32_t wheel, uint32_t us)
{
	uint16_t counter = world_encoder(wheel, us);

	counted[wheel] = map_counted(counted[wheel], counter);
	return counter;
}

/* Fires it, and waits for the echo: 0, if none comes. */
static uint32_t listen(uint32_t sonar, uint32_t fired)
{
	uint32_t us;

	world_fire(sonar, fired);
	do {
		us = robot_us() - fired;
		if (us >= LEAST_US && world_pin(sonar, fired + us))
			return us < MOST_US ? us : 0;
	} while (us < MOST_US);
	return 0;
}

static void get_sonar(uint32_t sonar)
{
	uint32_t fired = robot_us();
	uint32_t left = read_wheel(LEFT, fired), right = read_wheel(RIGHT, fired);
	uint32_t us = listen(sonar, fired);

	if (pendings < MOST_PENDING)
		pending[pendings++] = (struct reading){ sonar, counted[LEFT], counted[RIGHT], us };
	robot_saw(ROBOT_SONAR, sonar, right << 16 | left, us);
}

void get_sonar1(const struct yk_job *job)
{
	(void)job;
	get_sonar(0);
}

void get_sonar2(const struct yk_job *job)
{
	(void)job;
	get_sonar(1);
}

void get_sonar3(const struct yk_job *job)
{
	(void)job;
	get_sonar(2);
}

void get_sonar4(const struct yk_job *job)
{
	(void)job;
	get_sonar(3);
}

void get_sonar5(const struct yk_job *job)
{
	(void)job;
	get_sonar(4);
}

void get_sonar6(const struct yk_job *job)
{
	(void)job;
	get_sonar(5);
}

static void get_odo(uint32_t wheel)
{
	robot_saw(ROBOT_ODOMETER, wheel, read_wheel(wheel, robot_us()), 0);
}

void get_odo1(const struct yk_job *job)
{
	(void)job;
	get_odo(LEFT);
}

void get_odo2(const struct yk_job *job)
{
	(void)job;
	get_odo(RIGHT);
}

static void serve_background(void)
{
	if (done_clear != asked_clear) {
		map_clear(&map);
		done_clear++;
		robot_saw(ROBOT_CLEAR, 0, 0, 0);
	}
	if (done_compute != asked_compute) {
		for (uint32_t cell = 0; cell < CELLS; cell++)
			computed[cell] = cells[cell];
		done_compute++;
		robot_saw(ROBOT_COMPUTE, 0, 0, 0);
	}
}

void update_map(const struct yk_job *job)
{
	/* From -75 to 75 degrees. */
	static const int32_t directions[] = { -13653, -8192, -2731, 2731, 8192, 13653 };

	(void)job;
	for (uint32_t n = 0; n < pendings; n++) {
		const struct reading *reading = &pending[n];

		map_move(&place, reading->left, reading->right);
		if (reading->us)
			map_reading(&map, &place, (uint32_t)directions[reading->sonar], reading->us);
	}
	pendings = 0;
	robot_saw(ROBOT_UPDATE, 0, 0, 0);
	serve_background();
}

void anti_sensor(const struct yk_job *job)
{
	struct map_place now = place;

	(void)job;
	map_move(&now, counted[LEFT], counted[RIGHT]);
	map_antisensor(&map, &now);
	robot_saw(ROBOT_ANTISENSOR, 0, 0, 0);
}

void robot_clear(void)
{
	asked_clear++;
}

void robot_compute(void)
{
	asked_compute++;
}

bool robot_is_done(void)
{
	return done_clear == asked_clear && done_compute == asked_compute;
}

void robot_read(struct map_reader *reader)
{
	map_read(reader, computed, ROBOT_COLUMNS, ROBOT_ROWS);
}
