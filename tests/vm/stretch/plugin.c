// SPDX-License-Identifier: Apache-2.0 OR MIT
// A plugin of QEMU's emulation (QEMU 10: "TCG Plugins"): how many instructions a CPU executes from
// an instruction at address `from` until the next one at address `to`, without one at `not`
// between. Each time the instruction at `end` is executed, a line goes to the file `out`: count,
// least, median, p99, p99.99 and most since the last time.
//
// Instructions while the CPU waits for another are not counted: waits_for_cpu(). The last number of
// a line says in how many samples there were such.
//
//     -plugin plugin.so,from=0x...,to=0x...,not=0x...,end=0x...,spin=0x...,spun=0x...,out=FILE
//
// Of two `from` before a `to`, the last counts: any hrtimer_wakeup() of that CPU begins a sample.
// The instructions of a block count as it begins: a sample may be off by a block.
#include "qemu.h"
#include <pthread.h>

enum { MOST = 1 << 20 };
static uint64_t from, to, not_between, end;
static const struct option options[] = {
	{ "from", &from }, { "to", &to },     { "not", &not_between },
	{ "end", &end },   { "spin", &spin }, { "spun", &spun },
};
static FILE *out;
static qemu_plugin_u64 executed, waited;
static uint64_t began[CPUS], waited_before[CPUS];
static uint64_t *samples;
static size_t count, waits;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void at_from(unsigned int cpu, void *data)
{
	(void)data;
	if (cpu >= CPUS)
		return;
	began[cpu] = qemu_plugin_u64_get(executed, cpu) + 1;
	waited_before[cpu] = qemu_plugin_u64_get(waited, cpu);
}

static void at_to(unsigned int cpu, void *data)
{
	(void)data;
	if (cpu >= CPUS || !began[cpu])
		return;
	pthread_mutex_lock(&lock);
	waits += qemu_plugin_u64_get(waited, cpu) != waited_before[cpu];
	if (count < MOST)
		samples[count++] = qemu_plugin_u64_get(executed, cpu) + 1 - began[cpu];
	pthread_mutex_unlock(&lock);
	began[cpu] = 0;
}

static void at_not(unsigned int cpu, void *data)
{
	(void)data;
	if (cpu < CPUS)
		began[cpu] = 0;
}

static void at_end(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	pthread_mutex_lock(&lock);
	if (count) {
		qsort(samples, count, sizeof(*samples), by_size);
		fprintf(out, "%zu %llu %llu %llu %llu %llu %zu\n", count, quantile(samples, count, 0),
			quantile(samples, count, 5000), quantile(samples, count, 9900),
			quantile(samples, count, 9999), quantile(samples, count, 10000), waits);
		fflush(out);
	}
	count = waits = 0;
	pthread_mutex_unlock(&lock);
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t all = qemu_plugin_tb_n_insns(tb);
	bool is_wait;

	(void)id;
	pthread_mutex_lock(&lock);
	is_wait = waits_for_cpu(tb);
	pthread_mutex_unlock(&lock);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, ADD_U64,
							  is_wait ? waited : executed, all);
	for (size_t i = 0; i < all; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t at = qemu_plugin_insn_vaddr(insn);
		at_insn *cb = at == from ? at_from
			      : at == to ? at_to
			      : at == not_between ? at_not
			      : at == end ? at_end
			      : NULL;

		if (cb)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, NO_REGISTERS, NULL);
	}
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info,
							       int argc, char **argv)
{
	(void)info;
	samples = malloc(MOST * sizeof(*samples));
	if (!read_options(argc, argv, options, sizeof(options) / sizeof(options[0]), &out) ||
	    !from || !to || !end || !samples)
		return -1;
	executed.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	waited.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
