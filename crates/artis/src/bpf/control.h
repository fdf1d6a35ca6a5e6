/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What asmp-artis runs in the kernel to change the roles of CPUs and the classes of tasks, and what
 * the files in /sys/fs/bpf/asmp say when they are read.
 */
#pragma once
#include "guests.h"

#define BPF_SEQ(seq, format, ...)                                                                  \
	({                                                                                         \
		static const char format_[] = format;                                              \
		u64 args_[] = { __VA_ARGS__ };                                                     \
		bpf_seq_printf(seq, format_, sizeof(format_), args_, sizeof(args_));               \
	})

const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *mask) __ksym;
struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

/* Whether the scheduler runs, and how it ended if the kernel or an error ended it. */
struct {
	u32 is_running;
	u32 kind;
	char reason[64];
	char msg[128];
} state = {};

/* SCX_EXIT_UNREG: asmp-artis took it out. */
#define EXIT_UNREG 64

struct cpu_words wanted;
/* CPUs on their way offline: the kernel's mask has them for a while. */
u8 leaves[MAX_CPUS];

static __always_inline bool is_wanted(s32 cpu)
{
	u64 index = index_of(cpu);

	return wanted.word[index / 64] >> (index % 64) & 1;
}

/*
 * Once, before the scheduler starts: the kernel may have none at hand (-ENOMEM), and makes some
 * then. Later the roles change in the masks there are.
 */
static __always_inline int make_masks(void)
{
	struct bpf_cpumask *a = bpf_cpumask_create(), *b;

	if (!a)
		return -12;
	b = bpf_cpumask_create();
	if (!b) {
		bpf_cpumask_release(a);
		return -12;
	}
	a = bpf_kptr_xchg(&rt_mask, a);
	if (a)
		bpf_cpumask_release(a);
	b = bpf_kptr_xchg(&nrt_mask, b);
	if (b)
		bpf_cpumask_release(b);
	return 0;
}

/* The roles that `wanted` says. NRT CPUs are online: a task that has no other is bound. */
static __always_inline void write_roles(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	struct bpf_cpumask *to_rt, *to_nrt;
	s32 cpu;

	bpf_rcu_read_lock();
	to_rt = rt_mask;
	to_nrt = nrt_mask;
	if (to_rt && to_nrt) {
		each_cpu(cpu, nr_cpus) {
			if (is_wanted(cpu)) {
				bpf_cpumask_clear_cpu(cpu, to_nrt);
				bpf_cpumask_set_cpu(cpu, to_rt);
			} else {
				bpf_cpumask_clear_cpu(cpu, to_rt);
				if (bpf_cpumask_test_cpu(cpu, online) && !leaves[index_of(cpu)])
					bpf_cpumask_set_cpu(cpu, to_nrt);
				else
					bpf_cpumask_clear_cpu(cpu, to_nrt);
			}
			/* Who reads meanwhile never finds none. */
			if (is_wanted(cpu))
				rt[index_of(cpu)] = 1;
		}
		each_cpu(cpu, nr_cpus)
			rt[index_of(cpu)] = is_wanted(cpu);
	}
	bpf_rcu_read_unlock();
	scx_bpf_put_cpumask(online);
}

/* All guests that wait for CPUs of one kind find their queue anew. */
static __always_inline void queue_anew(void)
{
	scx_bpf_dsq_reenq(RT_ONLY, 0);
	scx_bpf_dsq_reenq(KERNEL, 0);
	scx_bpf_dsq_reenq(SYSTEM, 0);
}

/*
 * A CPU may go offline while asmp-artis changes the set: who finds another at it does it again. No
 * NRT CPU may be left for a guest that waits for one: it is enqueued once more.
 */
static __always_inline void set_roles(void)
{
	u32 mine;
	int attempt __attribute__((unused));

	each_cpu(attempt, 8) {
		mine = __sync_fetch_and_add(&role_changes, 1) + 1;
		write_roles();
		if (role_changes == mine)
			break;
	}
	__sync_fetch_and_add(&role_changes, 1);
	if (state.is_running)
		queue_anew();
}

SEC("syscall")
int set_cpus(struct cpu_words *to)
{
	static u8 before[MAX_CPUS];
	int error = 0;
	s32 cpu;

#pragma unroll
	for (int i = 0; i < MAX_CPUS / 64; i++)
		wanted.word[i] = to->word[i];
	each_cpu(cpu, nr_cpus)
		before[index_of(cpu)] = rt[index_of(cpu)];
	if (!rt_mask || !nrt_mask)
		error = make_masks();
	if (error)
		return error;
	set_roles();
	/*
	 * On an RT CPU the guest may be in the kernel: the CPU is new, or the scheduler has just
	 * started, in which time kicks are lost. On one that is no more, it has an endless slice.
	 */
	each_cpu(cpu, nr_cpus)
		if (before[index_of(cpu)] || is_rt(cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

SEC("syscall")
int class_of(struct class_change *change)
{
	struct task_struct *p = bpf_task_from_vpid(change->tid);
	struct task *t;
	int prio = -3;	/* -ESRCH */

	if (!p)
		return prio;
	/* Of a real-time task it would show once that is one no more. */
	t = p->policy == 1 || p->policy == 2 || p->policy == 6 ?
		    NULL : bpf_task_storage_get(&tasks, p, NULL, 0);
	if (t) {
		if (change->prio >= 0) {
			t->prio = change->prio;
			/* It may run for hours: a new place, and time that counts as the new class. */
			scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
		}
		prio = t->prio;
	}
	bpf_task_release(p);
	return prio;
}

/* The file `cpus` is over this one element. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} one SEC(".maps");

SEC("iter/bpf_map_elem")
int show_cpus(struct bpf_iter__bpf_map_elem *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	bool is_first = true;
	s32 cpu;

	/* The last call has no element. */
	if (!ctx->value)
		return 0;
	if (state.is_running) {
		each_cpu(cpu, nr_cpus) {
			if (!is_rt(cpu))
				continue;
			if (!is_first)
				BPF_SEQ(seq, ",%d", cpu);
			else
				BPF_SEQ(seq, "%d", cpu);
			is_first = false;
		}
	}
	BPF_SEQ(seq, "\n", 0);
	return 0;
}

static const char names[NR_STATS][32] = {
#define NAME(name) #name,
	EACH_STAT(NAME)
#undef NAME
};

/*
 * What is not counted yet: a guest that computes may run for hours. A stay that ends while this is
 * read may be counted twice, this once.
 */
static __always_inline u64 runs_for(s32 cpu, u32 key)
{
	struct cpu *c = cpu_of(cpu);
	u64 since = c->runs_since;

	return key && c->runs_as == key ? ns_since(scx_bpf_now(), since) : 0;
}

SEC("iter/bpf_map_elem")
int show_stats(struct bpf_iter__bpf_map_elem *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	u64 total = 0, *of_cpu;
	u32 *element = ctx->key, key;
	s32 cpu;

	if (!element) {
		char *reason = state.reason, *msg = state.msg;

		/* Arguments that the compiler takes for constants would need a relocation of data. */
		asm volatile("" : "+r"(reason), "+r"(msg));
		if (state.is_running || !state.kind || state.kind == EXIT_UNREG)
			return 0;
		if (state.msg[0])
			BPF_SEQ(seq, "ended %s: %s\n", (u64)reason, (u64)msg);
		else
			BPF_SEQ(seq, "ended %s\n", (u64)reason);
		return 0;
	}
	key = *element;
	if (key >= NR_STATS)
		return 0;
	each_cpu(cpu, nr_cpus) {
		of_cpu = bpf_map_lookup_percpu_elem(&stats, &key, cpu);
		total += runs_for(cpu, key);
		if (!of_cpu)
			continue;
		if (key != STAT_longest_kernel_ns)
			total += *of_cpu;
		else if (*of_cpu > total)
			total = *of_cpu;
	}
	if (key == STAT_move_ns)
		total = move_ns;
	BPF_SEQ(seq, "%s %llu\n", (u64)names[key], total);
	return 0;
}
