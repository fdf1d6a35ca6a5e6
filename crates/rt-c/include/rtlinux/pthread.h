// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The system's pthread.h, and RTLinux's calls with it: its programs may include nothing else. A
 * file that includes asmp_rt.h first keeps glibc's own meaning of POSIX's names. */
#pragma GCC system_header
#include_next <pthread.h>
#ifndef ASMP_RT_H
#include <rtl_sched.h>
#endif
