/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A program for a disk that has turns until it is killed. */
#include "shell.h"

void program(void *argument)
{
	(void)argument;
	for (;;)
		yk_thread_yield();
}
