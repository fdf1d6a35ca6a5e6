/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What notices that a guest enters the kernel on an RT CPU, and has it taken off before the body;
 * and what tells of a guest that only seems to be in user mode that it is not.
 */
#pragma once
#include "guests.h"

/* The numbers of system calls that were seen to begin on an RT CPU. */
u8 seen[512];

static __always_inline bool eject(struct task_struct *p, struct task *t, s32 cpu, u32 what)
{
	/* One of the partition itself, or bound to its CPUs, has nowhere to go. */
	if (!has_nrt(p))
		return false;
	add(what, 1);
	t->ejected = 1;
	if (!t->entered)
		t->entered = scx_bpf_now();
	/* Interrupts are off: this one comes as soon as they are on, before the body. */
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return true;
}

extern const void asm_int80_emulation __ksym __weak;

/*
 * Is this entry, which has no number of a call, a call nevertheless? One by INT 0x80 gets its
 * number later, and one with the number -1 has none. FRED has no entry for each: there the code
 * tells (SYSCALL, SYSENTER, INT 0x80). What cannot be read is taken for a call: that costs a move.
 */
static __always_inline bool is_call(const struct pt_regs *regs)
{
	u8 code[2];

	if (by_syscall(regs))
		return true;
	if (is_in(entered_by(regs), &asm_int80_emulation))
		return true;
	/* That has a hook of its own. Where it fetches an instruction, the code is not there yet. */
	if (by_page_fault(regs))
		return false;
	if (bpf_probe_read_user(code, sizeof(code), (void *)(regs->ip - sizeof(code))))
		return true;
	return (code[0] == 0x0f && (code[1] == 0x05 || code[1] == 0x34)) ||
	       (code[0] == 0xcd && code[1] == 0x80);
}

/* Each entry from user mode on a CPU of nohz_full=, interrupts still off. */
SEC("tp_btf/user_exit")
int BPF_PROG(on_user_exit, int dummy)
{
	s32 cpu = bpf_get_smp_processor_id();

	if (!is_rt(cpu))
		return 0;
	struct task_struct *p = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	struct task *t = guest(p);

	if (!t)
		return 0;
	/* The kernel, too, takes the lower half alone for the number of a call. */
	s32 nr = (s32)regs->orig_ax;

	if (nr >= 0) {
		if (eject(p, t, cpu, STAT_calls_from_rt) && (u32)nr < sizeof(seen) && !seen[nr]) {
			seen[nr] = 1;
			add(STAT_different_calls_from_rt, 1);
		}
	} else if (is_call(regs)) {
		eject(p, t, cpu, STAT_calls_from_rt);
	} else if (by_exception(regs) || has_exit_work(p)) {
		eject(p, t, cpu, STAT_other_from_rt);
	}
	return 0;
}

/* Filters of seccomp, for a call of any number: a net behind is_call(). */
SEC("fentry/__secure_computing")
int BPF_PROG(on_seccomp)
{
	struct task_struct *p = bpf_get_current_task_btf();
	s32 cpu = bpf_get_smp_processor_id();
	struct task *t = guest(p);

	if (t && is_rt(cpu) && !(p->flags & PF_EXITING))
		eject(p, t, cpu, STAT_calls_from_rt);
	return 0;
}

static __always_inline void page_fault(u32 what)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	s32 cpu = bpf_get_smp_processor_id();
	struct task *t = guest(p);

	if (!regs_offset)
		regs_offset = (u64)regs - (u64)p->stack;
	if (!t)
		return;
	t->faults = faults(p) + 1;
	t->fault_ip = regs->ip;
	if (is_rt(cpu))
		eject(p, t, cpu, what);
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_page_fault, unsigned long address, struct pt_regs *regs, unsigned long code)
{
	page_fault(STAT_faults_from_rt);
	return 0;
}

/* The way back to user mode writes there: the frame of a signal, and the CPU for rseq. */
SEC("tp_btf/page_fault_kernel")
int BPF_PROG(on_kernel_fault, unsigned long address, struct pt_regs *regs, unsigned long code)
{
	page_fault(STAT_kernel_faults_from_rt);
	return 0;
}

/* A signal for a guest on an RT CPU: it is delivered elsewhere. */
SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int sig, struct kernel_siginfo *info, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (is_rt(cpu) && guest(p) && has_nrt(p))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

static __always_inline void mark_signal(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	struct task *t = guest(p);

	if (!t)
		return;
	t->signal_ip = regs->ip;
	t->signal_ticks = 0;
}

/*
 * It writes a frame for the handler now. Then it is at the handler. Programs of this kind run with
 * preemption off, so that the kick comes after them on PREEMPT_RT too: no lock of signals turns
 * interrupts off there.
 */
SEC("tracepoint/signal/signal_deliver")
int on_deliver(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	s32 cpu = bpf_get_smp_processor_id();

	mark_signal();
	if (is_rt(cpu) && guest(p) && has_nrt(p))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/*
 * What the kernel does before a return to user mode, be it from an interrupt: signals and core
 * dumps, work that was left for the task, uprobes, memory above its group's limit. Not all kernels
 * have all of it.
 */
static __always_inline void begin_work(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	s32 cpu = bpf_get_smp_processor_id();
	struct task *t = guest(p);

	if (!t)
		return;
	t->works++;
	t->work_ip = ((struct pt_regs *)bpf_task_pt_regs(p))->ip;
	if (is_rt(cpu) && !(p->flags & PF_EXITING))
		eject(p, t, cpu, STAT_other_from_rt);
}

static __always_inline void end_work(void)
{
	struct task *t = guest(bpf_get_current_task_btf());

	if (t && t->works)
		t->works--;
}

#define WORK(function)                                                                             \
	SEC("fentry/" #function) int BPF_PROG(begin_##function)                                    \
	{                                                                                          \
		begin_work();                                                                      \
		return 0;                                                                          \
	}                                                                                          \
	SEC("fexit/" #function) int BPF_PROG(end_##function)                                       \
	{                                                                                          \
		end_work();                                                                        \
		return 0;                                                                          \
	}
WORK(arch_do_signal_or_restart)
WORK(task_work_run)
WORK(uprobe_notify_resume)
WORK(__mem_cgroup_handle_over_high)

/*
 * A signal handler returns, in a 64-bit or 32-bit program. The registers are those of the
 * interrupted code by now, and hold no number of a call.
 */
SEC("fentry/fpu__restore_sig")
int BPF_PROG(on_sigreturn)
{
	begin_work();
	return 0;
}

SEC("fexit/fpu__restore_sig")
int BPF_PROG(after_sigreturn)
{
	mark_signal();
	end_work();
	return 0;
}
