// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's threads: its calls, its priorities (0 to 1,000,000, larger is higher), SCHED_FIFO
 * unless said otherwise.
 *
 * The plain names of POSIX stand for those of libasmp_rt from here on. */
#ifndef ASMP_RTLINUX_RTL_SCHED_H
#define ASMP_RTLINUX_RTL_SCHED_H

#include <rtl_signal.h>
#include <rtl_spinlock.h>
#include <rtl_time.h>

#include <sched.h>
#include <signal.h>

#define pthread_create(thread, attributes, routine, argument) \
	rtl_pthread_create(thread, attributes, routine, argument)
#define pthread_cancel(thread) rtl_pthread_cancel(thread)
#define pthread_setschedparam(thread, policy, parameters) \
	rtl_pthread_setschedparam(thread, policy, parameters)
#define pthread_attr_setschedparam(attributes, parameters) \
	rtl_pthread_attr_setschedparam(attributes, parameters)

#define sched_get_priority_max(policy) 1000000
#define sched_get_priority_min(policy) 0

#define rtl_schedule() sched_yield()

/* A kind of mutex; ours are ordinary ones. */
#define PTHREAD_MUTEX_SPINLOCK_NP PTHREAD_MUTEX_NORMAL

#define pthread_attr_getcpu(attributes, cpu) pthread_attr_getcpu_np(attributes, cpu)
#define pthread_attr_setcpu(attributes, cpu) pthread_attr_setcpu_np(attributes, cpu)
#define pthread_attr_setfp(attributes, flag) pthread_attr_setfp_np(attributes, flag)

#define pthread_linux() \
	(rtl_refuse_np("pthread_linux", \
		       "Linux is no thread of this program: use rtl_get_soft_irq for work beside it"), \
	 pthread_self())
#define RTL_NO_RESERVE "a program reserves no CPU: asmp create --cpus, and asmp run, do"
#define rtl_reserve_cpus(cpus) ((void)(cpus), rtl_refuse_np("rtl_reserve_cpus", RTL_NO_RESERVE), 0)
#define rtl_unreserve_cpus() (rtl_refuse_np("rtl_unreserve_cpus", RTL_NO_RESERVE), 0)

#endif
