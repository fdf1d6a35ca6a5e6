/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* See source.h. */
#ifndef BOARD_H
#define BOARD_H

#include "../../port/host/host.h"

enum { SOURCE = 1, OTHER_SOURCE = 2, NS_A_TICK = 1000 };

static inline void sources_start(void)
{
}

static inline void source_now(void)
{
	yk_host_interrupt(SOURCE, 0);
}

static inline void source_quiet(void)
{
	yk_host_interrupt(SOURCE, YK_NEVER);
}

static inline void source_again_ns(uint32_t ns)
{
	yk_host_interrupt(SOURCE, ns / NS_A_TICK);
}

static inline void other_now(void)
{
	yk_host_interrupt(OTHER_SOURCE, 0);
}

static inline void other_quiet(void)
{
	yk_host_interrupt(OTHER_SOURCE, YK_NEVER);
}

#endif
