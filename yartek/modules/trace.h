/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Prints each job that has ended: `j TASK ACTIVATION START BEGUN END`. The task is decimal, the
 * rest hexadecimal; times are ticks since the epoch. Jobs that found no room in the buffer are told
 * by a line `lost COUNT`. Lines whose first word is `j`, `lost`, `fault` or `end` are the trace's:
 * an application that prints such lines breaks it.
 *
 * Keeps a job at its end, which costs it about 40 instructions; prints in the background.
 */
#ifndef YK_TRACE_H
#define YK_TRACE_H

#include "yartek.h"

/* To be called by yk_ended(). */
void yk_trace_keep(const struct yk_job *job, yk_ticks end);
/* To be called by yk_background(): prints a job, if one is there. `false`: no more is left. */
bool yk_trace_print(void);
/*
 * When the trace ends, in ticks since the epoch; 0: never. Then what is left is printed, and a line
 * `end TICKS`, and the emulator is left. Not cleared at the start: an emulator writes it.
 */
extern yk_ticks yk_trace_until;
/* The last words of a guest that cannot go on: leaves the emulator with code 1. */
_Noreturn void yk_trace_fault(enum yk_why why, const struct yk_job *job, uintptr_t address);

#endif
