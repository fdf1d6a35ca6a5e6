// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What RTLinux was configured with. */
#ifndef ASMP_RTLINUX_RTL_CONF_H
#define ASMP_RTLINUX_RTL_CONF_H

#define CONFIG_RTLINUX 1
#define CONFIG_RTL_FP_SUPPORT 1
#define CONFIG_RTL_POSIX_IO 1

#endif
