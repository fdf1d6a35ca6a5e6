// SPDX-License-Identifier: Apache-2.0 OR MIT
// What plugins of QEMU's emulation here have in common: what they use of its API, version 2, as it
// installs no header; their options; quantiles.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
int qemu_plugin_num_vcpus(void);

__attribute__((visibility("default"))) int qemu_plugin_version = 2;

enum { CPUS = 64 };

// An option whose value is a number, such as the address of an instruction.
struct option {
	const char *name;
	uint64_t *value;
};

// The file that the option `out` names is where the results go. False if there is none.
static bool read_options(int argc, char **argv, const struct option *options, size_t count,
			 FILE **out)
{
	for (int i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			return false;
		*value++ = 0;
		for (size_t n = 0; n < count; n++)
			if (!strcmp(argv[i], options[n].name))
				*options[n].value = strtoull(value, NULL, 0);
		if (!strcmp(argv[i], "out"))
			*out = fopen(value, "w");
	}
	return *out;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

// The smallest of the sorted samples that at least `share` of 10,000 do not exceed.
static unsigned long long quantile(const uint64_t *samples, size_t count, unsigned int share)
{
	size_t rank = (count * share + 9999) / 10000;

	return samples[rank ? rank - 1 : 0];
}
