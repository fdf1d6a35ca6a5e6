// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The system's pthread.h, and RTLinux's calls with it: its programs may include nothing else. A
 * file that includes asmp_rt.h first keeps glibc's own meaning of POSIX's names. So do C++'s own
 * headers, which include this one. */
#pragma GCC system_header
#include_next <pthread.h>
#if !defined ASMP_RT_H && !defined __cplusplus
#include <rtl_sched.h>
#endif
