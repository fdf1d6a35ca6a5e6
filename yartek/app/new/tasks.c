/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The jobs. Each runs to its end and never waits, so they share plain variables without locks. */
#include "tasks.h"

/* A speed is in pulses of the wheel in 10 ms, the power in percent. */
enum { WANTED_SPEED = 30, MOST_POWER = 100 };

static volatile uint8_t bytes[16];
struct yk_ring speeds = { .bytes = bytes, .size = sizeof(bytes) };

static int32_t speed;
/* The guard may stop the motor within a job: volatile. */
static volatile int32_t power;

/*
 * Stands for a motor, since the boards of QEMU have none: put your device here. Says how many
 * pulses came so far. The speed comes nearer to half the power, an eighth of the way each time.
 */
static uint32_t motor_pulses(void)
{
	static int32_t sixteenths;
	static uint32_t pulses;

	sixteenths += power - sixteenths / 8;
	pulses += (uint32_t)sixteenths / 16;
	return pulses;
}

void motor_stop(void)
{
	power = 0;
}

void measure(const struct yk_job *job)
{
	static uint32_t before;
	uint32_t pulses = motor_pulses();

	(void)job;
	speed = (int32_t)(pulses - before);
	before = pulses;
}

void control(const struct yk_job *job)
{
	/* What holds the speed, and more while it is too low. */
	int32_t next = 2 * WANTED_SPEED + (WANTED_SPEED - speed);

	(void)job;
	power = next < 0 ? 0 : next > MOST_POWER ? MOST_POWER : next;
}

void report(const struct yk_job *job)
{
	(void)job;
	/* If the background is late, the ring is full, and counts what it refuses. */
	yk_ring_put(&speeds, (uint8_t)speed);
}
