// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's real-time signals of ordinary processes (PSC): a handler that runs in the interrupt.
 * Linux has nothing like it; a real-time thread and rtl_request_irq take its place. */
#ifndef ASMP_RTLINUX_RTLINUX_SIGNAL_H
#define ASMP_RTLINUX_RTLINUX_SIGNAL_H

#include "../asmp_rt.h"

typedef unsigned long rtlinux_sigset_t;

struct rtlinux_sigaction {
	void (*sa_handler_np)(int signal);
	hrtime_t sa_period;
	int sa_flags;
	rtlinux_sigset_t sa_mask;
};

#define RTL_NO_PSC "no handler of a process runs in an interrupt: use a thread, rtl_request_irq"
#define rtlinux_sigaction(signal, action, old) \
	((void)(signal), (void)(action), (void)(old), \
	 rtl_refuse_np("rtlinux_sigaction", RTL_NO_PSC), 0)
#define rtlinux_sigprocmask(how, set, old) \
	((void)(how), (void)(set), (void)(old), \
	 rtl_refuse_np("rtlinux_sigprocmask", RTL_NO_PSC), 0)
#define RTLINUX_SET_NP(name, set) ((void)(set), rtl_refuse_np(name, RTL_NO_PSC), 0)
#define rtlinux_sigemptyset(set) RTLINUX_SET_NP("rtlinux_sigemptyset", set)
#define rtlinux_sigfillset(set) RTLINUX_SET_NP("rtlinux_sigfillset", set)
#define rtlinux_sigaddset(set, signal) \
	((void)(signal), RTLINUX_SET_NP("rtlinux_sigaddset", set))
#define rtlinux_sigdelset(set, signal) \
	((void)(signal), RTLINUX_SET_NP("rtlinux_sigdelset", set))
#define rtlinux_sigismember(set, signal) \
	((void)(signal), RTLINUX_SET_NP("rtlinux_sigismember", set))

#endif
