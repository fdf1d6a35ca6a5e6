/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  distances from a moving robot to walls, on processors without floating point, and
 *           without a product or quotient of 64 bits.
 * Units:    mm, microseconds, the angles and sines of sine.h; a tick of a wheel is 1/32 mm.
 * Approach: a path of straight legs, turns on the spot and halts, each from its own start, so that
 *           nothing adds up. A ray meets a wall where two quotients of cross products say so: one
 *           must be in 0..1, the other is the distance, of which 14 bits are enough.
 */
#include "world.h"

#include "sine.h"

enum {
	TICKS_PER_MM = 32,
	RANGE_MM = 3000,
	SONAR_AT_MM = 200,
	/* 0.2 m/s: 6400 ticks a second. */
	TICKS_NUM = 64,
	US_PER_TICK_NUM = 10000,
	/* 27.5 degrees a second. */
	US_PER_ANGLE = 200,
	US_PER_MS = 1000,
	/* Sound goes 343 mm a millisecond, there and back. */
	ECHO_US_NUM = 2000,
	SOUND_MM_NUM = 343,
	/* Rays in a cone, on each side of its middle, and the angle between two of them. */
	CONE_RAYS = 5,
	CONE_STEP = 455
};

struct wall {
	int16_t from_x, from_y, to_x, to_y;
};

static const struct wall walls[] = {
#define WALL(from_x, from_y, to_x, to_y) { from_x, from_y, to_x, to_y },
#include "rooms.h"
#undef WALL
};

enum { WALLS = sizeof(walls) / sizeof(*walls) };

enum move { GO, TURN, HALT };

struct leg {
	enum move move;
	/* Millimetres, below 4 m; angle to the left; milliseconds. */
	int32_t amount;
};

enum { LEFT = QUARTER_TURN, RIGHT = -QUARTER_TURN, BACK = 2 * QUARTER_TURN };

static const struct leg path[] = {
	/* The first room, around the table. */
	{ GO, 2400 }, { TURN, LEFT }, { GO, 3800 }, { TURN, LEFT }, { GO, 2400 }, { TURN, LEFT },
	{ GO, 3000 }, { TURN, LEFT }, { GO, 2400 }, { TURN, LEFT }, { GO, 1200 }, { TURN, RIGHT },
	/* The second. */
	{ GO, 1600 }, { TURN, LEFT }, { GO, 1800 }, { TURN, RIGHT }, { GO, 2400 }, { TURN, RIGHT },
	{ GO, 3800 }, { TURN, RIGHT }, { GO, 1200 }, { TURN, BACK }, { GO, 1200 }, { TURN, LEFT },
	{ GO, 2000 }, { TURN, RIGHT },
	/* The third. */
	{ GO, 1800 }, { TURN, LEFT }, { GO, 1800 }, { TURN, RIGHT }, { GO, 1200 }, { TURN, RIGHT },
	{ GO, 1400 }, { TURN, LEFT }, { GO, 1000 }, { TURN, RIGHT }, { GO, 1600 }, { TURN, RIGHT },
	{ GO, 2200 },
};

enum { LEGS = sizeof(path) / sizeof(*path) };

/* Someone with a box walks ahead of the robot, faster than it, and then is gone. */
static const struct {
	uint32_t from_ms, to_ms;
	int32_t from_x, to_x, y, half_x, half_y;
} moving = { 1500, 6000, 2300, 3650, 1200, 150, 400 };

/* Where the robot is, exactly. */
struct place {
	/* In 65536th parts of a mm. */
	int32_t x, y;
	uint32_t angle;
	int32_t ticks[WORLD_WHEELS];
};

static struct {
	enum world_beam beam;
	/* Of the present leg; LEGS: it has arrived. */
	uint32_t leg;
	uint32_t leg_us;
	struct place start;
	uint32_t fired_us[WORLD_SONARS];
	uint32_t echo_us[WORLD_SONARS];
} world;

/* As far as the leg goes at most. */
static uint32_t length_us(const struct leg *leg)
{
	uint32_t amount = (uint32_t)(leg->amount < 0 ? -leg->amount : leg->amount);

	switch (leg->move) {
	case GO:
		return amount * TICKS_PER_MM / TICKS_NUM * US_PER_TICK_NUM;
	case TURN:
		return amount * US_PER_ANGLE;
	default:
		return amount * US_PER_MS;
	}
}

/* So long after the start of the leg. */
static struct place along(const struct leg *leg, struct place place, uint32_t us)
{
	int32_t ticks, angle;

	switch (leg->move) {
	case GO:
		ticks = (int32_t)(us * TICKS_NUM / US_PER_TICK_NUM);
		place.x += ticks * cosine(place.angle) >> 3;
		place.y += ticks * sine(place.angle) >> 3;
		place.ticks[0] += ticks;
		place.ticks[1] += ticks;
		break;
	case TURN:
		angle = (int32_t)(us / US_PER_ANGLE);
		angle = leg->amount < 0 ? -angle : angle;
		place.angle += (uint32_t)angle;
		/* A tick of difference is a unit of angle: the wheels are 326 mm apart. */
		place.ticks[0] -= angle / 2;
		place.ticks[1] += angle - angle / 2;
		break;
	default:
		break;
	}
	return place;
}

static struct place place_at(uint32_t us)
{
	while (world.leg < LEGS) {
		const struct leg *leg = &path[world.leg];
		uint32_t length = length_us(leg);

		if (us - world.leg_us < length)
			return along(leg, world.start, us - world.leg_us);
		world.start = along(leg, world.start, length);
		world.leg_us += length;
		world.leg++;
	}
	return world.start;
}

void world_begin(enum world_beam beam)
{
	world.beam = beam;
	world.leg = 0;
	world.leg_us = 0;
	world.start = (struct place){ 1200 << 16, 1200 << 16, 0, { 0, 0 } };
	for (uint32_t sonar = 0; sonar < WORLD_SONARS; sonar++)
		world.echo_us[sonar] = UINT32_MAX;
}

struct world_pose world_pose(uint32_t us)
{
	struct place place = place_at(us);

	return (struct world_pose){ place.x >> 16, place.y >> 16, place.angle & 0xffff };
}

uint16_t world_encoder(uint32_t wheel, uint32_t us)
{
	struct place place = place_at(us);

	return (uint16_t)place.ticks[wheel];
}

struct ray {
	int32_t x, y;
	/* Sines. */
	int32_t to_x, to_y;
};

/* How far it goes up to the wall. RANGE_MM: it does not meet it before. */
static uint32_t meets(const struct ray *ray, const struct wall *wall)
{
	int32_t wall_x = wall->to_x - wall->from_x, wall_y = wall->to_y - wall->from_y;
	int32_t apart_x = wall->from_x - ray->x, apart_y = wall->from_y - ray->y;
	int32_t whole = ray->to_x * wall_y - ray->to_y * wall_x;
	int32_t away = apart_x * wall_y - apart_y * wall_x;
	int32_t along_wall = apart_x * ray->to_y - apart_y * ray->to_x;
	uint32_t mm = 0;

	if (whole < 0) {
		whole = -whole;
		away = -away;
		along_wall = -along_wall;
	}
	if (away < 0 || away >= whole / 4 || along_wall < 0 || along_wall > whole)
		return RANGE_MM;
	/* away * SINE_ONE / whole. Both are below 2^30. */
	for (uint32_t bit = 0; bit < 14; bit++) {
		away *= 2;
		mm *= 2;
		if (away >= whole) {
			away -= whole;
			mm++;
		}
	}
	return mm < RANGE_MM ? mm : RANGE_MM;
}

static uint32_t nearest(const struct ray *ray, const struct wall *some, uint32_t count)
{
	uint32_t least = RANGE_MM;

	for (uint32_t n = 0; n < count; n++) {
		uint32_t mm = meets(ray, &some[n]);

		if (mm < least)
			least = mm;
	}
	return least;
}

/* The sides of the box: none or 4. */
static uint32_t box_at(uint32_t us, struct wall sides[4])
{
	uint32_t ms = us / US_PER_MS;
	int32_t passed = (int32_t)(ms - moving.from_ms);
	int32_t x;
	int16_t left, right, low, high;

	if (ms < moving.from_ms || ms >= moving.to_ms)
		return 0;
	x = moving.from_x + (moving.to_x - moving.from_x) * passed
				    / (int32_t)(moving.to_ms - moving.from_ms);
	left = (int16_t)(x - moving.half_x);
	right = (int16_t)(x + moving.half_x);
	low = (int16_t)(moving.y - moving.half_y);
	high = (int16_t)(moving.y + moving.half_y);
	sides[0] = (struct wall){ left, low, right, low };
	sides[1] = (struct wall){ right, low, right, high };
	sides[2] = (struct wall){ right, high, left, high };
	sides[3] = (struct wall){ left, high, left, low };
	return 4;
}

uint32_t world_distance(uint32_t sonar, uint32_t us)
{
	/* -75, -45, -15, 15, 45 and 75 degrees. */
	static const int32_t directions[WORLD_SONARS] = { -13653, -8192, -2731, 2731, 8192, 13653 };
	struct world_pose pose = world_pose(us);
	uint32_t middle = pose.angle + (uint32_t)directions[sonar];
	int32_t rays = world.beam == WORLD_CONE ? CONE_RAYS : 0;
	struct wall sides[4];
	uint32_t count = box_at(us, sides);
	uint32_t least = RANGE_MM;
	struct ray ray = {
		.x = pose.x_mm + (SONAR_AT_MM * cosine(middle) >> 14),
		.y = pose.y_mm + (SONAR_AT_MM * sine(middle) >> 14),
	};

	for (int32_t n = -rays; n <= rays; n++) {
		uint32_t mm;

		ray.to_x = cosine(middle + (uint32_t)(n * CONE_STEP));
		ray.to_y = sine(middle + (uint32_t)(n * CONE_STEP));
		mm = nearest(&ray, walls, WALLS);
		least = mm < least ? mm : least;
		mm = nearest(&ray, sides, count);
		least = mm < least ? mm : least;
	}
	return least;
}

void world_fire(uint32_t sonar, uint32_t us)
{
	uint32_t mm = world_distance(sonar, us);

	world.fired_us[sonar] = us;
	world.echo_us[sonar] = UINT32_MAX;
	if (mm < RANGE_MM)
		world.echo_us[sonar] = (mm * ECHO_US_NUM + SOUND_MM_NUM / 2) / SOUND_MM_NUM;
}

bool world_pin(uint32_t sonar, uint32_t us)
{
	return us - world.fired_us[sonar] >= world.echo_us[sonar];
}
