/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs a scenario once for each sequence of choices that it can make: exhaustive within its bounds.
 *
 * The kernel's file is compiled with `-fsanitize=thread --param tsan-distinguish-volatile=1`, and
 * linked without the library of ThreadSanitizer. Before each access to a volatile word it then
 * calls a function of explore.c, and that calls at_access(), where the scenario may interrupt. So
 * interrupts come between any two accesses of the code as compiled, not only between statements.
 */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stdbool.h>
#include <stdint.h>

/* The scenario's: runs once, from the begin. */
void scenario(void);
/* The scenario's: the kernel is about to access a volatile word. */
void at_access(void);

/* A number below `choices`; another one in another run. */
uint32_t choose(uint32_t choices);
/* Ends this run if the condition does not hold: it is no case. */
void given(bool condition);
/* Ends the program if it does not hold, and prints the contract and the choices. */
void must(const char *contract, bool condition);

#endif
