/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Observers, for tests: they see what guests do in the kernel, and where, by other means than the
 * scheduler does.
 */
#pragma once
#include "guests.h"

enum { BOUND, EXITING, SIGRETURN, KERNEL_MODE, OTHER };

static __always_inline int cause_of(struct task_struct *p)
{
	struct bpf_cpumask *nrt = nrt_mask;
	int cause = OTHER;

	bpf_rcu_read_lock();
	/* The observer itself counts as one. */
	if (p->nr_cpus_allowed == 1 || p->migration_disabled > 1 ||
	    (nrt && !bpf_cpumask_intersects((const struct cpumask *)nrt, p->cpus_ptr)))
		cause = BOUND;
	else if (p->flags & PF_EXITING)
		cause = EXITING;
	bpf_rcu_read_unlock();
	return cause;
}

static __always_inline void escaped_call(struct task_struct *p, long nr, char *where)
{
	int cause = cause_of(p);

	if (cause == OTHER && nr == -1)
		cause = SIGRETURN;
	add(STAT_escaped_calls, 1);
	add(cause == BOUND ? STAT_escaped_calls_bound :
	    cause == EXITING ? STAT_escaped_calls_exiting :
	    cause == SIGRETURN ? STAT_escaped_calls_sigreturn : STAT_escaped_calls_other, 1);
	if (cause == OTHER)
		bpf_printk("artis: %s of call %ld on a real-time CPU, %d CPUs allowed", where, nr,
			   p->nr_cpus_allowed);
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(observe_enter, struct pt_regs *regs, long nr)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (is_rt(bpf_get_smp_processor_id()) && guest(p))
		escaped_call(p, nr, "begin");
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(observe_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!guest(p))
		return 0;
	add(STAT_observed_calls, 1);
	if (is_rt(bpf_get_smp_processor_id()))
		escaped_call(p, regs->orig_ax, "end");
	return 0;
}

SEC("?fentry/handle_mm_fault")
int BPF_PROG(observe_fault, void *vma, unsigned long address, unsigned int flags,
	     struct pt_regs *regs)
{
	struct task_struct *p = bpf_get_current_task_btf();
	int cause;

	if (!guest(p))
		return 0;
	add(STAT_observed_faults, 1);
	if (!is_rt(bpf_get_smp_processor_id()))
		return 0;
	cause = cause_of(p);
	/* FAULT_FLAG_USER */
	if (cause == OTHER && !(flags & 0x40))
		cause = KERNEL_MODE;
	add(STAT_escaped_faults, 1);
	add(cause == BOUND ? STAT_escaped_faults_bound :
	    cause == EXITING ? STAT_escaped_faults_exiting :
	    cause == KERNEL_MODE ? STAT_escaped_faults_kernel : STAT_escaped_faults_other, 1);
	if (cause == OTHER || cause == KERNEL_MODE)
		bpf_printk("artis: fault, flags %x, call %ld, ip %lx on a real-time CPU", flags,
			   ((struct pt_regs *)bpf_task_pt_regs(p))->orig_ax,
			   regs ? BPF_CORE_READ(regs, ip) : 0);
	return 0;
}

static __always_inline void observe_work(u32 observed, u32 escaped)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!guest(p))
		return;
	add(observed, 1);
	if (is_rt(bpf_get_smp_processor_id()) && cause_of(p) == OTHER)
		add(escaped, 1);
}

/* For each page of a core dump. */
SEC("?fentry/__kernel_write_iter")
int BPF_PROG(observe_write)
{
	observe_work(STAT_observed_work, STAT_escaped_work);
	return 0;
}

/* Work for a task that its timers of CPU time bring about, in an interrupt. */
SEC("?fentry/posix_cpu_timers_work")
int BPF_PROG(observe_timers)
{
	observe_work(STAT_observed_work, STAT_escaped_work);
	return 0;
}

/* The handlers of exceptions call one of these. */
SEC("?fentry/force_sig_fault")
int BPF_PROG(observe_exception)
{
	observe_work(STAT_observed_exceptions, STAT_escaped_exceptions);
	return 0;
}

SEC("?fentry/force_sig")
int BPF_PROG(observe_protection)
{
	observe_work(STAT_observed_exceptions, STAT_escaped_exceptions);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} last_cpus SEC(".maps");

/* Programs of user mode with a real-time policy, whose CPU changes. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(observe_switch, bool preempt, struct task_struct *from, struct task_struct *to)
{
	u32 cpu = bpf_get_smp_processor_id() + 1, *last;

	if (to->flags & PF_KTHREAD || (to->policy != 1 && to->policy != 2))
		return 0;
	last = bpf_task_storage_get(&last_cpus, to, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!last)
		return 0;
	if (*last && *last != cpu)
		add(STAT_rt0_moves, 1);
	*last = cpu;
	return 0;
}
