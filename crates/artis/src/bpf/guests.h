/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler keeps of tasks and CPUs, and what it can tell of a guest. */
#pragma once
#include "kernel.h"
#include "intf.h"
#include "policy.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000
#define HAS_NO_USER_MODE (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)

int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;
void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) __ksym;
bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b) __ksym;
void *bpf_rdonly_cast(const void *object, u32 type) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u64 scx_bpf_now(void) __ksym;

void scx_bpf_dsq_reenq(u64 dsq_id, u64 flags) __ksym;

enum { SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2 };
/*
 * The queues, each ordered by place. KERNEL: guests in the kernel, for NRT CPUs. USER: guests in
 * user mode, for all CPUs. SYSTEM: those of them that may use no RT CPU. RT_ONLY: guests that no
 * NRT CPU may run.
 */
enum { KERNEL = 1, USER = 2, SYSTEM = 3, RT_ONLY = 4 };

const volatile u32 nr_cpus = 1;

/* The roles: in bytes to look up, in masks for the kernel. set_roles() changes them. */
u8 rt[MAX_CPUS];
#define private(name) SEC(".data." #name) __hidden __attribute__((aligned(8)))
private(MASKS) struct bpf_cpumask __kptr *rt_mask;
private(MASKS) struct bpf_cpumask __kptr *nrt_mask;
/* Counts beginnings and ends of changes. */
volatile u32 role_changes;

struct task {
	u32 prio;		/* RT1+: 1 to 99; 0: a Linux task */
	u32 ejected;		/* It entered the kernel on an RT CPU. */
	u32 waited;		/* It found no NRT CPU then. */
	u32 in_kernel;		/* It was in the kernel when it was enqueued last. */
	u64 faults;		/* its faults when the current or last one will have ended */
	u64 fault_ip;		/* where it entered the kernel for that one */
	u64 signal_ip;		/* where user mode was as a signal came, or went on after one */
	u32 signal_ticks;	/* ticks since */
	u32 works;		/* what it is in of the work before a return to user mode */
	u64 work_ip;		/* where user mode goes on after that */
	u64 used;		/* what it ran as a Linux task, by its weight */
	u32 has_slept;		/* It has slept since it ran, or is new. */
	s32 ran_on;		/* where it ran last: its use compares with that of others there */
	u64 since;		/* when it began to run */
	u64 counted;		/* `used` has what it ran until then */
	u64 entered;		/* when it entered the kernel on an RT CPU; 0: in user mode */
	u64 stay;		/* mean length of its stays on RT CPUs that an entry ended */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NR_STATS);
	__type(key, u32);
	__type(value, u64);
} stats SEC(".maps");

struct cpu {
	u64 began;		/* when a guest began to run here that may go to RT CPUs; 0: none */
	u32 in_user;		/* It was in user mode then. */
	u32 is_bound;		/* No system CPU may run it. */
	u32 asked;		/* an RT CPU: 1 + the NRT CPU whose guest it is to fetch */
	u64 user_at;		/* an NRT CPU: when it looked for a guest in user mode first */
	u64 used_most;		/* the most that a Linux task had used when it began to run here */
	u32 runs_as;		/* what the time of the guest that runs here counts as; 0: none does */
	u64 runs_since;
};
struct cpu cpus[MAX_CPUS];
/* The cost of a move off an RT CPU: the median. The first value is that of no real machine. */
u64 move_ns = 5000;
/* From the lowest byte of a task's kernel stack to the registers of its last entry. */
u64 regs_offset;

static __always_inline void add(u32 what, u64 n)
{
	u64 *sum = bpf_map_lookup_elem(&stats, &what);

	if (sum)
		*sum += n;
}

static __always_inline void at_least(u32 what, u64 n)
{
	u64 *largest = bpf_map_lookup_elem(&stats, &what);

	if (largest && n > *largest)
		*largest = n;
}

/* An index that the verifier knows to be one: the compiler drops a mask that it finds useless. */
static __always_inline u64 index_of(s32 cpu)
{
	u64 index = (u32)cpu;

	asm volatile("%0 &= 1023" : "+r"(index));
	return index;
}

static __always_inline bool is_rt(s32 cpu)
{
	return rt[index_of(cpu)];
}

static __always_inline struct cpu *cpu_of(s32 cpu)
{
	return &cpus[index_of(cpu)];
}

/* Clocks of two CPUs may differ a little: never negative. */
static __always_inline u64 ns_since(u64 now, u64 then)
{
	return (s64)(now - then) > 0 ? now - then : 0;
}

/* What the time counts as that the guest runs on this CPU. */
static __always_inline u32 ran_as(struct task *t, s32 cpu)
{
	return STAT_linux_on_nrt_ns + 2 * (t->prio > 0) + is_rt(cpu);
}

/* What its move to this CPU counts as, from one of the other kind. */
static __always_inline u32 moved_as(struct task *t, s32 cpu)
{
	return STAT_linux_to_nrt + 2 * (t->prio > 0) + is_rt(cpu);
}

static __always_inline bool may(struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Is there a system CPU for what it does in the kernel, once it may migrate? */
static __always_inline bool has_nrt(struct task_struct *p)
{
	struct bpf_cpumask *nrt = nrt_mask;

	return nrt && bpf_cpumask_intersects((const struct cpumask *)nrt, p->cpus_ptr);
}

/* A section that may not migrate has one CPU alone for a while. Is there one behind that? */
static __always_inline bool will_have_nrt(struct task_struct *p)
{
	struct bpf_cpumask *nrt = nrt_mask;

	return nrt && bpf_cpumask_intersects((const struct cpumask *)nrt, &p->cpus_mask);
}

/* Is there a real-time CPU for it? */
static __always_inline bool has_rt(struct task_struct *p)
{
	struct bpf_cpumask *mask = rt_mask;

	return mask && bpf_cpumask_intersects((const struct cpumask *)mask, p->cpus_ptr);
}

/* For the current task. A kick would only interrupt it if not. The program here counts as one. */
static __always_inline bool may_leave(struct task_struct *p)
{
	return p->migration_disabled <= 1 && has_nrt(p);
}

/* Signals and work that a task sees to before it returns to user mode. */
static __always_inline bool has_exit_work(struct task_struct *p)
{
	unsigned long pending = p->pending.signal.sig[0];

	if (p->signal)
		pending |= p->signal->shared_pending.signal.sig[0];
	return p->task_works || (pending & ~p->blocked.sig[0]);
}

static __always_inline u64 faults(struct task_struct *p)
{
	return p->min_flt + p->maj_flt;
}

/*
 * SYSCALL leaves the place where user mode goes on in cx, and the flags in r11. Other entries find
 * the registers like this only if they come right after that instruction.
 */
static __always_inline bool by_syscall(const struct pt_regs *regs)
{
	return regs->cx == regs->ip && regs->r11 == regs->flags;
}

/*
 * An entry calls a function. Where that returns to stands below the registers. 0: it cannot be
 * read.
 */
static __always_inline u64 entered_by(const void *regs)
{
	u64 from = 0;

	bpf_probe_read_kernel(&from, sizeof(from), (const char *)regs - sizeof(from));
	return from;
}

/*
 * Exceptions besides page faults. The kernel handles them with interrupts on: it may print,
 * allocate memory, and send a signal. Machine checks have an entry of another kind.
 */
#define EACH_EXCEPTION(X)                                                                          \
	X(divide_error) X(overflow) X(bounds) X(invalid_op) X(device_not_available)                \
	X(invalid_tss) X(segment_not_present) X(stack_segment) X(general_protection)               \
	X(coprocessor_error) X(alignment_check) X(simd_coprocessor_error) X(int3) X(debug)
#define SYMBOL(name) extern const void asm_exc_##name __ksym __weak;
EACH_EXCEPTION(SYMBOL)
SYMBOL(page_fault)
#undef SYMBOL
/*
 * The call stands so near the begin of an entry. Some entries are shorter: behind them are those of
 * other exceptions.
 */
enum { ENTRY_BYTES = 64 };

static __always_inline bool is_in(u64 from, const void *entry)
{
	return entry && from - (u64)entry < ENTRY_BYTES;
}

/* FRED has one entry for all, and puts the kind of event and its vector beside the selector. */
enum { HARDWARE = 3, PAGE_FAULT = 14 };

static __always_inline bool by_page_fault(const struct pt_regs *regs)
{
	u64 ss = regs->ssx;

	return ((ss >> 48 & 15) == HARDWARE && (ss >> 32 & 255) == PAGE_FAULT) ||
	       is_in(entered_by(regs), &asm_exc_page_fault);
}

static __always_inline bool by_exception(const struct pt_regs *regs)
{
	u64 from = entered_by(regs), ss = regs->ssx;

#define IS_IN(name) || is_in(from, &asm_exc_##name)
	return ((ss >> 48 & 15) == HARDWARE && (ss >> 32 & 255) != PAGE_FAULT)
		EACH_EXCEPTION(IS_IN);
#undef IS_IN
}

/*
 * Did an interrupt take this runnable task from user mode? Then only the way back is left of its
 * stay in the kernel. Entries by an interrupt or a fault have orig_ax == -1.
 * The work on that way is told by its hooks, by the place as well: a hook may be lost.
 * A fault that ends without being counted is told by the next entry, which is elsewhere. So are the
 * delivery of a signal, and the return from its handler, which has lost its number half-way.
 */
static __always_inline bool at_user(struct task_struct *p, struct task *t)
{
	struct pt_regs *regs;

	if (p->flags & (HAS_NO_USER_MODE | PF_EXITING) || !regs_offset)
		return false;
	if (has_exit_work(p))
		return false;
	regs = bpf_rdonly_cast((char *)p->stack + regs_offset,
			       bpf_core_type_id_kernel(struct pt_regs));
	if ((faults(p) < t->faults && regs->ip == t->fault_ip) || regs->ip == t->signal_ip)
		return false;
	if (t->works && regs->ip == t->work_ip)
		return false;
	/* A call whose number is -1 runs filters of seccomp all the same. */
	return (long)regs->orig_ax == -1 && !by_syscall(regs) && !by_exception(regs);
}

/* Guests are the tasks that this scheduler has: not SCHED_FIFO (1), _RR (2), _DEADLINE (6). */
static __always_inline struct task *guest(struct task_struct *p)
{
	if (p->flags & PF_KTHREAD || p->policy == 1 || p->policy == 2 || p->policy == 6)
		return NULL;
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}
