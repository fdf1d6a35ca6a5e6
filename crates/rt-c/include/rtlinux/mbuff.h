// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's mbuffs: named shared memory, for modules and for programs of the other side alike.
 *
 * Not there: mbuff_alloc_at and mbuff_attach_at (an address of one's choice), and /dev/mbuff with
 * its ioctls. */
#ifndef ASMP_RTLINUX_MBUFF_H
#define ASMP_RTLINUX_MBUFF_H

#include "../asmp_rt.h"

/* Names may have 64 characters; what RTLinux had room for. */
#define MBUFF_NAME_LEN 32

#endif
