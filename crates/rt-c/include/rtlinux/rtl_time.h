// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's clocks: nanoseconds in an hrtime_t, on CLOCK_MONOTONIC. */
#ifndef ASMP_RTLINUX_RTL_TIME_H
#define ASMP_RTLINUX_RTL_TIME_H

#include <errno.h>
#include <semaphore.h>
#include <time.h>
/* Their inline functions call POSIX's, which have other meanings below. */
#if defined __cplusplus && __cplusplus >= 201103L
#include <condition_variable>
#include <mutex>
#include <thread>
#endif

#include "../asmp_rt.h"

#ifndef CLOCK_MONOTONIC
#error "-std=c99 hides POSIX, which RTLinux needs: compile with -std=gnu99 or -D_GNU_SOURCE"
#endif

/* glibc's, which it shows only with _GNU_SOURCE (C++ has that always). */
#ifndef __cplusplus
int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until);
int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
			   const struct timespec *until);
int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until);
#endif

#define HRTIME_INFINITY 0x7fffffffffffffffLL
#define NSECS_PER_SEC 1000000000LL

/* As in RTLinux, CLOCK_REALTIME is the scheduler's clock, which starts at boot and never jumps. */
#define CLOCK_RTL_SCHED CLOCK_MONOTONIC
#undef CLOCK_REALTIME
#define CLOCK_REALTIME CLOCK_RTL_SCHED

/* So absolute timeouts are on that clock too. */
#define sem_timedwait(semaphore, until) sem_clockwait(semaphore, CLOCK_RTL_SCHED, until)
#define pthread_cond_timedwait(condition, mutex, until) \
	pthread_cond_clockwait(condition, mutex, CLOCK_RTL_SCHED, until)
#define pthread_mutex_timedlock(mutex, until) pthread_mutex_clocklock(mutex, CLOCK_RTL_SCHED, until)

static inline struct timespec timespec_from_ns(hrtime_t ns)
{
	struct timespec time;

	time.tv_sec = ns / NSECS_PER_SEC;
	time.tv_nsec = ns % NSECS_PER_SEC;
	if (time.tv_nsec < 0) {
		time.tv_sec--;
		time.tv_nsec += NSECS_PER_SEC;
	}
	return time;
}

static inline hrtime_t timespec_to_ns(const struct timespec *time)
{
	return time->tv_sec * NSECS_PER_SEC + time->tv_nsec;
}

static inline void timespec_add_ns(struct timespec *time, hrtime_t ns)
{
	*time = timespec_from_ns(timespec_to_ns(time) + ns);
}

/* An hrtime_t as a timespec to pass on; good until this thread's next call. */
static inline const struct timespec *hrt2ts(hrtime_t ns)
{
	static __thread struct timespec time;

	time = timespec_from_ns(ns);
	return &time;
}

/* Of two timespecs by their addresses; the first takes the result. */
#define timespec_normalize(t) ((void)(*(t) = timespec_from_ns(timespec_to_ns(t))))
#define timespec_add(t1, t2) timespec_add_ns(t1, timespec_to_ns(t2))
#define timespec_sub(t1, t2) timespec_add_ns(t1, -timespec_to_ns(t2))
#define timespec_nz(t) ((t)->tv_sec != 0 || (t)->tv_nsec != 0)
#define timespec_lt(t1, t2) (timespec_to_ns(t1) < timespec_to_ns(t2))
#define timespec_gt(t1, t2) (timespec_to_ns(t1) > timespec_to_ns(t2))
#define timespec_le(t1, t2) (timespec_to_ns(t1) <= timespec_to_ns(t2))
#define timespec_ge(t1, t2) (timespec_to_ns(t1) >= timespec_to_ns(t2))
#define timespec_eq(t1, t2) (timespec_to_ns(t1) == timespec_to_ns(t2))

/* Linux programs its timers by itself, each for the next instant that a thread waits for. */
#define RTL_CLOCK_MODE_UNINITIALIZED 1
#define RTL_CLOCK_MODE_ONESHOT 2
#define RTL_CLOCK_MODE_PERIODIC 3

static inline int rtl_setclockmode(clockid_t clock, int mode, hrtime_t period)
{
	(void)clock;
	if (mode == RTL_CLOCK_MODE_ONESHOT || (mode == RTL_CLOCK_MODE_PERIODIC && period > 0))
		return 0;
	return -EINVAL;
}

#define rtl_getschedclock() CLOCK_RTL_SCHED

#define RTL_NO_CLOCKS "the timers are Linux's: use pthread_make_periodic_np or clock_nanosleep"
#define rtl_getbestclock(cpu) \
	((void)(cpu), rtl_refuse_np("rtl_getbestclock", RTL_NO_CLOCKS), CLOCK_RTL_SCHED)
#define rtl_setclockhandler(clock, handler) \
	((void)(clock), (void)(handler), rtl_refuse_np("rtl_setclockhandler", RTL_NO_CLOCKS), 0)
#define rtl_unsetclockhandler(clock) \
	((void)(clock), rtl_refuse_np("rtl_unsetclockhandler", RTL_NO_CLOCKS), 0)

#endif
