// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's signals of threads: RTL_SIGNAL_SUSPEND and its like, and RTL_SIGUSR1 to RTL_SIGRTMAX
 * with handlers. Their numbers begin above Linux's, so a call with a number of Linux (SIGTERM) does
 * what POSIX says.
 *
 * C++ keeps POSIX's names for Linux's signals: RTLinux's have rtl_ before them there. */
#ifndef ASMP_RTLINUX_RTL_SIGNAL_H
#define ASMP_RTLINUX_RTL_SIGNAL_H

#include <errno.h>
#include <signal.h>
#include <stddef.h>

#include "../asmp_rt.h"

#define RTL_SIGNAL_NULL 0
#define RTL_SIGNAL_WAKEUP (RTL_SIGNAL_BASE + 1)
#define RTL_SIGNAL_CANCEL (RTL_SIGNAL_BASE + 2)
#define RTL_SIGNAL_SUSPEND (RTL_SIGNAL_BASE + 3)
#define RTL_SIGNAL_TIMER (RTL_SIGNAL_BASE + 5)
#define RTL_SIGNAL_READY (RTL_SIGNAL_BASE + 6)
#define RTL_SIGUSR1 (RTL_SIGNAL_BASE + 7)
#define RTL_SIGUSR2 (RTL_SIGNAL_BASE + 8)
#define RTL_SIGRTMIN (RTL_SIGNAL_BASE + 9)
#define RTL_SIGRTMAX (RTL_SIGNAL_BASE + 31)
#define RTL_MAX_SIGNAL RTL_SIGRTMAX

/* A bit a signal, as in RTLinux; programs assign 0. The lower half has signals 1 to 32 of Linux, as
 * its kernel has them, for the sa_mask of their handlers. A long of 32 bits has no room for
 * them. */
typedef unsigned long rtl_sigset_t;

#define RTL_SIGNAL_SHIFT (sizeof(rtl_sigset_t) > 4 ? 32 : 0)
#define RTL_SIGNAL_BIT(signal) \
	((signal) > RTL_SIGNAL_BASE ? \
	 (rtl_sigset_t)(1ULL << ((((signal) - RTL_SIGNAL_BASE) & 31) + RTL_SIGNAL_SHIFT)) : \
	 (rtl_sigset_t)(RTL_SIGNAL_SHIFT && (signal) <= 32 ? \
			1ULL << (((signal) - 1) & 31) : 0))
#define rtl_sigemptyset(set) ((void)(*(set) = 0))
#define rtl_sigfillset(set) ((void)(*(set) = (rtl_sigset_t)-1))
#define rtl_sigaddset(set, signal) ((void)(*(set) |= RTL_SIGNAL_BIT(signal)))
#define rtl_sigdelset(set, signal) ((void)(*(set) &= ~RTL_SIGNAL_BIT(signal)))
#define rtl_sigismember(set, signal) ((*(set) & RTL_SIGNAL_BIT(signal)) != 0)

#define pthread_kill(thread, signal) rtl_pthread_kill(thread, signal)

#ifndef __cplusplus

#define RTL_SIGNAL_LINUX_FLAGS \
	((int)(SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT | SA_NODEFER | SA_RESETHAND | SA_ONSTACK))

/* sigaction(2) for a signal of Linux. Each value is replaced by what was; -1 in flags: it is read
 * only. */
static inline int rtl_linux_sigaction_np(int signal, void (**handler)(int), int *flags,
					 rtl_sigset_t *mask)
{
	struct sigaction now, before;
	rtl_sigset_t was = 0;
	int other;

	now.sa_handler = *handler;
	now.sa_flags = *flags & RTL_SIGNAL_LINUX_FLAGS;
	sigemptyset(&now.sa_mask);
	for (other = 1; other <= 32; other++)
		if (*mask & RTL_SIGNAL_BIT(other))
			sigaddset(&now.sa_mask, other);
	if (sigaction(signal, *flags == -1 ? NULL : &now, &before) != 0)
		return -1;
	for (other = 1; other <= 32; other++)
		if (sigismember(&before.sa_mask, other))
			was |= RTL_SIGNAL_BIT(other);
	*handler = before.sa_handler;
	*flags = before.sa_flags;
	*mask = was;
	return 0;
}

/* From here on struct sigaction is RTLinux's, whose members glibc has macros for. */
#undef sa_handler
#undef sa_sigaction

struct rtl_siginfo {
	int junk;
};

struct rtl_sigaction {
	__extension__ union {
		void (*sa_handler)(int signal);
		void (*sa_sigaction)(int signal, struct rtl_siginfo *info, void *context);
	};
	int sa_flags;
	unsigned long sa_focus;
	rtl_sigset_t sa_mask;
};

/* Flags of a signal of RTLinux are ignored. Returns 0, or -1 and errno. */
static inline int rtl_sigaction(int signal, const struct rtl_sigaction *action,
				struct rtl_sigaction *old)
{
	void (*handler)(int) = NULL;
	rtl_sigset_t mask = 0;
	int flags = 0, error;

	if (signal <= RTL_SIGNAL_BASE) {
		handler = action ? action->sa_handler : NULL;
		flags = action ? action->sa_flags & RTL_SIGNAL_LINUX_FLAGS : -1;
		mask = action ? action->sa_mask : 0;
		if (rtl_linux_sigaction_np(signal, &handler, &flags, &mask) != 0)
			return -1;
	} else {
		if (action)
			error = rtl_set_signal_handler_np(
				signal,
				action->sa_handler == SIG_IGN || action->sa_handler == SIG_DFL ?
					NULL : action->sa_handler,
				action->sa_mask, &handler, &mask);
		else
			error = rtl_get_signal_handler_np(signal, &handler, &mask);
		if (error != 0) {
			errno = error;
			return -1;
		}
	}
	if (old) {
		old->sa_handler = handler;
		old->sa_flags = flags;
		old->sa_focus = 0;
		old->sa_mask = mask;
	}
	return 0;
}

#define sigaction rtl_sigaction

static inline int rtl_change_set_np(rtl_sigset_t *set, rtl_sigset_t keep, rtl_sigset_t add)
{
	*set = (*set & keep) | add;
	return 0;
}

/* By the type of the sets: Linux's sigset_t keeps POSIX's functions. */
#define RTL_IS_LINUX_SET(set) \
	(__builtin_types_compatible_p(__typeof__((set) + 0), sigset_t *) || \
	 __builtin_types_compatible_p(__typeof__((set) + 0), const sigset_t *))
#define pthread_sigmask(how, set, old) \
	(RTL_IS_LINUX_SET(set) || RTL_IS_LINUX_SET(old) ? \
	 (pthread_sigmask)(how, (const sigset_t *)(const void *)(set), (sigset_t *)(void *)(old)) : \
	 rtl_pthread_sigmask(how, (const rtl_sigset_t *)(const void *)(set), \
			     (rtl_sigset_t *)(void *)(old)))
#define sigprocmask(how, set, old) \
	(RTL_IS_LINUX_SET(set) || RTL_IS_LINUX_SET(old) ? \
	 (sigprocmask)(how, (const sigset_t *)(const void *)(set), (sigset_t *)(void *)(old)) : \
	 rtl_pthread_sigmask(how, (const rtl_sigset_t *)(const void *)(set), \
			     (rtl_sigset_t *)(void *)(old)))
#define sigemptyset(set) \
	(RTL_IS_LINUX_SET(set) ? (sigemptyset)((sigset_t *)(void *)(set)) : \
	 rtl_change_set_np((rtl_sigset_t *)(void *)(set), 0, 0))
#define sigfillset(set) \
	(RTL_IS_LINUX_SET(set) ? (sigfillset)((sigset_t *)(void *)(set)) : \
	 rtl_change_set_np((rtl_sigset_t *)(void *)(set), 0, (rtl_sigset_t)-1))
#define sigaddset(set, signal) \
	(RTL_IS_LINUX_SET(set) ? (sigaddset)((sigset_t *)(void *)(set), signal) : \
	 rtl_change_set_np((rtl_sigset_t *)(void *)(set), (rtl_sigset_t)-1, RTL_SIGNAL_BIT(signal)))
#define sigdelset(set, signal) \
	(RTL_IS_LINUX_SET(set) ? (sigdelset)((sigset_t *)(void *)(set), signal) : \
	 rtl_change_set_np((rtl_sigset_t *)(void *)(set), ~RTL_SIGNAL_BIT(signal), 0))
#define sigismember(set, signal) \
	(RTL_IS_LINUX_SET(set) ? \
	 (sigismember)((const sigset_t *)(const void *)(set), signal) : \
	 (*(const rtl_sigset_t *)(const void *)(set) & RTL_SIGNAL_BIT(signal)) != 0)
#define sigsuspend(set) \
	(RTL_IS_LINUX_SET(set) ? (sigsuspend)((const sigset_t *)(const void *)(set)) : \
	 rtl_sigsuspend((const rtl_sigset_t *)(const void *)(set)))
#define sigpending(set) \
	(RTL_IS_LINUX_SET(set) ? (sigpending)((sigset_t *)(void *)(set)) : \
	 rtl_sigpending((rtl_sigset_t *)(void *)(set)))

#endif

#endif
