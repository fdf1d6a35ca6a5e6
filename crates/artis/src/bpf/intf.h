/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs in the kernel and asmp-artis share, and the names that users read. */
#pragma once

#define MAX_CPUS 1024

/*
 * What is counted. The names stand in /sys/fs/bpf/asmp/stats, each with its total over all CPUs;
 * longest_kernel_ns is the largest of any CPU.
 * An escape is the body of a system call or fault of a guest that ran on an RT CPU. The observers
 * (`--observe`) count these, and why.
 */
#define EACH_STAT(X)                                                                               \
	X(calls_from_rt)	/* system calls there, of guests that may leave it */              \
	X(different_calls_from_rt) /* how many different ones */                                   \
	X(faults_from_rt)	/* page faults from user mode that began there */                  \
	X(kernel_faults_from_rt) /* page faults there of the kernel, for a guest */                \
	X(other_from_rt)	/* exceptions there, and signals before the return */              \
	X(left_in_kernel)	/* guests that left an RT CPU in the kernel */                     \
	X(left_in_user)		/* guests that left one in user mode, as their turn was over */    \
	X(began_on_rt)		/* guests that began to run on an RT CPU, and may leave it */      \
	X(began_in_kernel_on_rt) /* of these: in the kernel */                                     \
	X(asked)		/* returns to user mode that asked an idle RT CPU to fetch */      \
	X(too_short)		/* guests kept off RT CPUs, as their stays there are too short */  \
	X(linux_on_nrt_ns)	/* time that guests ran, by class and kind of CPU: ran_as() */     \
	X(linux_on_rt_ns)                                                                          \
	X(rt1_on_nrt_ns)                                                                           \
	X(rt1_on_rt_ns)                                                                            \
	X(linux_to_nrt)		/* moves of guests, by class and where to: moved_as() */           \
	X(linux_to_rt)                                                                             \
	X(rt1_to_nrt)                                                                              \
	X(rt1_to_rt)                                                                               \
	X(at_tick)		/* guests that went to an RT CPU at a tick */                      \
	X(bound)		/* enqueued guests that may use RT CPUs only */                    \
	X(made_room)		/* NRT CPUs interrupted for a guest that waits for one */          \
	X(longest_kernel_ns)	/* time in the kernel on an RT CPU, of one that may leave it */    \
	X(move_ns)		/* median from an entry to running on an NRT CPU */               \
	X(observed_calls)	/* from here: by the observers */                                  \
	X(observed_faults)                                                                         \
	X(observed_work)	/* pages of core dumps, and timers of CPU time */                  \
	X(escaped_work)		/* of these, on an RT CPU for a guest that may leave it */         \
	X(observed_exceptions)	/* signals that the kernel forces on a task */                     \
	X(escaped_exceptions)                                                                      \
	X(rt0_moves)		/* tasks of SCHED_FIFO, _RR that began to run on another CPU */    \
	X(escaped_calls)	/* system calls with an escape, by cause: */                       \
	X(escaped_calls_bound)	/* the guest may run on RT CPUs only, or may not migrate */        \
	X(escaped_calls_exiting)                                                                   \
	X(escaped_calls_sigreturn) /* its end alone: it has no number left */                      \
	X(escaped_calls_other)                                                                     \
	X(escaped_faults)	/* page faults with an escape, by cause: */                        \
	X(escaped_faults_bound)                                                                    \
	X(escaped_faults_exiting)                                                                  \
	X(escaped_faults_kernel) /* of the kernel, for a guest that goes back to user mode */      \
	X(escaped_faults_other)

enum stat {
#define ENUMERATOR(name) STAT_##name,
	EACH_STAT(ENUMERATOR)
#undef ENUMERATOR
	NR_STATS
};

/* The argument of `set_cpus`: bit CPU % 64 of word CPU / 64 is set for the RT CPUs. */
struct cpu_words {
	unsigned long long word[MAX_CPUS / 64];
};

/* The argument of `class_of`, which returns the class: 0 for Linux, RT1 has its priority 1-99. */
struct class_change {
	int tid;
	int prio;	/* -1: asks only */
};
