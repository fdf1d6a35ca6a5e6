/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What tasks.c has for the task file and for main.c. */
#ifndef TASKS_H
#define TASKS_H

#include "yartek.h"

/* The entries of the task file. */
void measure(const struct yk_job *job);
void control(const struct yk_job *job);
void report(const struct yk_job *job);

/* Speeds, from report() to the background. */
extern struct yk_ring speeds;

void motor_stop(void);

#endif
