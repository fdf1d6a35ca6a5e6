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
 * A guest is in user mode if its last entry into the kernel was an interrupt: at_user().
 *
 * Units: ns of the scheduler's clock.
 */
#include "queues.h"
#include "hooks.h"
#include "observe.h"

int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *work, void *map,
				  int (*callback)(struct bpf_map *map, void *key, void *value)) __ksym __weak;

struct work {
	struct bpf_task_work work;
};
/* By the address of the task. Its number may change: that of a thread which calls exec() does. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, u64);
	__type(value, struct work);
} works SEC(".maps");

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

SEC("struct_ops/enqueue")
void BPF_PROG(artis_enqueue, struct task_struct *p, u64 flags)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	struct bpf_cpumask *nrt = nrt_mask;
	bool again = flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_REENQ);
	s32 cpu = scx_bpf_task_cpu(p);
	u32 changes = role_changes;
	bool in_user, is_bound;

	if (!t || !nrt || (p->nr_cpus_allowed == 1 && p->flags & PF_KTHREAD)) {
		/* A guest that computes there has an endless slice. */
		u64 at_once = flags & SCX_ENQ_WAKEUP && is_rt(cpu) ? PREEMPT : 0;

		scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL, slice_ns, at_once);
		return;
	}
	if (flags & SCX_ENQ_WAKEUP)
		t->used = used_most(t) + lag_of(t->used, used_most(t), slice_ns);
	is_bound = !has_nrt(p);
	in_user = !(flags & SCX_ENQ_WAKEUP) && !(again && t->in_kernel) && at_user(p, t);
	t->in_kernel = !in_user;
	in_user |= is_bound;
	if (is_bound)
		add(STAT_bound, 1);
	else if (is_rt(cpu) && !again)
		add(in_user ? STAT_left_in_user : STAT_left_in_kernel, 1);
	if (stays(p, cpu, in_user, flags))
		return;
	if (in_user && !is_bound && has_rt(p) && !fits(t)) {
		add(STAT_too_short, 1);
		t->stay = after_refusal(t->stay, COMPUTED);
		in_user = false;
	}
	if (in_user && (is_bound || has_rt(p)))
		enqueue_user(p, t, cpu, flags, is_bound);
	else
		enqueue_nrt(p, t, cpu, in_user ? SYSTEM : KERNEL, flags);
	/* It may wait for a CPU that is no NRT CPU any more. */
	if (changes != role_changes)
		queue_anew();
}

/*
 * Does an NRT CPU look for a guest in user mode before it looks for one in the kernel? The places
 * of the first two decide. A first one that may not run here decides nothing: it may wait long for
 * its own CPU. Then guests in the kernel go first, but one in user mode has a turn now and then.
 */
static __always_inline bool is_user_first(s32 cpu, struct task_struct *kernel,
					  struct task_struct *user)
{
	struct cpu *c = cpu_of(cpu);
	u64 now = scx_bpf_now();
	bool is_user;

	if (kernel && user && may(kernel, cpu) && may(user, cpu))
		is_user = user_first(kernel->scx.dsq_vtime, user->scx.dsq_vtime);
	else
		is_user = !kernel || ns_since(now, c->user_at) > KERNEL_LEAD_NS;
	if (is_user)
		c->user_at = now;
	return is_user;
}

/* Of the first guests of two queues: does `a` go before `b`? One that may not run here does not. */
static __always_inline bool goes_before(struct task_struct *a, struct task_struct *b, s32 cpu)
{
	if (!a || !may(a, cpu))
		return false;
	return !b || !may(b, cpu) || (s64)(a->scx.dsq_vtime - b->scx.dsq_vtime) < 0;
}

/* In which order an NRT CPU looks into the queues. */
static __always_inline void order(s32 cpu, u64 queues[3])
{
	struct task_struct *kernel = scx_bpf_dsq_peek(KERNEL), *user = scx_bpf_dsq_peek(USER),
			   *own = scx_bpf_dsq_peek(SYSTEM);
	bool is_own = goes_before(own, user, cpu);

	if (is_own || !user)
		user = own;
	queues[1] = is_own ? SYSTEM : USER;
	queues[2] = is_own ? USER : SYSTEM;
	queues[0] = KERNEL;
	if (is_user_first(cpu, kernel, user)) {
		queues[0] = queues[1];
		queues[1] = KERNEL;
	}
}

static __always_inline bool fetch(u64 queue, u64 flags)
{
	return scx_bpf_dsq_nr_queued(queue) > 0 &&
	       scx_bpf_dsq_move_to_local___v2___asmp(queue, flags);
}

/*
 * The slice of the guest that runs here is over, and the kernel has not queued it yet. Does it go
 * on, as its place is before that of the first in this queue? Not if it is to go to a CPU of the
 * other kind, nor in user mode while a guest in the kernel waits.
 */
static __always_inline bool goes_on(struct task_struct *p, s32 cpu, u64 queue)
{
	struct task_struct *first = scx_bpf_dsq_peek(queue);
	struct cpu *c = cpu_of(cpu);
	u64 now = scx_bpf_now(), used;
	struct task *t;
	bool in_user;

	if (!p || !first || !may(first, cpu) || !may(p, cpu) || p->flags & PF_KTHREAD ||
	    !(p->scx.flags & bpf_core_enum_value(enum scx_ent_flags, SCX_TASK_QUEUED)))
		return false;
	t = bpf_task_storage_get(&tasks, p, NULL, 0);
	if (!t)
		return false;
	in_user = at_user(p, t);
	if (is_rt(cpu) ? !in_user && has_nrt(p) :
			 in_user && (queue == KERNEL || (is_for_rt(p, t) && rt_idles())))
		return false;
	used = used_now(p, t, c, now);
	if ((s64)(first->scx.dsq_vtime - place_in_queue(t->prio, now, used, c->used_most)) < 0)
		return false;
	t->used = used;
	t->counted = now;
	follow(t, c);
	if (is_rt(cpu))
		c->began = now;
	/* Its class may have changed. */
	count_time(c, now);
	c->runs_as = ran_as(t, cpu);
	scx_bpf_task_set_slice(p, slice_ns);
	return true;
}

SEC("struct_ops/dispatch")
void BPF_PROG(artis_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu *c = cpu_of(cpu);
	u64 queues[3];
	bool is_user;

	if (!is_rt(cpu)) {
		order(cpu, queues);
		if (goes_on(prev, cpu, queues[0]))
			return;
		if (!fetch(queues[0], 0) && !fetch(queues[1], 0))
			fetch(queues[2], 0);
		return;
	}
	/* Those that have no other CPU go first, unless a guest has waited longer. */
	is_user = goes_before(scx_bpf_dsq_peek(USER), scx_bpf_dsq_peek(RT_ONLY), cpu);
	queues[0] = is_user ? USER : RT_ONLY;
	queues[1] = is_user ? RT_ONLY : USER;
	if (goes_on(prev, cpu, queues[0]) || fetch(queues[0], IMMED) || fetch(queues[1], IMMED))
		return;
	if (c->asked) {
		u32 from = c->asked - 1;

		c->asked = 0;
		scx_bpf_kick_cpu(from, SCX_KICK_PREEMPT);
	}
}

/* Is the first in this queue one for the CPU? */
static __always_inline bool waits_for(u64 queue, s32 cpu)
{
	struct task_struct *p = scx_bpf_dsq_peek(queue);

	return p && may(p, cpu);
}

/*
 * A CPU begins to idle, or ends it. A guest that was queued after dispatch looked, and before the
 * kernel knew that the CPU idles, found no idle CPU: the CPU looks once more. The kernel calls this
 * once it knows. Not on a CPU that goes offline: the interrupt of the kick would never come there,
 * and the kernel waits for it. A guest that waits for an RT CPU had a turn when a tick of this CPU
 * saw to it: there will be none.
 */
SEC("struct_ops/update_idle")
void BPF_PROG(artis_update_idle, s32 cpu, bool is_idle)
{
	struct task_struct *p;

	if (!is_idle || leaves[index_of(cpu)])
		return;
	if (waits_for(USER, cpu) || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL) > 0 ||
	    (is_rt(cpu) ? waits_for(RT_ONLY, cpu) :
			  waits_for(KERNEL, cpu) || waits_for(SYSTEM, cpu)))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if (!is_rt(cpu) && (p = scx_bpf_dsq_peek(RT_ONLY)))
		take_turn(p);
}

/* A guest that computes does not enter the kernel but by its tick. */
SEC("struct_ops/tick")
void BPF_PROG(artis_tick, struct task_struct *p)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	s32 cpu = scx_bpf_task_cpu(p), r;
	u64 now = scx_bpf_now();

	if (!t)
		return;
	if (is_rt(cpu)) {
		if (!at_user(p, t) && may_leave(p))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	/* It may have come back to the same place. */
	if (t->signal_ip && ++t->signal_ticks > 2)
		t->signal_ip = 0;
	if (scx_bpf_dsq_nr_queued(USER) > 0 || scx_bpf_dsq_nr_queued(RT_ONLY) > 0) {
		/* The RT CPUs may have no tick. */
		each_cpu(r, nr_cpus) {
			struct cpu *c = cpu_of(r);

			if (is_rt(r) && c->began && now - c->began > slice_ns) {
				c->began = now;
				scx_bpf_kick_cpu(r, SCX_KICK_PREEMPT);
			}
		}
	}
	if ((eager || scx_bpf_dsq_nr_queued(KERNEL) > 0) && at_user(p, t) && is_for_rt(p, t) &&
	    rt_idles()) {
		add(STAT_at_tick, 1);
		scx_bpf_task_set_slice(p, 0);
	}
}

/*
 * The guest is about to return to user mode, on an NRT CPU. It goes to an idle RT CPU if another
 * waits for this one.
 */
static int on_return(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	s32 cpu = bpf_get_smp_processor_id(), r;

	if (is_rt(cpu) || !t)
		return 0;
	cpu_of(cpu)->in_user = 1;
	if (!eager && !scx_bpf_dsq_nr_queued(KERNEL))
		return 0;
	if (!fits(t)) {
		add(STAT_too_short, 1);
		t->stay = after_refusal(t->stay, RETURNED);
		return 0;
	}
	/* It may sleep, and p->cpus_ptr is to stay. */
	bpf_rcu_read_lock();
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();

	each_cpu(r, nr_cpus) {
		if (!is_rt(r) || !may(p, r) || !bpf_cpumask_test_cpu(r, idle))
			continue;
		/* An interrupt from this CPU itself would come at once, before the return. */
		cpu_of(r)->asked = cpu + 1;
		add(STAT_asked, 1);
		scx_bpf_kick_cpu(r, SCX_KICK_IDLE);
		break;
	}
	scx_bpf_put_idle_cpumask(idle);
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * on_return() is to run as this guest, which begins to run, returns to user mode. One that exits
 * takes no such work: on PREEMPT_RT the kernel's thread that tries so preempts it, and it would
 * begin to run again, and so on.
 */
static __always_inline void await_return(struct task_struct *p)
{
	u64 key = (u64)p;
	struct work *w = bpf_map_lookup_elem(&works, &key);

	if (w && !(p->flags & PF_EXITING))
		bpf_task_work_schedule_resume(p, &w->work, &works, on_return);
}

SEC("struct_ops/running")
void BPF_PROG(artis_running, struct task_struct *p)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu *c = cpu_of(cpu);
	u64 now = scx_bpf_now();
	bool in_user, is_bound;

	if (!t)
		return;
	/* It keeps its lead or debt among those of this CPU. */
	t->used = c->used_most +
		  lag_of(t->used, used_most(t), t->has_slept ? slice_ns : MOST_LAG_NS);
	t->has_slept = 0;
	if (!(p->flags & PF_KTHREAD) && is_rt(t->ran_on) != is_rt(cpu))
		add(moved_as(t, cpu), 1);
	t->ran_on = cpu;
	follow(t, c);
	t->since = now;
	t->counted = now;
	if (!(p->flags & PF_KTHREAD)) {
		c->runs_since = now;
		c->runs_as = ran_as(t, cpu);
	}
	in_user = at_user(p, t);
	c->in_user = in_user;
	if (is_rt(cpu)) {
		c->began = now;
		is_bound = !has_nrt(p);
		c->is_bound = is_bound;
		t->entered = in_user || !will_have_nrt(p) ? 0 : now;
		/* One that has no other CPU takes turns there with its like, and with guests. */
		scx_bpf_task_set_slice(p, is_bound || (in_user && scx_bpf_dsq_nr_queued(RT_ONLY) > 0) ?
					  slice_ns : in_user ? SCX_SLICE_INF : 0);
		/* It may run here already: the kernel starts it anew when its nice value changes. */
		if (!is_bound && scx_bpf_cpu_curr(cpu) != p)
			add(STAT_began_on_rt, 1);
		if (in_user || (is_bound && !t->entered))
			return;
		/*
		 * A lock's holder that a real-time task waited for may be moved here. So is one
		 * whose nice value or affinity changes while it runs: that ends the slice that a
		 * kick has just set to 0. migrate_enable() does so, before it counts as enabled.
		 */
		add(STAT_began_in_kernel_on_rt, 1);
		if (!is_bound)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	c->began = p->flags & HAS_NO_USER_MODE || !is_for_rt(p, t) ? 0 : now;
	/* It is to leave this CPU to those that wait for one, as soon as it is in user mode. */
	if (t->ejected || (c->began && !in_user && scx_bpf_dsq_nr_queued(KERNEL) > 0 && rt_idles()))
		await_return(p);
	/* A wait for a CPU is no cost of the move. */
	if (t->ejected && t->entered && !t->waited)
		move_ns = median(move_ns, now - t->entered);
	t->ejected = 0;
	t->entered = 0;
}

SEC("struct_ops/stopping")
void BPF_PROG(artis_stopping, struct task_struct *p, bool runnable)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu *c = cpu_of(cpu);
	u64 now = scx_bpf_now();

	if (!t)
		return;
	c->began = 0;
	count_time(c, now);
	c->runs_as = 0;
	t->used = used_now(p, t, c, now);
	t->has_slept = !runnable;
	/* Not at each preemption: on_return() brings one about, and it would come back here. */
	if (eager && !runnable)
		t->ejected = 1;
	if (!is_rt(cpu))
		return;
	/* The scheduler's clock may be older than the entry. */
	if (t->entered && (s64)(now - t->entered) > 0)
		at_least(STAT_longest_kernel_ns, now - t->entered);
	if (t->ejected && runnable)
		t->stay = mean(t->stay, (t->entered ?: now) - t->since, 2);
}

SEC("struct_ops/enable")
void BPF_PROG(artis_enable, struct task_struct *p)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, 0);

	if (!t)
		return;
	t->ran_on = scx_bpf_task_cpu(p);
	t->used = used_most(t);
	t->has_slept = 1;
}

SEC("struct_ops.s/init_task")
s32 BPF_PROG(artis_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *t = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct work w = {};
	u64 key = (u64)p;

	if (!t)
		return -12;
	t->stay = 1000000;
	bpf_map_update_elem(&works, &key, &w, BPF_ANY);
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
	u64 key = (u64)p;

	bpf_map_delete_elem(&works, &key);
}

SEC("struct_ops/cpu_online")
void BPF_PROG(artis_cpu_online, s32 cpu)
{
	s32 r;

	leaves[index_of(cpu)] = 0;
	set_roles();
	/* A guest on an RT CPU may leave it now, and be in the kernel. */
	each_cpu(r, nr_cpus)
		if (is_rt(r))
			scx_bpf_kick_cpu(r, SCX_KICK_PREEMPT);
}

SEC("struct_ops/cpu_offline")
void BPF_PROG(artis_cpu_offline, s32 cpu)
{
	leaves[index_of(cpu)] = 1;
	set_roles();
}

SEC("struct_ops.s/init")
s32 BPF_PROG(artis_init)
{
	int error = scx_bpf_create_dsq(KERNEL, -1);

	error = error ?: scx_bpf_create_dsq(USER, -1);
	error = error ?: scx_bpf_create_dsq(SYSTEM, -1);
	error = error ?: scx_bpf_create_dsq(RT_ONLY, -1);
	state.is_running = !error;
	return error;
}

SEC("struct_ops/exit")
void BPF_PROG(artis_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(state.reason, sizeof(state.reason), info->reason);
	bpf_probe_read_kernel_str(state.msg, sizeof(state.msg), info->msg);
	state.kind = info->kind;
	state.is_running = 0;
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
	.update_idle = (void *)artis_update_idle,
	.init_task = (void *)artis_init_task,
	.exit_task = (void *)artis_exit_task,
	.cpu_online = (void *)artis_cpu_online,
	.cpu_offline = (void *)artis_cpu_offline,
	.init = (void *)artis_init,
	.exit = (void *)artis_exit,
	.flags = 1 | 2 | 4, /* SCX_OPS_KEEP_BUILTIN_IDLE | _ENQ_LAST | _ENQ_EXITING */
	.timeout_ms = 20000,
	.name = "artis",
};

char _license[] SEC("license") = "GPL";
