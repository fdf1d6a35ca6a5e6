// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What a module prints goes to stderr, which may block: not for a thread that keeps time. */
#ifndef ASMP_RTLINUX_RTL_PRINTF_H
#define ASMP_RTLINUX_RTL_PRINTF_H

#include <stdio.h>

#define rtl_printf(...) fprintf(stderr, __VA_ARGS__)
#define printk(...) fprintf(stderr, __VA_ARGS__)
#define conpr(text) ((void)fputs(text, stderr))
#define conprn(number) ((void)fprintf(stderr, "%x", (unsigned int)(number)))

#define KERN_EMERG
#define KERN_ALERT
#define KERN_CRIT
#define KERN_ERR
#define KERN_WARNING
#define KERN_NOTICE
#define KERN_INFO
#define KERN_DEBUG

#endif
