/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Interrupts of a board that is a process: what a device would do, a test does. */
#ifndef YK_HOST_H
#define YK_HOST_H

#include "yartek.h"

/*
 * The source, 0 to 31, interrupts so many ticks from now, once; 0: at once. YK_NEVER: not at all.
 * Replaces what was said before. To be called once it is attached.
 */
void yk_host_interrupt(uint32_t source, yk_ticks ticks);

#endif
