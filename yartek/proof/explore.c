/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "explore.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_CHOICES = 256 };

/* What this run has chosen so far, of how many. The next run has another last choice. */
static struct {
	uint32_t taken, of;
} choices[MOST_CHOICES];
static uint32_t made, known;
static uint64_t runs, cases;
static jmp_buf next_run;

uint32_t choose(uint32_t of)
{
	if (made == known) {
		if (known == MOST_CHOICES) {
			fprintf(stderr, "too many choices in one run\n");
			exit(2);
		}
		choices[known].taken = 0;
		choices[known++].of = of;
	}
	return choices[made++].taken;
}

void given(bool condition)
{
	if (!condition)
		longjmp(next_run, 1);
}

void must(const char *contract, bool condition)
{
	if (condition)
		return;
	printf("broken: %s\nchoices:", contract);
	for (uint32_t n = 0; n < made; n++)
		printf(" %u", choices[n].taken);
	printf("\n");
	exit(1);
}

/* The next sequence of choices. `false`: that was the last. */
static bool is_next(void)
{
	while (known && choices[known - 1].taken + 1 == choices[known - 1].of)
		known--;
	if (!known)
		return false;
	choices[known - 1].taken++;
	return true;
}

int main(void)
{
	do {
		made = 0;
		runs++;
		if (!setjmp(next_run)) {
			scenario();
			cases++;
		}
		known = made;
	} while (is_next());
	printf("%llu cases of %llu runs\n", (unsigned long long)cases, (unsigned long long)runs);
	/* A scenario without a case proves nothing. */
	return cases ? 0 : 2;
}

/* What the compiler calls. An access of 8 bytes is two of 4 on a board. */
#define ACCESS(kind, bytes) \
	void __tsan_##kind##bytes(const void *at); \
	void __tsan_##kind##bytes(const void *at) \
	{ \
		(void)at; \
		at_access(); \
	}
#define NO_ACCESS(kind) \
	void __tsan_##kind(const void *at); \
	void __tsan_##kind(const void *at) \
	{ \
		(void)at; \
	}
ACCESS(volatile_read, 1)
ACCESS(volatile_read, 2)
ACCESS(volatile_read, 4)
ACCESS(volatile_read, 8)
ACCESS(volatile_write, 1)
ACCESS(volatile_write, 2)
ACCESS(volatile_write, 4)
ACCESS(volatile_write, 8)
NO_ACCESS(read1)
NO_ACCESS(read2)
NO_ACCESS(read4)
NO_ACCESS(read8)
NO_ACCESS(write1)
NO_ACCESS(write2)
NO_ACCESS(write4)
NO_ACCESS(write8)
NO_ACCESS(func_entry)
void __tsan_write_range(const void *at, size_t bytes);
void __tsan_write_range(const void *at, size_t bytes)
{
	(void)at;
	(void)bytes;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
void __tsan_init(void);
void __tsan_init(void)
{
}
