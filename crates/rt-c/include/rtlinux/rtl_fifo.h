// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's FIFOs: number N is the channel rtfN; its other end is rtf_open_np of libasmp_rt, or a
 * file that asmp-rtf serves (what /dev/rtfN was). */
#ifndef ASMP_RTLINUX_RTL_FIFO_H
#define ASMP_RTLINUX_RTL_FIFO_H

#include "../asmp_rt.h"

#define RTF_MAX_FIFO RTF_NO
#define RTL_MAX_USER_FIFO RTF_NO

#define rtf_link_user_ioctl(fifo, handler) \
	((void)(fifo), (void)(handler), \
	 rtl_refuse_np("rtf_link_user_ioctl", "no device passes ioctls on: send a message through " \
					      "a second FIFO, with rtf_create_handler"), \
	 0)

#endif
