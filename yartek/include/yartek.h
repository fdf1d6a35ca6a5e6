/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * yartek: a kernel for microcontrollers that runs the schedule which `asmp analyze` has proved.
 *
 * Real-time jobs run by their deadline, each to its end: non-preemptive EDF ("np-edf"). The set of
 * tasks is a constant table. Nothing is allocated.
 *
 * Source: Mumolo, Nolich, Lenac, "A Real-Time Embedded Kernel for Nonvisual Robotic Sensors",
 * EURASIP Journal on Embedded Systems, 2008 (Yartek).
 */
#ifndef YARTEK_H
#define YARTEK_H

#include <stdint.h>

/* A time: ticks of the board's timer since its start. It does not wrap. */
typedef uint64_t yk_ticks;
/* No time comes after it. */
#define YK_NEVER (~(yk_ticks)0)

enum { YK_MAX_TASKS = 32 };

/* What happens to a job whose deadline is over. */
enum yk_late {
	/* It runs late. The jobs after it follow one by one, until the backlog is gone. */
	YK_FINISH,
	/* It is dropped if it has not begun, and counted. */
	YK_SKIP,
	/* yk_fault() is called, whether it has begun or not. */
	YK_FAULT
};

/* A job: one activation of a task. */
struct yk_job {
	uint32_t task;
	/* From 0, dropped ones included. It wraps. */
	uint32_t activation;
	/* Dropped just before this one. */
	uint32_t skipped;
	/* From which instant on it may run, and when it is due. */
	yk_ticks start;
	yk_ticks deadline;
	/* When it was begun. */
	yk_ticks begun;
};

/* Arrivals of a sporadic task that no job has taken yet: one writer, one reader. */
enum { YK_MAX_ARRIVALS = 8 };
struct yk_arrivals {
	volatile yk_ticks at[YK_MAX_ARRIVALS];
	/* Of the writer: how many there were. It wraps. */
	volatile uint32_t came;
	/* Of the writer: how many found no room. */
	uint32_t refused;
	/* Of the reader: how many have become jobs. It wraps. */
	volatile uint32_t taken;
	/* Of the reader: the next job starts no earlier. */
	yk_ticks earliest;
};

/* A task. The kernel does not change it. */
struct yk_task_def {
	/* Runs one job, to its end. */
	void (*run)(const struct yk_job *job);
	/* Distance of two starts; of a sporadic task the least one. Not 0. */
	yk_ticks period;
	/* Of a periodic task: its first start. */
	yk_ticks offset;
	/* From the start of a job. */
	yk_ticks deadline;
	/* Longest run of one job. Longer ones are counted. */
	yk_ticks budget;
	/* Of a sporadic task. NULL: it is periodic. */
	struct yk_arrivals *arrivals;
	enum yk_late late;
};

/* What became of a task's jobs. Times in ticks, the longest of all jobs. */
struct yk_stats {
	uint32_t ended;
	/* Ended after their deadline. */
	uint32_t missed;
	uint32_t skipped;
	uint32_t over_budget;
	/* From the start to the end, and from the start to the begin of the run. */
	yk_ticks response;
	yk_ticks lateness;
	yk_ticks run;
};

/* --- The order of jobs: edf.c. Pure: it reads no clock and touches no device. --- */

/* A task's next job. */
struct yk_task {
	/* YK_NEVER: none has arrived. */
	yk_ticks start;
	yk_ticks deadline;
	uint32_t activation;
	uint32_t skipped;
	struct yk_stats stats;
};

struct yk_edf {
	const struct yk_task_def *defs;
	struct yk_task *tasks;
	uint32_t count;
	/* Bit n: the next job of task n may run. */
	uint32_t released;
	/* The earliest start of the others. */
	yk_ticks soonest;
};

enum yk_next {
	/* The job runs now. */
	YK_RUN,
	/* Nothing to do before `soonest`. */
	YK_IDLE,
	/* Of YK_FAULT: the deadline is over. The job has not begun, or not ended by then. */
	YK_NOT_BEGUN,
	YK_NOT_ENDED
};

/*
 * Sets up `count` tasks, YK_MAX_TASKS at most, each with its first start at `epoch` + offset.
 * Arrivals from before are forgotten.
 */
void yk_edf_begin(struct yk_edf *edf, const struct yk_task_def *defs, struct yk_task *tasks,
		  uint32_t count, yk_ticks epoch);
/*
 * What to do at `now`. YK_RUN fills `job`: of those whose start is not after `now` the one with the
 * earliest deadline; of these the one with the earliest start; of these the first of the table.
 * YK_NOT_BEGUN fills it, too.
 */
enum yk_next yk_edf_next(struct yk_edf *edf, yk_ticks now, struct yk_job *job);
/* The job that yk_edf_next() gave has ended: YK_RUN, or YK_NOT_ENDED. */
enum yk_next yk_edf_ended(struct yk_edf *edf, const struct yk_job *job, yk_ticks now);
/*
 * Something arrives for this sporadic task; called in the order of time. Its job starts then, or a
 * period after the start before, if that is later. An interrupt handler may call it.
 */
void yk_edf_arrive(const struct yk_task_def *def, yk_ticks at);
/* Looks for arrivals: to be called between two jobs, once some may have come. */
void yk_edf_arrived(struct yk_edf *edf);

#endif
