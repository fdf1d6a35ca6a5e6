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
 * Sets how many bytes the main stack may use: at most all that lie above the variables. Call it
 * once, in main(), before yk_run().
 */
void yk_stack_watch(uint32_t bytes);
/*
 * If the lowest word of these bytes was written, calls yk_fault(YK_WHY_STACK, NULL, address) once,
 * with the address of that word. A large array that leaves the word unwritten is not noticed. Call
 * it from the background or from yk_ended(), not from both.
 */
void yk_stack_look(void);
bool yk_stack_is_watched(void);
/*
 * How many of these bytes were never written: from the lowest up to the first that was. Call it
 * after yk_stack_watch().
 */
uint32_t yk_stack_unused(void);

#endif
