/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs use of the kernel's types. Only names and types count here: offsets, and the
 * values of enumerators, come from the running kernel's BTF when the programs are loaded (CO-RE).
 */
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6,
       BPF_MAP_TYPE_TASK_STORAGE = 29 };
enum { BPF_ANY = 0, BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

struct bpf_task_work {
	__u64 opaque;
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct cpumask {
	unsigned long bits[1];
};
typedef struct cpumask cpumask_t;
struct bpf_cpumask {
	cpumask_t cpumask;
};
typedef struct {
	unsigned long sig[1];
} sigset_t;
struct sigpending {
	sigset_t signal;
};
struct signal_struct {
	struct sigpending shared_pending;
};
struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};
struct bpf_map {
	u32 id;
};
struct callback_head;
struct task_struct {
	void *stack;
	int pid;
	int tgid;
	unsigned int flags;
	int prio;
	unsigned int policy;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	const cpumask_t *cpus_ptr;
	cpumask_t cpus_mask;
	struct callback_head *task_works;
	struct signal_struct *signal;
	sigset_t blocked;
	struct sigpending pending;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct sched_ext_entity scx;
};
struct pt_regs {
	unsigned long r11;
	unsigned long cx;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long flags;
	unsigned long ssx;
};
struct kernel_siginfo;
struct seq_file;
struct bpf_iter_meta {
	union {
		struct seq_file *seq;
	};
};
struct bpf_iter__bpf_map_elem {
	union {
		struct bpf_iter_meta *meta;
	};
	union {
		void *key;
	};
	union {
		void *value;
	};
};
struct scx_init_task_args {
	bool fork;
};
struct scx_exit_task_args;
enum scx_exit_kind {
	SCX_EXIT_NONE,
};
struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	const char *msg;
};
enum scx_enq_flags {
	SCX_ENQ_IMMED = 1,
	SCX_ENQ_REENQ = 2,
	SCX_ENQ_LAST = 3,
	SCX_ENQ_PREEMPT = 4,
};
enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};
enum scx_ops_flags {
	SCX_OPS_KEEP_BUILTIN_IDLE = 1,
	SCX_OPS_ENQ_LAST = 2,
	SCX_OPS_ENQ_EXITING = 4,
};
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*enable)(struct task_struct *p);
	void (*update_idle)(s32 cpu, bool idle);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};
#pragma clang attribute pop

struct scx_bpf_select_cpu_and_args {
	s32 prev_cpu;
	u64 wake_flags;
	u64 flags;
};
struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

/* A loop over the CPUs 0 to n - 1 that the verifier need not unroll (since Linux 6.4). */
struct bpf_iter_num {
	u64 opaque;
} __attribute__((aligned(8)));
#define each_cpu(cpu, n)                                                                           \
	for (struct bpf_iter_num it_ __attribute__((cleanup(bpf_iter_num_destroy))),               \
	     *started_ __attribute__((unused)) = (bpf_iter_num_new(&it_, 0, n), NULL);             \
	     ({ int *next_ = bpf_iter_num_next(&it_); next_ && (cpu = *next_, true); });)
