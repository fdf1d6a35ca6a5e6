/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs in the kernel and asmp-artis share. */
#pragma once

#define MAX_CPUS 1024

enum stat {
	STAT_CALLS,	/* system calls that began on an RT CPU */
	STAT_FAULTS,	/* page faults that began on an RT CPU */
	STAT_OTHER,	/* other entries with work to do before the return, such as a signal */
	STAT_LEFT,	/* tasks taken off an RT CPU in the kernel */
	STAT_PUSHED,	/* tasks taken off an RT CPU in user mode, by a higher class or in turn */
	STAT_TO_RT,	/* tasks that began to run on an RT CPU */
	STAT_KERNEL_ON_RT, /* of these: in the kernel, because they may run nowhere else */
	STAT_ASKED,	/* returns to user mode that asked an idle RT CPU to fetch */
	STAT_SHORT,	/* returns that did not ask: the last stays were too short */
	STAT_TICK,	/* moves at a tick */
	STAT_BOUND,	/* enqueued tasks that may use RT CPUs only */
	STAT_ROOM,	/* NRT CPUs interrupted for a task from an RT CPU */
	STAT_LONGEST,	/* ns: longest stay in the kernel on an RT CPU */
	OBS_RT, OBS_ALL, OBS_FAULT_RT, OBS_FAULT_ALL,
	NR_STATS,
};
