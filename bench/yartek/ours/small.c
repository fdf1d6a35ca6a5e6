/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The same without measuring: for sizes. */
#define SMALL
#include "main.c"
