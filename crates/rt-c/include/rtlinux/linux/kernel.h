// SPDX-License-Identifier: Apache-2.0 OR MIT
/* For the sake of the include line. The system's too: <sys/sysinfo.h> takes its structure from
 * there. */
#pragma GCC system_header
#include_next <linux/kernel.h>
#include <rtl.h>
