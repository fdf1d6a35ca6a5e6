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
 * The main stack is to have so many bytes; no more than lie above the variables. To be called once,
 * by main(), before yk_run().
 */
void yk_stack_watch(uint32_t bytes);
/*
 * For the background, and for yk_ended(): calls yk_fault(YK_WHY_STACK, NULL, address), once, if all
 * of these bytes have been used, or more. The address is that of the lowest.
 */
void yk_stack_look(void);
bool yk_stack_is_watched(void);
/* How many of these bytes were never used. To be called after yk_stack_watch(). */
uint32_t yk_stack_unused(void);

#endif
