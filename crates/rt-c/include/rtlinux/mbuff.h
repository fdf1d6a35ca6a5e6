// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's mbuffs: named shared memory, for modules and for programs of the other side alike.
 * There is no /dev/mbuff. */
#ifndef ASMP_RTLINUX_MBUFF_H
#define ASMP_RTLINUX_MBUFF_H

#include "../asmp_rt.h"

/* Names may have 64 characters; what RTLinux had room for. */
#define MBUFF_NAME_LEN 32

#define RTL_NO_ADDRESS "memory is mapped where the kernel has room: keep offsets, not addresses"
#define mbuff_alloc_at(name, size, address) \
	((void)(name), (void)(size), (void)(address), \
	 rtl_refuse_np("mbuff_alloc_at", RTL_NO_ADDRESS), (void *)0)
#define mbuff_attach_at(name, size, address) \
	((void)(name), (void)(size), (void)(address), \
	 rtl_refuse_np("mbuff_attach_at", RTL_NO_ADDRESS), (void *)0)

#endif
