// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Interrupts of the CPU. A program of user space cannot hold them off; what asks for that ends the
 * program, with one line. Threads of one CPU and one priority do not preempt each other; across
 * CPUs and priorities use a mutex or rtl_spin_lock. */
#ifndef ASMP_RTLINUX_RTL_SYNC_H
#define ASMP_RTLINUX_RTL_SYNC_H

#include <rtl_spinlock.h>

#define RTL_NO_CLI "a program cannot hold off interrupts: use pthread_mutex_lock or rtl_spin_lock"
#define rtl_no_interrupts(flags) ((flags) = 0, rtl_refuse_np("rtl_no_interrupts", RTL_NO_CLI))
#define rtl_stop_interrupts() rtl_refuse_np("rtl_stop_interrupts", RTL_NO_CLI)
#define rtl_hard_cli() rtl_refuse_np("rtl_hard_cli", RTL_NO_CLI)
#define rtl_hard_savef_and_cli(flags) \
	((flags) = 0, rtl_refuse_np("rtl_hard_savef_and_cli", RTL_NO_CLI))
#define rtl_critical(flags) ((flags) = 0, rtl_refuse_np("rtl_critical", RTL_NO_CLI))

/* They are on. */
#define rtl_allow_interrupts() ((void)0)
#define rtl_hard_sti() ((void)0)
#define rtl_hard_save_flags(flags) ((void)((flags) = 0))
#define rtl_restore_interrupts(flags) ((void)(flags))
#define rtl_hard_restore_flags(flags) ((void)(flags))
#define rtl_end_critical(flags) ((void)(flags))

#endif
