/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a guest that may run goes: to a CPU at once, or into a queue, and who is told of it. */
#pragma once
#include "guests.h"
#include "control.h"

#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_DSQ_LOCAL_ON (3ULL << 62)
#define SCX_SLICE_INF (~0ULL)
#define SCX_ENQ_WAKEUP 1
#define IMMED bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_IMMED)
#define PREEMPT bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_PREEMPT)

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
bool scx_bpf_dsq_insert___v2___asmp(struct task_struct *p, u64 dsq_id, u64 slice, u64 flags) __ksym;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				struct scx_bpf_dsq_insert_vtime_args *args) __ksym;
bool scx_bpf_dsq_move_to_local___v2___asmp(u64 dsq_id, u64 enq_flags) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym;
s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *allowed,
			     struct scx_bpf_select_cpu_and_args *args) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
struct task_struct *scx_bpf_cpu_curr(s32 cpu) __ksym;
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym;

const volatile u64 slice_ns = 3000000;
/* For tests of the guarantee: guests go to RT CPUs whenever they can, worth it or not. */
const volatile bool eager;

static __always_inline s32 idle_of(struct task_struct *p, s32 prev, struct bpf_cpumask *mask)
{
	struct scx_bpf_select_cpu_and_args args = { .prev_cpu = prev };

	return mask ? __scx_bpf_select_cpu_and(p, (const struct cpumask *)mask, &args) : -1;
}

/* Are its stays on RT CPUs long enough? */
static __always_inline bool fits(struct task *t)
{
	return eager || is_worth(t->stay, move_ns);
}

/* May it go to one? */
static __always_inline bool is_for_rt(struct task_struct *p, struct task *t)
{
	return fits(t) && has_rt(p);
}

static __always_inline u64 used_most(struct task *t)
{
	return cpu_of(t->ran_on)->used_most;
}

/* What the guest has used that runs on this CPU. */
static __always_inline u64 used_now(struct task_struct *p, struct task *t, struct cpu *c, u64 now)
{
	if (t->prio)
		return t->used;
	return after_run(t->used, c->used_most, ns_since(now, t->counted), p->scx.weight);
}

/* A Linux task that used more than all before it on this CPU is what others compare with. */
static __always_inline void follow(struct task *t, struct cpu *c)
{
	if (!t->prio && (s64)(t->used - c->used_most) > 0)
		c->used_most = t->used;
}

/* The time that the guest ran since this was counted last. */
static __always_inline void count_time(struct cpu *c, u64 now)
{
	if (c->runs_as)
		add(c->runs_as, ns_since(now, c->runs_since));
	c->runs_since = now;
}

static __always_inline void insert(struct task_struct *p, struct task *t, u64 queue, u64 flags)
{
	struct scx_bpf_dsq_insert_vtime_args args = {
		.dsq_id = queue,
		.slice = slice_ns,
		.vtime = place_in_queue(t->prio, scx_bpf_now(), t->used, used_most(t)),
		.enq_flags = flags & ~bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST),
	};

	__scx_bpf_dsq_insert_vtime(p, &args);
}

static __always_inline bool rt_idles(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	struct bpf_cpumask *mask = rt_mask;
	bool idles = mask && bpf_cpumask_intersects((const struct cpumask *)mask, idle);

	scx_bpf_put_idle_cpumask(idle);
	return idles;
}

/*
 * The guest waits for an NRT CPU, and an RT CPU is free: a guest of an NRT CPU may as well run
 * there. The best is one known to be in user mode, else the one that has run longest.
 */
static __always_inline bool make_room(struct task_struct *p)
{
	u64 now = scx_bpf_now(), longest = move_ns;
	s32 cpu, best = -1;

	each_cpu(cpu, nr_cpus) {
		struct cpu *c = cpu_of(cpu);
		u64 began = c->began;

		if (is_rt(cpu) || !began || !may(p, cpu))
			continue;
		if (c->in_user) {
			best = cpu;
			break;
		}
		if ((s64)(now - began) > (s64)longest) {
			longest = now - began;
			best = cpu;
		}
	}
	if (best < 0)
		return false;
	cpu_of(best)->began = 0;
	add(STAT_made_room, 1);
	scx_bpf_kick_cpu(best, SCX_KICK_PREEMPT);
	return true;
}

/*
 * A system CPU that began to idle after this guest's search looked at the queues before the kernel
 * puts the guest there, which it does once enqueue is over. The kick comes after that. A system CPU
 * that runs a guest looks itself at the end of its slice: it need not ask.
 */
static __always_inline void look_again(struct task_struct *p)
{
	s32 cpu;

	if (!is_rt(bpf_get_smp_processor_id()) && guest(bpf_get_current_task_btf()))
		return;
	each_cpu(cpu, nr_cpus)
		if (!is_rt(cpu) && may(p, cpu) && !leaves[index_of(cpu)])
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* Into a queue of system CPUs. */
static __always_inline void enqueue_nrt(struct task_struct *p, struct task *t, s32 cpu, u64 queue,
					u64 flags)
{
	s32 to = idle_of(p, cpu, nrt_mask);

	if (to < 0 && !is_rt(cpu) && flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST))
		to = cpu;
	if (!is_rt(cpu) && to >= 0) {
		scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL_ON | to, slice_ns, 0);
		return;
	}
	insert(p, t, queue, flags);
	t->waited = 0;
	if (to >= 0) {
		scx_bpf_kick_cpu(to, SCX_KICK_IDLE);
		return;
	}
	if (is_rt(cpu) || (flags & SCX_ENQ_WAKEUP && rt_idles())) {
		t->waited = !make_room(p);
		if (!t->waited)
			return;
	}
	look_again(p);
}

/*
 * No system CPU may run it, whose tick would see to it. A guest that may go elsewhere makes room,
 * and one that may not when it has had its turn.
 */
static __always_inline void take_turn(struct task_struct *p)
{
	u64 now = scx_bpf_now();
	s32 cpu;

	each_cpu(cpu, nr_cpus) {
		struct cpu *c = cpu_of(cpu);

		if (!is_rt(cpu) || !may(p, cpu))
			continue;
		/* It may begin to idle before the kernel puts the guest into the queue. */
		if (!c->began && !leaves[index_of(cpu)])
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		if (!c->began || (c->is_bound && now - c->began <= slice_ns))
			continue;
		c->began = now;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
}

static __always_inline void enqueue_user(struct task_struct *p, struct task *t, s32 cpu, u64 flags,
					 bool is_bound)
{
	bool again = flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_REENQ);
	s32 to;

	if (is_rt(cpu) && !is_bound) {
		/*
		 * Mostly a real-time task is about to run here: it waits for this. So there is one
		 * short search, for any CPU, where idle_of() looks for the best one of a kind.
		 */
		insert(p, t, USER, flags);
		to = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (to >= 0)
			scx_bpf_kick_cpu(to, SCX_KICK_IDLE);
		return;
	}
	to = again && !is_bound ? -1 : idle_of(p, cpu, rt_mask);
	/* Here, an RT CPU takes no lock of another CPU's run queue. */
	if (to >= 0 && !again && (to == cpu || !is_rt(cpu))) {
		scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL_ON | to, slice_ns, IMMED);
		return;
	}
	insert(p, t, is_bound ? RT_ONLY : USER, flags);
	if (to < 0)
		to = idle_of(p, cpu, nrt_mask);
	if (to >= 0)
		scx_bpf_kick_cpu(to, SCX_KICK_IDLE);
	else if (is_bound)
		take_turn(p);
}

/* Nothing waits for the CPU of this guest, so it stays there. */
static __always_inline bool stays(struct task_struct *p, s32 cpu, bool in_user, u64 flags)
{
	if (!(flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST)))
		return false;
	if (is_rt(cpu) ? !in_user : eager)
		return false;
	scx_bpf_dsq_insert___v2___asmp(p, SCX_DSQ_LOCAL, slice_ns, is_rt(cpu) ? IMMED : 0);
	return true;
}
