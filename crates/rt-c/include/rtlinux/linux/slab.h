// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Memory of the kernel: the C library's here. */
#ifndef ASMP_RTLINUX_LINUX_SLAB_H
#define ASMP_RTLINUX_LINUX_SLAB_H

#include <stdlib.h>

#define GFP_KERNEL 0
#define GFP_ATOMIC 0
#define kmalloc(bytes, flags) ((void)(flags), malloc(bytes))
#define kfree(memory) free(memory)
#define vmalloc(bytes) malloc(bytes)
#define vfree(memory) free(memory)

#endif
