/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The same; the interrupt's work is a job of a sporadic task, with a deadline. */
#define ARRIVES
#include "main.c"
