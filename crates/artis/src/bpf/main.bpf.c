// SPDX-License-Identifier: GPL-2.0-only
/*
 * ARTiS (Marquet et al., 2004) as a scheduler in BPF.
 *
 * Problem:  real-time (RT) CPUs stand idle between the events of their one hard task (RT0, of
 *           SCHED_FIFO), but what else runs there may be in the kernel, not preemptible, when the
 *           event comes.
 * Approach: all other tasks (the guests) run on RT CPUs in user mode only. One that enters the
 *           kernel there is interrupted before the body of the system call or fault, and goes on
 *           on another CPU (NRT). One that is back in user mode may go to an RT CPU.
 *
 * Two queues: KERNEL for guests that are in the kernel, for NRT CPUs; USER for guests that were
 * interrupted in user mode, for all CPUs. A guest is in user mode if its last entry into the kernel
 * was an interrupt: at_user().
 *
 * Units: ns of the scheduler's clock.
 */
#include "kernel.h"
#include "intf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_DSQ_LOCAL_ON (3ULL << 62)
#define SCX_SLICE_INF (~0ULL)
#define SCX_KICK_IDLE 1
#define SCX_KICK_PREEMPT 2
#define SCX_ENQ_WAKEUP 1
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000
#define IMMED bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_IMMED)

enum { KERNEL = 1, USER = 2 };

int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
bool scx_bpf_dsq_insert___v2___asmp(struct task_struct *p, u64 dsq_id, u64 slice, u64 flags) __ksym;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				struct scx_bpf_dsq_insert_vtime_args *args) __ksym;
bool scx_bpf_dsq_move_to_local___v2___asmp(u64 dsq_id, u64 enq_flags) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *allowed,
			     struct scx_bpf_select_cpu_and_args *args) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym;
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u64 scx_bpf_now(void) __ksym;
struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) __ksym;
bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *work, void *map,
				  int (*callback)(struct bpf_map *map, void *key, void *value)) __ksym __weak;

const volatile u32 nr_cpus = 1;
const volatile u8 rt[MAX_CPUS];
const volatile u64 slice_ns = 3000000;
/* A guest whose stays on RT CPUs are shorter than this on average does not ask to go back. */
const volatile u64 least_stay_ns = 20000;

#define private(name) SEC(".data." #name) __hidden __attribute__((aligned(8)))
private(MASKS) struct bpf_cpumask __kptr *rt_mask;
private(MASKS) struct bpf_cpumask __kptr *nrt_mask;

struct task {
	u32 prio;		/* RT1+: 1 to 99; 0: a Linux task */
	u32 ejected;		/* It entered the kernel on an RT CPU. */
	u64 fault;		/* Its faults when the current or last one will have ended. */
	u64 since;		/* when it began to run */
	u64 entered;		/* when it entered the kernel on this RT CPU; 0: in user mode */
	u64 stay;		/* mean length of its stays on RT CPUs that an entry ended */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

struct work {
	struct bpf_task_work work;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, int);
	__type(value, struct work);
} works SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NR_STATS);
	__type(key, u32);
	__type(value, u64);
} stats SEC(".maps");

struct cpu {
	u64 since;		/* since when a guest in user mode runs here; 0: none */
	u32 asked;		/* an RT CPU: 1 + the NRT CPU whose guest it is to fetch */
};
struct cpu cpus[MAX_CPUS];
u64 vtime_now;
/* From the lowest byte of a task's kernel stack to the registers of its last entry. */
u64 regs_offset;

static __always_inline void add(u32 what, u64 n)
{
	u64 *sum = bpf_map_lookup_elem(&stats, &what);

	if (sum)
		*sum += n;
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

static __always_inline bool may(struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
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
 * Did an interrupt take this runnable task from user mode? Then only the way back is left of its
 * stay in the kernel. Entries by an interrupt or a fault have orig_ax == -1.
 */
static __always_inline bool at_user(struct task_struct *p, struct task *t)
{
	struct pt_regs *regs = (struct pt_regs *)((u64)p->stack + regs_offset);

	if (p->flags & (PF_KTHREAD | PF_EXITING | PF_IO_WORKER | PF_USER_WORKER) || !regs_offset)
		return false;
	if (faults(p) < t->fault || has_exit_work(p))
		return false;
	return (long)BPF_CORE_READ(regs, orig_ax) == -1;
}

static __always_inline s32 idle_of(struct task_struct *p, s32 prev, struct bpf_cpumask *mask)
{
	struct scx_bpf_select_cpu_and_args args = { .prev_cpu = prev };

	return mask ? __scx_bpf_select_cpu_and(p, (const struct cpumask *)mask, &args) : -1;
}

static __always_inline void insert(struct task_struct *p, struct task *t, u64 queue, u64 flags)
{
	struct scx_bpf_dsq_insert_vtime_args args = {
		.dsq_id = queue,
		.slice = slice_ns,
		/* RT1+ go before Linux tasks, and among themselves by priority. */
		.vtime = t->prio ? 100 - t->prio : (1ULL << 60) + p->scx.dsq_vtime,
		.enq_flags = flags,
	};

	if (!t->prio && (s64)(p->scx.dsq_vtime - (vtime_now - slice_ns)) < 0)
		args.vtime = (1ULL << 60) + vtime_now - slice_ns;
	__scx_bpf_dsq_insert_vtime(p, &args);
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(artis_select_cpu, struct task_struct *p, s32 prev, u64 flags)
{
	s32 cpu = idle_of(p, prev, nrt_mask);

	if (cpu >= 0) {
		scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL, slice_ns, 0);
		return cpu;
	}
	if (!is_rt(prev))
		return prev;
	each_cpu(cpu, nr_cpus)
		if (!is_rt(cpu) && may(p, cpu))
			return cpu;
	return prev;
}

/* An NRT CPU whose guest may as well run on the RT CPU that another one has just left. */
static __always_inline void make_room(struct task_struct *p)
{
	s32 cpu;

	each_cpu(cpu, nr_cpus) {
		struct cpu *c = cpu_of(cpu);

		if (!c || is_rt(cpu) || !c->since || !may(p, cpu))
			continue;
		c->since = 0;
		add(STAT_ROOM, 1);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
}

static __always_inline void enqueue_user(struct task_struct *p, struct task *t, s32 cpu, u64 flags)
{
	bool again = flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_REENQ);
	s32 to = again ? -1 : idle_of(p, cpu, rt_mask);

	if (to < 0 && flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST))
		to = cpu;
	if (to >= 0 && (to == cpu || !is_rt(cpu))) {
		scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL_ON | to, slice_ns, is_rt(to) ? IMMED : 0);
		return;
	}
	/* No lock of another CPU's run queue is taken on an RT CPU. */
	insert(p, t, USER, flags & ~(bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST)));
	if (to < 0)
		to = idle_of(p, cpu, nrt_mask);
	if (to >= 0)
		scx_bpf_kick_cpu(to, SCX_KICK_IDLE);
}

static __always_inline void enqueue_kernel(struct task_struct *p, struct task *t, s32 cpu,
					   u64 flags)
{
	s32 to = idle_of(p, cpu, nrt_mask);

	if (!is_rt(cpu)) {
		if (to < 0 && flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST))
			to = cpu;
		if (to >= 0) {
			scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL_ON | to, slice_ns, 0);
			return;
		}
	}
	insert(p, t, KERNEL, flags & ~(bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST)));
	if (to >= 0)
		scx_bpf_kick_cpu(to, SCX_KICK_IDLE);
	else
		make_room(p);
}

SEC("struct_ops/enqueue")
void BPF_PROG(artis_enqueue, struct task_struct *p, u64 flags)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	struct bpf_cpumask *nrt = nrt_mask;
	s32 cpu = scx_bpf_task_cpu(p);

	if (!t || !nrt || p->nr_cpus_allowed == 1) {
		scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL, slice_ns, 0);
		return;
	}
	if (!bpf_cpumask_intersects((const struct cpumask *)nrt, p->cpus_ptr)) {
		add(STAT_BOUND, 1);
		enqueue_user(p, t, cpu, flags);
	} else if (!(flags & SCX_ENQ_WAKEUP) && at_user(p, t)) {
		if (is_rt(cpu))
			add(STAT_PUSHED, 1);
		enqueue_user(p, t, cpu, flags);
	} else {
		if (is_rt(cpu))
			add(STAT_LEFT, 1);
		enqueue_kernel(p, t, cpu, flags);
	}
}

SEC("struct_ops/dispatch")
void BPF_PROG(artis_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu *c = cpu_of(cpu);

	if (!is_rt(cpu)) {
		if (!scx_bpf_dsq_move_to_local___v2___asmp(KERNEL, 0))
			scx_bpf_dsq_move_to_local___v2___asmp(USER, 0);
		return;
	}
	if (scx_bpf_dsq_nr_queued(USER) > 0 && scx_bpf_dsq_move_to_local___v2___asmp(USER, IMMED))
		return;
	if (c && c->asked) {
		u32 from = c->asked - 1;

		c->asked = 0;
		scx_bpf_kick_cpu(from, SCX_KICK_PREEMPT);
	}
}

/* A guest that computes does not enter the kernel but by its tick. */
SEC("struct_ops/tick")
void BPF_PROG(artis_tick, struct task_struct *p)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	s32 cpu = scx_bpf_task_cpu(p), r;
	u64 now = scx_bpf_now();
	bool goes = false;

	if (is_rt(cpu) || !t)
		return;
	bool in_user = at_user(p, t);
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool waits = scx_bpf_dsq_nr_queued(USER) > 0;

	each_cpu(r, nr_cpus) {
		struct cpu *c = cpu_of(r);

		if (!c || !is_rt(r))
			continue;
		if (bpf_cpumask_test_cpu(r, idle))
			goes = goes || may(p, r);
		else if (waits && c->since && now - c->since > slice_ns) {
			c->since = now;
			scx_bpf_kick_cpu(r, SCX_KICK_PREEMPT);
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	if (goes && in_user) {
		add(STAT_TICK, 1);
		scx_bpf_task_set_slice(p, 0);
	}
}

/* The guest is about to return to user mode, on an NRT CPU. */
static int on_return(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	s32 cpu = bpf_get_smp_processor_id(), r;

	if (is_rt(cpu))
		return 0;
	/* It may sleep, and p->cpus_ptr is to stay. */
	bpf_rcu_read_lock();
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();

	each_cpu(r, nr_cpus) {
		struct cpu *c = cpu_of(r);

		if (!c || !is_rt(r) || !may(p, r) || !bpf_cpumask_test_cpu(r, idle))
			continue;
		/* An interrupt from this CPU itself would come at once, before the return. */
		c->asked = cpu + 1;
		add(STAT_ASKED, 1);
		scx_bpf_kick_cpu(r, SCX_KICK_IDLE);
		break;
	}
	scx_bpf_put_idle_cpumask(idle);
	bpf_rcu_read_unlock();
	return 0;
}

SEC("struct_ops/running")
void BPF_PROG(artis_running, struct task_struct *p)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu *c = cpu_of(cpu);
	u64 now = scx_bpf_now();

	if (!t || !c)
		return;
	if ((s64)(p->scx.dsq_vtime - vtime_now) > 0)
		vtime_now = p->scx.dsq_vtime;
	t->since = now;
	t->entered = 0;
	bool in_user = at_user(p, t);

	c->since = in_user ? now : 0;
	if (is_rt(cpu)) {
		add(STAT_TO_RT, 1);
		if (!in_user) {
			add(STAT_KERNEL_ON_RT, 1);
			t->entered = now;
		}
		scx_bpf_task_set_slice(p, SCX_SLICE_INF);
	} else if (t->ejected) {
		int pid = p->pid;
		struct work *w = bpf_map_lookup_elem(&works, &pid);

		t->ejected = 0;
		if (t->stay < least_stay_ns)
			add(STAT_SHORT, 1);
		else if (w)
			bpf_task_work_schedule_resume(p, &w->work, &works, on_return);
	}
}

SEC("struct_ops/stopping")
void BPF_PROG(artis_stopping, struct task_struct *p, bool runnable)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu *c = cpu_of(cpu);
	u64 now = scx_bpf_now();

	if (!t || !c)
		return;
	c->since = 0;
	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + (now - t->since) * 100 / p->scx.weight);
	if (!is_rt(cpu))
		return;
	if (t->entered) {
		u32 what = STAT_LONGEST;
		u64 *longest = bpf_map_lookup_elem(&stats, &what);

		if (longest && now - t->entered > *longest)
			*longest = now - t->entered;
	}
	if (t->ejected)
		t->stay = (3 * t->stay + (now - t->since)) / 4;
}

SEC("struct_ops/enable")
void BPF_PROG(artis_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, vtime_now);
}

SEC("struct_ops.s/init_task")
s32 BPF_PROG(artis_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct work w = {};
	int pid = p->pid;

	if (!t)
		return -12;
	t->stay = 1000000;
	bpf_map_update_elem(&works, &pid, &w, BPF_ANY);
	if (!args->fork)
		return 0;
	struct task *from = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);

	if (from)
		t->prio = from->prio;
	return 0;
}

SEC("struct_ops/exit_task")
void BPF_PROG(artis_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	int pid = p->pid;

	bpf_map_delete_elem(&works, &pid);
}

SEC("struct_ops/cpu_online")
void BPF_PROG(artis_cpu_online, s32 cpu)
{
}

SEC("struct_ops/cpu_offline")
void BPF_PROG(artis_cpu_offline, s32 cpu)
{
}

SEC("struct_ops.s/init")
s32 BPF_PROG(artis_init)
{
	struct bpf_cpumask *a = bpf_cpumask_create(), *b;
	s32 cpu, error;

	if (!a)
		return -12;
	b = bpf_cpumask_create();
	if (!b) {
		bpf_cpumask_release(a);
		return -12;
	}
	each_cpu(cpu, nr_cpus) {
		if (is_rt(cpu))
			bpf_cpumask_set_cpu(cpu, a);
		else
			bpf_cpumask_set_cpu(cpu, b);
	}
	a = bpf_kptr_xchg(&rt_mask, a);
	if (a)
		bpf_cpumask_release(a);
	b = bpf_kptr_xchg(&nrt_mask, b);
	if (b)
		bpf_cpumask_release(b);
	error = scx_bpf_create_dsq(KERNEL, -1);
	return error ?: scx_bpf_create_dsq(USER, -1);
}

struct {
	u64 kind;
	char reason[128];
	char msg[256];
} ended = {};

SEC("struct_ops/exit")
void BPF_PROG(artis_exit, struct scx_exit_info *info)
{
	ended.kind = info->kind;
	bpf_probe_read_kernel_str(ended.reason, sizeof(ended.reason), info->reason);
	bpf_probe_read_kernel_str(ended.msg, sizeof(ended.msg), info->msg);
}

/* Guests are the tasks that this scheduler has: not SCHED_FIFO (1), _RR (2), _DEADLINE (6). */
static __always_inline struct task *guest(struct task_struct *p)
{
	if (p->flags & PF_KTHREAD || p->policy == 1 || p->policy == 2 || p->policy == 6)
		return NULL;
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

static __always_inline void eject(struct task *t, s32 cpu, u32 what)
{
	add(what, 1);
	t->ejected = 1;
	t->entered = scx_bpf_now();
	/* Interrupts are off: this one comes as soon as they are on, before the body. */
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
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
	if ((long)regs->orig_ax >= 0)
		eject(t, cpu, STAT_CALLS);
	else if (has_exit_work(p))
		eject(t, cpu, STAT_OTHER);
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_page_fault, unsigned long address, struct pt_regs *regs, unsigned long code)
{
	struct task_struct *p = bpf_get_current_task_btf();
	s32 cpu = bpf_get_smp_processor_id();
	struct task *t = guest(p);

	if (!regs_offset)
		regs_offset = (u64)bpf_task_pt_regs(p) - (u64)p->stack;
	if (!t)
		return 0;
	t->fault = faults(p) + 1;
	if (is_rt(cpu))
		eject(t, cpu, STAT_FAULTS);
	return 0;
}

/* A signal for a guest on an RT CPU: it is delivered elsewhere. */
SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int sig, struct kernel_siginfo *info, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (is_rt(cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Observers, for the tests: they count what guests do in the kernel, and where. */
static __always_inline int observe(u32 all, u32 on_rt)
{
	if (!guest(bpf_get_current_task_btf()))
		return 0;
	add(all, 1);
	if (is_rt(bpf_get_smp_processor_id()))
		add(on_rt, 1);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(observe_call, struct pt_regs *regs, long ret)
{
	return observe(OBS_ALL, OBS_RT);
}

SEC("?fentry/handle_mm_fault")
int BPF_PROG(observe_fault)
{
	return observe(OBS_FAULT_ALL, OBS_FAULT_RT);
}

SEC(".struct_ops.link")
struct sched_ext_ops artis = {
	.select_cpu = (void *)artis_select_cpu,
	.enqueue = (void *)artis_enqueue,
	.dispatch = (void *)artis_dispatch,
	.tick = (void *)artis_tick,
	.running = (void *)artis_running,
	.stopping = (void *)artis_stopping,
	.enable = (void *)artis_enable,
	.init_task = (void *)artis_init_task,
	.exit_task = (void *)artis_exit_task,
	.cpu_online = (void *)artis_cpu_online,
	.cpu_offline = (void *)artis_cpu_offline,
	.init = (void *)artis_init,
	.exit = (void *)artis_exit,
	.flags = 2 | 4, /* SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING */
	.timeout_ms = 20000,
	.name = "artis",
};

char _license[] SEC("license") = "GPL";
