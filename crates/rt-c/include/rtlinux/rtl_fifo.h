// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's FIFOs: number N is the channel rtfN; its other end is rtf_open_np of libasmp_rt, or a
 * file that asmp-rtf serves (what /dev/rtfN was).
 *
 * Not there: rtf_link_user_ioctl, as there is no device to have an ioctl. */
#ifndef ASMP_RTLINUX_RTL_FIFO_H
#define ASMP_RTLINUX_RTL_FIFO_H

#include "../asmp_rt.h"

#define RTF_MAX_FIFO RTF_NO
#define RTL_MAX_USER_FIFO RTF_NO

#endif
