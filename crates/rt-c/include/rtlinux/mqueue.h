// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The system's mqueue.h as RTLinux's programs use it: the name of a queue needs no "/" before it,
 * and timeouts are on RTLinux's clock, as all others. A file that includes asmp_rt.h and no header
 * of RTLinux keeps POSIX's meaning. C++ keeps POSIX's names: RTLinux's have rtl_ before them there,
 * after a header of RTLinux. */
#pragma GCC system_header
#include_next <mqueue.h>
#if !defined ASMP_RTLINUX_MQUEUE_H && \
	(defined ASMP_RTLINUX_RTL_TIME_H || (!defined ASMP_RT_H && !defined __cplusplus))
#define ASMP_RTLINUX_MQUEUE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <rtl_time.h>
#include <stdarg.h>
#include <stdio.h>

/* NULL and errno: the name is too long. */
static inline const char *rtl_mq_name_np(const char *name, char path[NAME_MAX + 2])
{
	if (snprintf(path, NAME_MAX + 2, "%s%s", *name == '/' ? "" : "/", name) < NAME_MAX + 2)
		return path;
	errno = ENAMETOOLONG;
	return NULL;
}

static inline mqd_t rtl_mq_open(const char *name, int flags, ...)
{
	struct mq_attr *attributes = NULL;
	char path[NAME_MAX + 2];
	unsigned int mode = 0;
	va_list more;

	if (!rtl_mq_name_np(name, path))
		return (mqd_t)-1;
	va_start(more, flags);
	if (flags & O_CREAT) {
		mode = va_arg(more, unsigned int);
		attributes = va_arg(more, struct mq_attr *);
	}
	va_end(more);
	return (mq_open)(path, flags, mode, attributes);
}

static inline int rtl_mq_unlink(const char *name)
{
	char path[NAME_MAX + 2];

	return rtl_mq_name_np(name, path) ? (mq_unlink)(path) : -1;
}

/* An instant of RTLinux's clock on that of Linux's queues, its clock 0: the time of day. */
static inline const struct timespec *rtl_mq_until_np(const struct timespec *until,
						     struct timespec *there)
{
	struct timespec now;

	if (!until)
		return NULL;
	clock_gettime(CLOCK_RTL_SCHED, &now);
	clock_gettime((clockid_t)0, there);
	timespec_add_ns(there, timespec_to_ns(until) - timespec_to_ns(&now));
	return there;
}

static inline int rtl_mq_timedsend(mqd_t queue, const char *message, size_t size,
				   unsigned int priority, const struct timespec *until)
{
	struct timespec there;

	return (mq_timedsend)(queue, message, size, priority, rtl_mq_until_np(until, &there));
}

static inline ssize_t rtl_mq_timedreceive(mqd_t queue, char *message, size_t size,
					  unsigned int *priority, const struct timespec *until)
{
	struct timespec there;

	return (mq_timedreceive)(queue, message, size, priority, rtl_mq_until_np(until, &there));
}

#ifndef __cplusplus
#define mq_open(...) rtl_mq_open(__VA_ARGS__)
#define mq_unlink(name) rtl_mq_unlink(name)
#define mq_timedsend(queue, message, size, priority, until) \
	rtl_mq_timedsend(queue, message, size, priority, until)
#define mq_timedreceive(queue, message, size, priority, until) \
	rtl_mq_timedreceive(queue, message, size, priority, until)
#endif

#endif
