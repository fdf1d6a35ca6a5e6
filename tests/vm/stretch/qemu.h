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
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
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

// Where the kernel's code goes on after a `pause`: a set with far more places than there are.
enum { PLACES = 1 << 16 };
static uint64_t after_pause[PLACES];

static uint64_t *place_of(uint64_t address)
{
	size_t n = address % PLACES;

	while (after_pause[n] && after_pause[n] != address)
		n = (n + 1) % PLACES;
	return &after_pause[n];
}

// Where the kernel waits for a spin lock: a function, as the options say.
static uint64_t spin, spun;

// Does the kernel wait for another CPU in this block? For a spin lock it does so in that function.
// For a sequence counter it executes `pause` in a loop (cpu_relax()): blocks with a `pause` in them
// are such waits, and the rest of the loop, just after it. An emulated CPU is a thread: the other
// may be away for long. To be asked about each block that is translated, by one thread at a time.
static bool waits_for_cpu(struct qemu_plugin_tb *tb)
{
	uint64_t first = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
	bool found = *place_of(first) || (first >= spin && first < spun);

	for (size_t i = 0; first >> 63 && i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t next = qemu_plugin_insn_vaddr(insn) + 2;
		unsigned char code[2];

		if (qemu_plugin_insn_data(insn, code, 2) != 2 || code[0] != 0xf3 || code[1] != 0x90)
			continue;
		found = true;
		*place_of(next) = next;
	}
	return found;
}

// The smallest of the sorted samples that at least `share` of 10,000 do not exceed.
static unsigned long long quantile(const uint64_t *samples, size_t count, unsigned int share)
{
	size_t rank = (count * share + 9999) / 10000;

	return samples[rank ? rank - 1 : 0];
}
