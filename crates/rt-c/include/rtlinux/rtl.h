// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's main header, for programs of user space: libasmp_rt, and what modules say about
 * themselves.
 *
 * Not there, because no user program can have it: rtl_no_interrupts and its kin. Guard data with a
 * mutex or a semaphore; threads of one priority and one CPU do not preempt each other. */
#ifndef ASMP_RTLINUX_RTL_H
#define ASMP_RTLINUX_RTL_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rtl_sched.h>

/* A program of this kind has these two and no main: librtl_main has that, and runs them. */
#ifdef __cplusplus
extern "C" {
#endif
int init_module(void);
void cleanup_module(void);
#ifdef __cplusplus
}
#endif

#define MODULE_LICENSE(text)
#define MODULE_AUTHOR(text)
#define MODULE_DESCRIPTION(text)
#define MODULE_PARM(variable, type)
#define MODULE_PARM_DESC(variable, text)
#define EXPORT_NO_SYMBOLS
/* C++'s own headers use these names. So does stdlib.h, which is included above. */
#ifndef __cplusplus
#define __init
#define __exit
#endif

#define KERN_ERR
#define KERN_WARNING
#define KERN_INFO
#define KERN_DEBUG

/* Both write to stderr, which may block: not for a thread that keeps time. */
#define rtl_printf(...) fprintf(stderr, __VA_ARGS__)
#define printk(...) fprintf(stderr, __VA_ARGS__)

/* glibc's, which it shows only with _GNU_SOURCE (C++ has that always). */
#ifndef __cplusplus
int sched_getcpu(void);
#endif
#define rtl_getcpuid() sched_getcpu()

#endif
