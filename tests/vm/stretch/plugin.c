// SPDX-License-Identifier: Apache-2.0 OR MIT
// A plugin of QEMU's emulation (QEMU 10: "TCG Plugins"): how many instructions a CPU executes from
// an instruction at address `from` until the next one at address `to`, without one at `not`
// between. Each time the instruction at `end` is executed, a line goes to the file `out`: count,
// least, median, p99, p99.99 and most since the last time.
//
// Instructions between `spin` and `spun` are not counted: a CPU waits there for a lock that another
// has, and an emulator may let that other wait for long. The last number of a line says in how many
// samples there were such.
//
//     -plugin plugin.so,from=0x...,to=0x...,not=0x...,end=0x...,spin=0x...,spun=0x...,out=FILE
//
// Of two `from` before a `to`, the last counts. The instructions of a block count as it begins: a
// sample may be off by a block. QEMU installs no header; what is declared here is version 2 of the
// API.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;
enum { NO_REGISTERS = 0, ADD_U64 = 0 };

typedef void at_translation(uint64_t id, struct qemu_plugin_tb *tb);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, at_translation *cb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op,
						       qemu_plugin_u64 entry, uint64_t number);
typedef void at_insn(unsigned int cpu, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, at_insn *cb, int flags,
					    void *data);
uint64_t qemu_plugin_u64_get(qemu_plugin_u64 entry, unsigned int vcpu);

__attribute__((visibility("default"))) int qemu_plugin_version = 2;

enum { MOST = 1 << 20, CPUS = 64 };
static uint64_t from, to, not_between, end, spin, spun;
static const struct {
	const char *name;
	uint64_t *address;
} places[] = { { "from", &from }, { "to", &to },     { "not", &not_between },
	       { "end", &end },   { "spin", &spin }, { "spun", &spun } };
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

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

// The smallest sample that at least `share` of 10,000 do not exceed.
static unsigned long long quantile(unsigned int share)
{
	size_t rank = (count * share + 9999) / 10000;

	return samples[rank ? rank - 1 : 0];
}

static void at_end(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	pthread_mutex_lock(&lock);
	if (count) {
		qsort(samples, count, sizeof(*samples), by_size);
		fprintf(out, "%zu %llu %llu %llu %llu %llu %zu\n", count, quantile(0),
			quantile(5000), quantile(9900), quantile(9999), quantile(10000), waits);
		fflush(out);
	}
	count = waits = 0;
	pthread_mutex_unlock(&lock);
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t all = qemu_plugin_tb_n_insns(tb);
	uint64_t first = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
		tb, ADD_U64, first >= spin && first < spun ? waited : executed, all);
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
	for (int i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			return -1;
		*value++ = 0;
		for (size_t n = 0; n < sizeof(places) / sizeof(places[0]); n++)
			if (!strcmp(argv[i], places[n].name))
				*places[n].address = strtoull(value, NULL, 0);
		if (!strcmp(argv[i], "out"))
			out = fopen(value, "w");
	}
	samples = malloc(MOST * sizeof(*samples));
	if (!from || !to || !end || !out || !samples)
		return -1;
	executed.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	waited.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
