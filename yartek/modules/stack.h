/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How deep the main stack is, which handlers, jobs and the background share. It grows from the end
 * of the RAM down to the variables.
 */
#ifndef YK_STACK_H
#define YK_STACK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The main stack is to have so many bytes. If there are fewer above the variables, it has these. To
 * be called once, by main(), before yk_run().
 */
void yk_stack_watch(uint32_t bytes);
/*
 * Calls yk_fault(YK_WHY_STACK, NULL, address), once, if the lowest word of these bytes was written;
 * the address is its own. A function that leaves it unwritten, in a large array, is not seen. To be
 * called by the background alone, or by yk_ended() alone.
 */
void yk_stack_look(void);
bool yk_stack_is_watched(void);
/*
 * How many of these bytes were never written: from the lowest up to the first that was. To be
 * called after yk_stack_watch().
 */
uint32_t yk_stack_unused(void);

#endif
