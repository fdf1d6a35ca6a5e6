// SPDX-License-Identifier: Apache-2.0 OR MIT
// A plugin of QEMU's emulation (plugin.c is the other): how many instructions all CPUs execute in
// the kernel because of what a program does: a system call, and a move to another CPU and back. The
// program passes `call` before it and `back` after it, and again and again; `body` is where the
// function of the system call begins, on any CPU; `rt` is the number of one CPU.
//
//     -plugin moves.so,call=0x...,body=0x...,back=0x...,end=0x...,spin=0x...,spun=0x...,rt=3,
//         out=FILE
//
// Each time the instruction at `end` is executed, a line for each part goes to the file `out`:
// enter (call to body), exit (body to back), call (call to back), return (back to the next call),
// whole (call to the next call). Behind its name: count; in how many the call was on CPU `rt` and
// the body was not; least, median, p99 and most; then three medians: of the instructions on CPU
// `rt`, on the others, and on all in programs of BPF and modules.
//
// In an emulator a CPU is a thread, which waits for cores. What one CPU does may count to a later
// part than on a machine; the whole has all of it. Waits for another CPU are not counted, as
// waits_for_cpu() tells. The instructions of a block count as it begins.
#include "qemu.h"
#include <pthread.h>

// Where the kernel is, and where its programs of BPF and modules are, without KASLR.
static const uint64_t kernel = 0xffff800000000000, modules = 0xffffffffc0000000;

enum { MOST = 1 << 16 };
enum part { ENTER, EXIT, CALL, RETURN, WHOLE, PARTS };
static const char *const names[PARTS] = { "enter", "exit", "call", "return", "whole" };
enum group { ALL, ON_RT, ON_OTHERS, IN_BPF, GROUPS };

// What was executed until a mark, and which CPU passed it.
struct mark {
	uint64_t executed[GROUPS];
	unsigned int cpu;
	bool is_passed;
};

static uint64_t call, body, back, end, rt;
static const struct option options[] = {
	{ "call", &call }, { "body", &body }, { "back", &back }, { "end", &end },
	{ "spin", &spin }, { "spun", &spun }, { "rt", &rt },
};
static FILE *out;
// Of what translated() knows.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static qemu_plugin_u64 in_kernel, in_bpf;
static struct mark called, began, came_back;
static uint64_t *samples[PARTS][GROUPS];
static size_t count[PARTS], moved;

// One program passes the marks: no lock.
static struct mark pass(unsigned int cpu)
{
	struct mark mark = { .cpu = cpu, .is_passed = true };

	for (int i = 0; i < qemu_plugin_num_vcpus(); i++) {
		uint64_t plain = qemu_plugin_u64_get(in_kernel, i);
		uint64_t bpf = qemu_plugin_u64_get(in_bpf, i);

		mark.executed[(uint64_t)i == rt ? ON_RT : ON_OTHERS] += plain + bpf;
		mark.executed[IN_BPF] += bpf;
	}
	mark.executed[ALL] = mark.executed[ON_RT] + mark.executed[ON_OTHERS];
	return mark;
}

static void add(enum part part, const struct mark *from, const struct mark *to)
{
	if (count[part] == MOST)
		return;
	for (int group = 0; group < GROUPS; group++)
		samples[part][group][count[part]] = to->executed[group] - from->executed[group];
	count[part]++;
}

static void at_call(unsigned int cpu, void *data)
{
	struct mark now = pass(cpu);

	(void)data;
	if (came_back.is_passed) {
		if (began.is_passed) {
			add(ENTER, &called, &began);
			add(EXIT, &began, &came_back);
			moved += called.cpu == rt && began.cpu != rt;
		}
		add(CALL, &called, &came_back);
		add(RETURN, &came_back, &now);
		add(WHOLE, &called, &now);
	}
	called = now;
	began.is_passed = came_back.is_passed = false;
}

// Others make that call, too.
static void at_body(unsigned int cpu, void *data)
{
	(void)data;
	if (called.is_passed && !came_back.is_passed)
		began = pass(cpu);
}

static void at_back(unsigned int cpu, void *data)
{
	(void)data;
	if (called.is_passed)
		came_back = pass(cpu);
}

static void at_end(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	for (int part = 0; part < PARTS; part++) {
		size_t n = count[part];
		uint64_t *const *of = samples[part];

		if (!n)
			continue;
		for (int group = 0; group < GROUPS; group++)
			qsort(of[group], n, sizeof(uint64_t), by_size);
		fprintf(out, "%s %zu %zu %llu %llu %llu %llu %llu %llu %llu\n", names[part], n,
			moved, quantile(of[ALL], n, 0), quantile(of[ALL], n, 5000),
			quantile(of[ALL], n, 9900), quantile(of[ALL], n, 10000),
			quantile(of[ON_RT], n, 5000), quantile(of[ON_OTHERS], n, 5000),
			quantile(of[IN_BPF], n, 5000));
		count[part] = 0;
	}
	fflush(out);
	moved = 0;
	called.is_passed = began.is_passed = came_back.is_passed = false;
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t all = qemu_plugin_tb_n_insns(tb);
	uint64_t first = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));

	bool is_wait;

	(void)id;
	pthread_mutex_lock(&lock);
	is_wait = waits_for_cpu(tb);
	pthread_mutex_unlock(&lock);
	if (first >= kernel && !is_wait)
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
			tb, ADD_U64, first < modules ? in_kernel : in_bpf, all);
	for (size_t i = 0; i < all; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t at = qemu_plugin_insn_vaddr(insn);
		at_insn *cb = at == call   ? at_call
			      : at == body ? at_body
			      : at == back ? at_back
			      : at == end  ? at_end
					   : NULL;

		if (cb)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, NO_REGISTERS, NULL);
	}
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info,
							       int argc, char **argv)
{
	(void)info;
	if (!read_options(argc, argv, options, sizeof(options) / sizeof(options[0]), &out) ||
	    !call || !body || !back || !end)
		return -1;
	for (int part = 0; part < PARTS; part++)
		for (int group = 0; group < GROUPS; group++)
			if (!(samples[part][group] = malloc(MOST * sizeof(uint64_t))))
				return -1;
	in_kernel.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	in_bpf.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
