/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What is looked at: the serial line, and its rings. */
#include "../../modules/serial.c"

#include "../../kernel/ring.c"
