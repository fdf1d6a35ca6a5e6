// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's main header, for programs of user space: libasmp_rt, and what modules say about
 * themselves.
 *
 * docs/rtlinux.md lists every name: works, works differently, refused. */
#ifndef ASMP_RTLINUX_RTL_H
#define ASMP_RTLINUX_RTL_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rtl_malloc.h>
#include <rtl_posixio.h>
#include <rtl_printf.h>
#include <rtl_sched.h>
#include <rtl_sync.h>

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
#define EXPORT_SYMBOL(symbol)
#define MOD_INC_USE_COUNT
#define MOD_DEC_USE_COUNT
#define module_init(function) int init_module(void) { return function(); }
#define module_exit(function) void cleanup_module(void) { function(); }
/* C++'s own headers use these names. So does stdlib.h, which is included above. */
#ifndef __cplusplus
#define __init
#define __exit
#endif

/* glibc's, which it shows only with _GNU_SOURCE (C++ has that always). */
#ifndef __cplusplus
int sched_getcpu(void);
#endif
#define rtl_getcpuid() sched_getcpu()

/* Sources rely on implicit declarations, and its names are macros. It includes this header. */
#include <rtl_core.h>

#endif
