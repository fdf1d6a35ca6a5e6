// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Every call on a FIFO by its pointer and every value it answers with. Prints "all calls", or what
 * failed first.
 *
 *   named_calls write   attaches to the FIFO "samples" of the test in Rust and puts 1000 samples in
 *   named_calls read    attaches to it, takes what is in it, prints the sum of its numbers and how
 *                       it ended */
#include <asmp_rt.h>

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000LL

/* As in tests/c/named.rs. */
struct sample {
	unsigned long long number;
	double value;
	unsigned char rest[8];
};

static void what_is_put_comes_out_in_order_and_a_full_one_refuses(void)
{
	struct asmp_fifo *writer = asmp_fifo_create("a", 4, sizeof(struct sample), 0);
	struct asmp_fifo *reader = asmp_fifo_attach("a", sizeof(struct sample), 0);
	struct sample sample = { .value = 0.5 }, seen[3];
	unsigned long long room = 0, next = 0;

	CHECK(writer != NULL && reader != NULL);
	CHECK(asmp_fifo_get(reader, seen, sizeof(seen)) == 0);
	while (asmp_fifo_put(writer, &sample, sizeof(sample)) == 0)
		sample.number++;
	room = sample.number;
	/* The memory is a power of two. */
	CHECK(room >= 4 && room <= 8 && asmp_fifo_put(writer, &sample, sizeof(sample)) == -ENOSPC);
	CHECK(asmp_fifo_dropped(writer) == 0);
	for (; next < room; next++) {
		CHECK(asmp_fifo_get(reader, seen, sizeof(seen)) == sizeof(struct sample));
		CHECK(seen[0].number == next && seen[0].value == 0.5);
	}
	CHECK(asmp_fifo_get(reader, seen, sizeof(seen)) == 0);
	/* Three at once, taken in two parts. */
	for (int at = 0; at < 3; at++)
		seen[at].number = 100 + at;
	CHECK(asmp_fifo_put(writer, seen, sizeof(seen)) == 0);
	memset(seen, 0, sizeof(seen));
	CHECK(asmp_fifo_get(reader, seen, 2 * sizeof(*seen)) == 2 * sizeof(*seen));
	CHECK(seen[0].number == 100 && seen[1].number == 101);
	CHECK(asmp_fifo_get(reader, seen, sizeof(seen)) == sizeof(*seen) && seen[0].number == 102);
	asmp_fifo_close(reader);
	/* The other end is to be had again, and the FIFO as long as somebody has it. */
	CHECK(asmp_fifo_put(writer, &sample, sizeof(sample)) == 0);
	reader = asmp_fifo_attach("a", 0, 0);
	CHECK(reader != NULL && asmp_fifo_get(reader, seen, sizeof(seen)) == sizeof(*seen));
	asmp_fifo_close(writer);
	asmp_fifo_close(reader);
	REFUSED(asmp_fifo_attach("a", 0, 0), ENODEV, "no channel a");
}

static void a_full_one_that_drops_loses_the_oldest_and_counts_them(void)
{
	struct asmp_fifo *writer = asmp_fifo_create("a", 4, 64, ASMP_FIFO_DROP_OLDEST);
	struct asmp_fifo *reader = asmp_fifo_attach("a", 64, 0);
	long long record[8] = { 0 }, last = -1;
	int got = 0;

	CHECK(writer != NULL && reader != NULL);
	for (; record[0] < 100; record[0]++)
		CHECK(asmp_fifo_put(writer, record, sizeof(record)) == 0);
	while (asmp_fifo_get(reader, record, sizeof(record)) == sizeof(record)) {
		CHECK(last == -1 || record[0] == last + 1);
		last = record[0];
		got++;
	}
	CHECK(last == 99 && got >= 4 && asmp_fifo_dropped(writer) == 100ULL - got);
	CHECK(asmp_fifo_dropped(reader) == 0 && asmp_fifo_dropped(NULL) == 0);
	asmp_fifo_close(writer);
	asmp_fifo_close(reader);
}

static void frames_of_any_length_keep_their_bounds(void)
{
	struct asmp_fifo *writer = asmp_fifo_create("bytes", 1 << 16, 0, 0);
	struct asmp_fifo *reader = asmp_fifo_attach("bytes", 0, 0);
	unsigned char out[300], in[300];

	CHECK(writer != NULL && reader != NULL);
	for (int round = 0; round < 100; round++) {
		for (int length = 1; length <= 300; length++) {
			memset(out, length + round, length);
			CHECK(asmp_fifo_put(writer, out, length) == 0);
			if (length % 3 == 0)
				for (int back = 2; back >= 0; back--) {
					CHECK(asmp_fifo_get(reader, in, sizeof(in)) == length - back);
					for (int at = 0; at < length - back; at++)
						CHECK(in[at] == (unsigned char)(length - back + round));
				}
		}
	}
	asmp_fifo_close(writer);
	asmp_fifo_close(reader);
}

static void what_cannot_be_is_refused_with_the_reason(void)
{
	struct asmp_fifo *fifo = asmp_fifo_create("a", 4, 24, 0), *second, *third, *bytes;
	char record[4096] = "";
	void *memory;

	CHECK(fifo != NULL);
	REFUSED(asmp_fifo_create("a", 4, 24, 0), EBUSY, "channel a already exists");
	REFUSED(asmp_fifo_create("b", 4, 24, 4), EINVAL, "invalid flags 0x4");
	REFUSED(asmp_fifo_create("b", 4, 24, -1), EINVAL, "invalid flags 0xffffffff");
	REFUSED(asmp_fifo_attach("a", 24, ASMP_FIFO_DROP_OLDEST), EINVAL, "invalid flags 0x1");
	REFUSED(asmp_fifo_create("b", 0, 24, 0), ENOMEM, "0 bytes");
	REFUSED(asmp_fifo_create("b", 0, 0, 0), ENOMEM, "0 bytes");
	REFUSED(asmp_fifo_create("b", 15, 0, 0), ENOMEM,
		"15 bytes is outside the limits of a channel: use 16 to 536870904");
	REFUSED(asmp_fifo_create("b", 1 << 29, 0, 0), ENOMEM,
		"536870912 bytes is outside the limits of a channel: use 16 to 536870904");
	REFUSED(asmp_fifo_create("b", (size_t)-1, (size_t)-1, 0), ENOMEM, "bytes");
	REFUSED(asmp_fifo_create("b", (size_t)-1, 1, 0), ENOMEM, "bytes");
	REFUSED(asmp_fifo_create("b c", 4, 24, 0), EINVAL, "invalid channel name");
	REFUSED(asmp_fifo_create(NULL, 4, 24, 0), EINVAL, "the name is null");
	REFUSED(asmp_fifo_attach("none", 24, 0), ENODEV, "no channel none");
	REFUSED(asmp_fifo_attach("a", 16, 0), EBUSY,
		"it carries records of 24 bytes, expected records of 16 bytes");
	bytes = asmp_fifo_create("bytes", 64, 0, 0);
	CHECK(bytes != NULL);
	REFUSED(asmp_fifo_attach("bytes", 24, 0), EBUSY, "it carries bytes");
	memory = mbuff_alloc("memory", 100);
	CHECK(memory != NULL);
	REFUSED(asmp_fifo_attach("memory", 0, 0), EBUSY, "expected 1 (Fifo)");
	mbuff_free("memory", memory);

	/* One writer, one reader, and no end that is both. */
	second = asmp_fifo_attach("a", 24, 0);
	third = asmp_fifo_attach("a", 24, 0);
	CHECK(second != NULL && third != NULL && asmp_fifo_has_peer(third) == 0);
	CHECK(asmp_fifo_put(fifo, NULL, 0) == 0 && asmp_fifo_has_peer(fifo) == 0 &&
		asmp_fifo_has_peer(third) == 1);
	CHECK(asmp_fifo_put(second, record, 24) == -EBUSY && asmp_fifo_wait_put(second, 24, 0) == -EBUSY);
	CHECK(asmp_fifo_get(second, NULL, 0) == 0 && asmp_fifo_has_peer(fifo) == 1 &&
		asmp_fifo_has_peer(second) == 1);
	CHECK(asmp_fifo_get(third, record, 24) == -EBUSY && asmp_fifo_wait_get(third, 0) == -EBUSY);
	CHECK(asmp_fifo_put(second, record, 24) == -EBADF && asmp_fifo_wait_put(second, 24, 0) == -EBADF);
	CHECK(asmp_fifo_get(fifo, record, 24) == -EBADF && asmp_fifo_wait_get(fifo, 0) == -EBADF);

	/* Lengths that never fit, and no memory at all. */
	CHECK(asmp_fifo_put(fifo, record, 23) == -EMSGSIZE &&
		asmp_fifo_put(fifo, record, 25) == -EMSGSIZE);
	CHECK(asmp_fifo_put(fifo, record, 24 * 100) == -EMSGSIZE);
	CHECK(asmp_fifo_wait_put(fifo, 24 * 100, -1) == -EMSGSIZE &&
		asmp_fifo_wait_put(fifo, (size_t)-1, -1) == -EMSGSIZE);
	CHECK(asmp_fifo_wait_put(fifo, 23, -1) == -EMSGSIZE &&
		asmp_fifo_wait_put(fifo, 25, 0) == -EMSGSIZE);
	CHECK(asmp_fifo_put(bytes, record, 4096) == -EMSGSIZE);
	/* As of a read that failed. */
	CHECK(asmp_fifo_put(bytes, record, (size_t)-1) == -EMSGSIZE &&
		asmp_fifo_put(fifo, record, (size_t)-16) == -EMSGSIZE);
	CHECK(asmp_fifo_wait_put(bytes, (size_t)-1, -1) == -EMSGSIZE &&
		asmp_fifo_get(second, record, (size_t)-1) == 0);
	CHECK(asmp_fifo_put(fifo, NULL, 24) == -EINVAL && asmp_fifo_get(second, NULL, 24) == -EINVAL);
	CHECK(asmp_fifo_put(NULL, record, 24) == -EINVAL && asmp_fifo_get(NULL, record, 24) == -EINVAL);
	CHECK(asmp_fifo_wait_put(NULL, 24, 0) == -EINVAL && asmp_fifo_wait_get(NULL, 0) == -EINVAL);
	CHECK(asmp_fifo_has_peer(NULL) == 0 && asmp_fifo_get(second, record, 24) == 0);
	asmp_fifo_close(NULL);
	asmp_fifo_close(third);
	asmp_fifo_close(second);
	asmp_fifo_close(fifo);
	asmp_fifo_close(bytes);
}

static void waits_end_when_there_is_something_in_time_or_with_the_peer(void)
{
	struct asmp_fifo *writer, *reader;
	char record[64] = "", in[64];
	int status;
	pid_t child;

	writer = asmp_fifo_create("a", 2, sizeof(record), ASMP_FIFO_WAKE);
	reader = asmp_fifo_attach("a", sizeof(record), ASMP_FIFO_WAKE);
	CHECK(writer != NULL && reader != NULL && asmp_fifo_put(writer, NULL, 0) == 0);
	CHECK(asmp_fifo_wait_get(reader, 0) == -ETIMEDOUT &&
		asmp_fifo_wait_get(reader, 5 * MS) == -ETIMEDOUT);
	asmp_fifo_close(reader);
	child = fork();
	if (child == 0) {
		reader = asmp_fifo_attach("a", sizeof(record), ASMP_FIFO_WAKE);
		CHECK(reader != NULL);
		for (int next = 0; next < 1000; next++) {
			CHECK(asmp_fifo_wait_get(reader, -1) == 0);
			CHECK(asmp_fifo_get(reader, in, sizeof(in)) == sizeof(in) && in[0] == (char)next);
		}
		exit(0);
	}
	while (!asmp_fifo_has_peer(writer) && waitpid(child, &status, WNOHANG) == 0)
		usleep(1000);
	for (int next = 0; next < 1000; next++) {
		record[0] = (char)next;
		while (asmp_fifo_put(writer, record, sizeof(record)) == -ENOSPC)
			CHECK(asmp_fifo_wait_put(writer, sizeof(record), -1) == 0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* No reader takes any more. */
	while (asmp_fifo_put(writer, record, sizeof(record)) == 0)
		;
	CHECK(asmp_fifo_wait_put(writer, 0, -1) == 0 &&
		asmp_fifo_wait_put(writer, sizeof(record), MS) == -ETIMEDOUT);
	CHECK(asmp_fifo_wait_put(writer, sizeof(record), -1) == -EPIPE);
	reader = asmp_fifo_attach("a", sizeof(record), 0);
	asmp_fifo_close(writer);
	while (asmp_fifo_wait_get(reader, -1) == 0)
		CHECK(asmp_fifo_get(reader, in, sizeof(in)) == sizeof(in));
	CHECK(asmp_fifo_wait_get(reader, -1) == -EPIPE);
	asmp_fifo_close(reader);
}

static volatile sig_atomic_t signals;

static void count(int signal)
{
	signals++;
}

static void a_wait_is_not_ended_by_a_signal(void)
{
	struct asmp_fifo *writer = asmp_fifo_create("a", 2, 8, 0), *reader = asmp_fifo_attach("a", 8, 0);
	struct itimerval each_ms = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = count };
	long long begun = gethrtime();

	CHECK(writer != NULL && reader != NULL && asmp_fifo_put(writer, NULL, 0) == 0);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &each_ms, NULL) == 0);
	CHECK(asmp_fifo_wait_get(reader, 50 * MS) == -ETIMEDOUT && gethrtime() - begun >= 50 * MS);
	while (asmp_fifo_put(writer, "1234567", 8) == 0)
		;
	CHECK(asmp_fifo_wait_put(writer, 8, 50 * MS) == -ETIMEDOUT && gethrtime() - begun >= 100 * MS);
	CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0 && signals > 0);
	signal(SIGALRM, SIG_DFL);
	alarm(60);
	asmp_fifo_close(writer);
	asmp_fifo_close(reader);
}

static void a_child_that_was_forked_keeps_neither_the_role_nor_the_name(void)
{
	struct asmp_fifo *writer = asmp_fifo_create("a", 2, 8, 0), *other;
	int end[2], status;
	char byte;
	pid_t child;

	CHECK(writer != NULL && asmp_fifo_put(writer, NULL, 0) == 0 && pipe(end) == 0);
	child = fork();
	if (child == 0) {
		close(end[1]);
		_exit(read(end[0], &byte, 1) != 0);
	}
	other = asmp_fifo_attach("a", 8, 0);
	CHECK(other != NULL);
	asmp_fifo_close(writer);
	CHECK(asmp_fifo_has_peer(other) == 0 && asmp_fifo_put(other, "1234567", 8) == 0);
	asmp_fifo_close(other);
	REFUSED(asmp_fifo_attach("a", 8, 0), ENODEV, "no channel a");
	other = asmp_fifo_create("a", 2, 8, 0);
	CHECK(other != NULL && asmp_fifo_put(other, "1234567", 8) == 0);
	asmp_fifo_close(other);
	close(end[0]);
	close(end[1]);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* In a child, whose limits do not outlive it. */
static void a_full_memory_or_table_of_files_is_refused(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct rlimit few = { 4, 4 }, little = { 4096, 4096 };

		CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
		REFUSED(asmp_fifo_create("full", 1 << 20, 0, 0), ENOMEM, "cannot allocate");
		CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
		REFUSED(asmp_fifo_create("many", 64, 0, 0), EMFILE, "Too many open files");
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A child whom the kernel kills at any system call but read, write and exit. */
static void puts_and_gets_enter_no_kernel(void)
{
	struct asmp_fifo *writer = asmp_fifo_create("a", 16, 64, ASMP_FIFO_WAKE);
	struct asmp_fifo *reader = asmp_fifo_attach("a", 64, 0);
	struct asmp_fifo *drops = asmp_fifo_create("b", 16, 64, ASMP_FIFO_DROP_OLDEST);
	char record[64] = "", in[64];
	int status;
	pid_t child;

	CHECK(writer != NULL && reader != NULL && drops != NULL);
	CHECK(asmp_fifo_put(writer, NULL, 0) == 0 && asmp_fifo_get(reader, NULL, 0) == 0);
	CHECK(asmp_fifo_put(drops, NULL, 0) == 0);
	child = fork();
	if (child == 0) {
		int good = 1;

		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
			_exit(9);
		for (int round = 1; round < 1000; round++) {
			record[0] = (char)round;
			good &= asmp_fifo_put(writer, record, sizeof(record)) == 0;
			good &= asmp_fifo_put(drops, record, sizeof(record)) == 0;
			good &= asmp_fifo_get(reader, in, sizeof(in)) == sizeof(in) && in[0] == (char)round;
			good &= asmp_fifo_get(reader, in, sizeof(in)) == 0;
		}
		syscall(SYS_exit, !good);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
		fprintf(stderr, "skipped: the kernel has no seccomp\n");
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	asmp_fifo_close(writer);
	asmp_fifo_close(reader);
	asmp_fifo_close(drops);
}

/* A reader that has waited is thought to sleep: who wakes it enters the kernel, and dies of it
 * here. */
static void only_an_end_that_wakes_enters_the_kernel_for_a_sleeper(void)
{
	for (int flags = 0; flags <= ASMP_FIFO_WAKE; flags += ASMP_FIFO_WAKE) {
		struct asmp_fifo *writer = asmp_fifo_create("a", 16, 64, flags);
		struct asmp_fifo *reader = asmp_fifo_attach("a", 64, 0);
		char record[64] = "";
		int status;
		pid_t child;

		CHECK(writer != NULL && reader != NULL && asmp_fifo_put(writer, NULL, 0) == 0);
		CHECK(asmp_fifo_wait_get(reader, 0) == -ETIMEDOUT);
		child = fork();
		if (child == 0) {
			if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
				_exit(9);
			syscall(SYS_exit, asmp_fifo_put(writer, record, sizeof(record)) != 0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
			fprintf(stderr, "skipped: the kernel has no seccomp\n");
		else if (flags == ASMP_FIFO_WAKE)
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		asmp_fifo_close(reader);
		asmp_fifo_close(writer);
	}
}

/* What one side knows by a number the other may know by name. */
static void a_number_of_rtlinux_has_a_name(void)
{
	struct asmp_fifo *fifo;
	char in[8] = "";

	CHECK(rtf_create(3, 100) == 0 && rtf_put(3, (void *)"abc", 4) == 4);
	fifo = asmp_fifo_attach("rtf3", 0, 0);
	CHECK(fifo != NULL && asmp_fifo_get(fifo, in, sizeof(in)) == 4 && strcmp(in, "abc") == 0);
	asmp_fifo_close(fifo);
	CHECK(rtf_destroy(3) == 0);
}

static void writes(void)
{
	struct asmp_fifo *fifo = asmp_fifo_attach("samples", sizeof(struct sample), ASMP_FIFO_WAKE);
	struct sample sample = { .value = -2.5, .rest = { 1, 2, 3, 4, 5, 6, 7, 255 } };

	CHECK(fifo != NULL);
	for (; sample.number < 1000; sample.number++)
		while (asmp_fifo_put(fifo, &sample, sizeof(sample)) != 0)
			CHECK(asmp_fifo_wait_put(fifo, sizeof(sample), -1) == 0);
	asmp_fifo_close(fifo);
}

static void reads(void)
{
	struct asmp_fifo *fifo = asmp_fifo_attach("samples", sizeof(struct sample), ASMP_FIFO_WAKE);
	struct sample sample;
	unsigned long long sum = 0;
	int waited;

	CHECK(fifo != NULL && asmp_fifo_get(fifo, NULL, 0) == 0);
	puts("open");
	fflush(stdout);
	while ((waited = asmp_fifo_wait_get(fifo, -1)) == 0) {
		CHECK(asmp_fifo_get(fifo, &sample, sizeof(sample)) == sizeof(sample));
		CHECK(sample.value == -2.5 && sample.rest[7] == 255);
		sum += sample.number;
	}
	printf("%llu %d\n", sum, waited == -EPIPE);
	asmp_fifo_close(fifo);
}

int main(int argc, char **argv)
{
	alarm(60);
	if (argc == 2) {
		strcmp(argv[1], "write") == 0 ? writes() : reads();
		return 0;
	}
	what_is_put_comes_out_in_order_and_a_full_one_refuses();
	a_full_one_that_drops_loses_the_oldest_and_counts_them();
	frames_of_any_length_keep_their_bounds();
	what_cannot_be_is_refused_with_the_reason();
	waits_end_when_there_is_something_in_time_or_with_the_peer();
	a_wait_is_not_ended_by_a_signal();
	a_child_that_was_forked_keeps_neither_the_role_nor_the_name();
	a_full_memory_or_table_of_files_is_refused();
	puts_and_gets_enter_no_kernel();
	only_an_end_that_wakes_enters_the_kernel_for_a_sleeper();
	a_number_of_rtlinux_has_a_name();
	puts("all calls");
	return 0;
}
