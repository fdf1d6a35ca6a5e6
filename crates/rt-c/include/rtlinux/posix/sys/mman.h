// SPDX-License-Identifier: Apache-2.0 OR MIT
/* For the sake of the include line. */
#include <sys/mman.h>
#include <rtl.h>
