// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Memory for threads: the C library's. It takes a lock; the heap is locked in memory by rtl_main.
 * Allocate before the first release. */
#ifndef ASMP_RTLINUX_RTL_MALLOC_H
#define ASMP_RTLINUX_RTL_MALLOC_H

#include <stdlib.h>

#define rtl_malloc(bytes) malloc(bytes)
#define rtl_free(memory) free(memory)

#endif
