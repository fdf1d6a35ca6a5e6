/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * yartek: a kernel for microcontrollers that runs the schedule which `asmp analyze` has proved.
 *
 * Three levels share one stack; each is interrupted by those above it, at any instruction:
 *   handlers      acknowledge their device, move a byte or so, and raise a line;
 *   jobs          run by their deadline, each to its end: non-preemptive EDF ("np-edf");
 *   background    serves the lines, first come, first served; then the application's work.
 * The sets of tasks and of lines are a constant table. Nothing is allocated, and the kernel never
 * masks interrupts once it runs: each word that two levels share has one writer.
 *
 * Source: Mumolo, Nolich, Lenac, "A Real-Time Embedded Kernel for Nonvisual Robotic Sensors",
 * EURASIP Journal on Embedded Systems, 2008 (Yartek).
 */
#ifndef YARTEK_H
#define YARTEK_H

#include <stdbool.h>
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
	/* The longest a job may hold the CPU before yk_fault() is called. 0: for ever. */
	yk_ticks most;
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
	/* Of handlers: arrivals that found YK_MAX_ARRIVALS waiting. They become no jobs. */
	volatile uint32_t refused;
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
 * Arrivals from before the call are forgotten. One before `epoch` becomes a job that starts at it.
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

/* --- Lines: interrupts whose work is done in the background. lines.c. --- */

enum { YK_MAX_LINES = 32 };

struct yk_line_def {
	/* Runs in the background. It is told how many raises it serves: 1 at least. */
	void (*service)(uint32_t raises);
	/* The source is masked at so many unserved raises, until the service has run. 0: never. */
	uint32_t most;
};

/* A line. All counts wrap. */
struct yk_line {
	/* Of handlers: its raises, how often it was put into the queue, and how often masked. */
	volatile uint32_t raised;
	volatile uint32_t queued;
	volatile uint32_t masked;
	/* Of the background: the raises that services were told of, and so on. */
	volatile uint32_t served;
	volatile uint32_t taken;
	volatile uint32_t unmasked;
};

/* Only a line's handler may call it. Handlers that raise lines do not interrupt each other. */
void yk_raise(uint32_t line);

/*
 * --- Between levels: ring.c, box.c. Two handlers do not interrupt each other, nor do two jobs:
 * between them plain variables do. ---
 */

/* Bytes, first in, first out. One level writes, one reads. */
struct yk_ring {
	volatile uint8_t *bytes;
	/* How many it holds: a power of 2. */
	uint32_t size;
	/* Of the writer: how many there were. It wraps. */
	volatile uint32_t in;
	/* Of the writer: how many found no room. It wraps. */
	volatile uint32_t refused;
	/* Of the reader: how many it has taken. It wraps. */
	volatile uint32_t out;
};

/* `false`: it is full. The byte is counted in `refused`. */
bool yk_ring_put(struct yk_ring *ring, uint8_t byte);
/* `false`: it is empty. */
bool yk_ring_get(struct yk_ring *ring, uint8_t *byte);
/* How many bytes are in it, for the writer and the reader. */
uint32_t yk_ring_length(const struct yk_ring *ring);

/*
 * The latest value of several words. One level writes, and never waits. All levels may read. A read
 * that a write interrupts begins again.
 */
struct yk_box {
	/* Room for two values. */
	volatile uint32_t *words;
	/* Of one value. */
	uint32_t size;
	/* How often it was written. It wraps. Value 0, before the first, is of zeros. */
	volatile uint32_t written;
};

void yk_box_write(struct yk_box *box, const uint32_t *value);
/* Says how many writes came before that of this value, and itself: 0 before the first. */
uint32_t yk_box_read(const struct yk_box *box, uint32_t *value);

/* --- The kernel: dispatch.c. --- */

/* What runs. `asmp yartek build` makes it of a task file. */
struct yk_table {
	const struct yk_task_def *task_defs;
	struct yk_task *tasks;
	uint32_t tasks_count;
	const struct yk_line_def *line_defs;
	struct yk_line *lines;
	uint32_t lines_count;
};
extern const struct yk_table yk_table;

/*
 * Starts the clock, then the tasks: their first starts are at yk_epoch() plus their offsets. The
 * caller becomes the background.
 */
_Noreturn void yk_run(void);
/* Any level may call it. */
yk_ticks yk_now(void);
/* Time 0 of the task file. */
yk_ticks yk_epoch(void);
/*
 * Something arrives for a sporadic task, now; before yk_epoch(), as if it came then. Only handlers
 * that raise lines may call it. Where YK_MAX_ARRIVALS wait it is refused, and counted in the task's
 * yk_stats.
 */
void yk_arrive(uint32_t task);
const struct yk_stats *yk_stats(uint32_t task);
/* The body of a task without an entry of its own: keeps the CPU for the task's budget. */
void yk_spin(const struct yk_job *job);

enum yk_why {
	/* Of a task of YK_FAULT: its job had not begun, or not ended, by the deadline. */
	YK_WHY_NOT_BEGUN,
	YK_WHY_NOT_ENDED,
	/* A job holds the CPU longer than `most`. */
	YK_WHY_TOO_LONG,
	/* The processor cannot execute the program. */
	YK_WHY_TRAP,
	/* A thread has used all of its stack, or more: thread.h. Or the others have: stack.h. */
	YK_WHY_STACK
};

/*
 * The application's: makes the machine safe. `job` is NULL outside of jobs. `address` is that of
 * the instruction for YK_WHY_TRAP, of the stack for YK_WHY_STACK, else 0. YK_WHY_TOO_LONG
 * interrupts the job, and is told once. If the function returns from a deadline, no job runs any
 * more; from the stack of a thread, the thread is ended; from a trap it must not return.
 */
void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address);

/*
 * The application's, if it has them; they do nothing otherwise. yk_background() does a piece of
 * work each time nothing else is to be done, and says whether more is left. yk_ended() sees each
 * job once its end has been read: its time is no part of the job's, and keeps the next one waiting.
 * The proof has room for yk_trace_keep() there. Add what takes longer to the `cost` of each task.
 */
bool yk_background(void);
void yk_ended(const struct yk_job *job, yk_ticks end);

#endif
