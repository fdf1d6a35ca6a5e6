// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Every call of the mbuff part of libasmp_rt and every value it answers with. Prints "all calls",
 * or what failed first.
 *
 *   mbuff_calls peer  attaches to the record "shared" of the test in Rust, reads it, adds 1 to each
 *                     of its fields, writes it back
 *   mbuff_calls old   says why the mbuff "old" cannot be had */
#include <mbuff.h>

#include "check.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* As in tests/c/mbuff.rs. */
struct sample {
	unsigned long long number;
	double value;
	int small[3];
	unsigned char flags[4];
};

static void what_is_allocated_twice_is_one_memory_until_the_last_goes(void)
{
	char *first = mbuff_alloc("a", 100), *second = mbuff_attach("a", 100), *unnamed;

	CHECK(first != NULL && second != NULL && first != second);
	CHECK((size_t)first % 64 == 0);
	for (int at = 0; at < 100; at++)
		CHECK(first[at] == 0);
	strcpy(first, "here");
	CHECK(strcmp(second, "here") == 0);
	mbuff_free("a", first);
	/* As much as is there, or less. */
	first = mbuff_alloc("a", 0);
	CHECK(first != NULL && strcmp(first, "here") == 0);
	mbuff_free("a", first);
	first = mbuff_alloc("a", 50);
	CHECK(first != NULL && strcmp(first, "here") == 0);
	mbuff_detach("a", first);
	mbuff_detach("a", second);
	REFUSED(mbuff_alloc("a", 0), ENODEV, "no channel a");
	/* What has no name is called default. */
	unnamed = mbuff_attach(NULL, 10);
	first = mbuff_attach("default", 10);
	CHECK(unnamed != NULL && first != NULL);
	unnamed[9] = 7;
	CHECK(first[9] == 7);
	mbuff_detach("default", first);
	mbuff_detach(NULL, unnamed);
}

static void what_cannot_be_is_refused_with_the_reason(void)
{
	char *a = mbuff_alloc("a", 100);
	struct asmp_record *record = asmp_record_alloc("r", 8);

	CHECK(a != NULL && record != NULL);
	REFUSED(mbuff_alloc("a", 101), EIO, "mbuff a has 100 bytes, not 101");
	REFUSED(mbuff_attach("a", -1), EINVAL, "invalid size -1");
	REFUSED(mbuff_alloc("a b", 1), EINVAL, "invalid channel name");
	REFUSED(mbuff_alloc("", 1), EINVAL, "invalid channel name");
	REFUSED(mbuff_alloc("\xff", 1), EINVAL, "letters");
	REFUSED(mbuff_alloc("b", 0x7fffffff), ENOMEM, "the limits of a channel: use 1 to");
	REFUSED(mbuff_alloc("r", 8), EBUSY, "a record of 8 bytes");
	REFUSED(asmp_record_alloc("a", 8), EBUSY, "raw bytes");
	REFUSED(asmp_record_alloc("r", 9), EBUSY, "expected a record of 9 bytes");
	REFUSED(asmp_record_attach("r", 7), EBUSY, "expected a record of 7 bytes");
	REFUSED(asmp_record_attach("none", 8), ENODEV, "no channel none");
	REFUSED(asmp_record_alloc("none", 0), ENOMEM, "0 bytes");
	REFUSED(asmp_record_alloc(NULL, 8), EINVAL, "the name is null");
	CHECK(rtf_create(1, 10) == 0);
	REFUSED(mbuff_attach("rtf1", 10), EBUSY, "it is of kind 1, expected 2 (Mbuff)");
	CHECK(rtf_destroy(1) == 0);
	/* A free that frees nothing. */
	errno = 0;
	mbuff_free("other", a);
	CHECK(errno == EINVAL && strstr(asmp_why(), "no mbuff other is mapped at"));
	errno = 0;
	mbuff_detach("a", a + 1);
	CHECK(errno == EINVAL);
	mbuff_free("a", NULL);
	a[99] = 1;
	mbuff_free("a", a);
	asmp_record_free(record);
	asmp_record_free(NULL);
}

/* In a child, whose limits do not outlive it. */
static void a_full_memory_or_table_of_files_is_refused(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct rlimit few = { 4, 4 }, little = { 4096, 4096 };

		CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
		errno = 0;
		REFUSED(mbuff_alloc("full", 1 << 20), ENOMEM,
			"cannot allocate 1048576 bytes of shared memory: RLIMIT_FSIZE is 4096 bytes");
		CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
		REFUSED(mbuff_alloc("many", 1), EMFILE, "Too many open files");
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void a_record_has_one_writer_and_any_readers(void)
{
	struct asmp_record *writes = asmp_record_alloc("r", sizeof(struct sample));
	struct asmp_record *reads = asmp_record_attach("r", sizeof(struct sample));
	struct sample sample = { .number = 1 }, seen = { .number = 99 };

	CHECK(writes != NULL && reads != NULL);
	CHECK(asmp_record_read(reads, &seen, sizeof(seen)) == 0 && seen.number == 99);
	CHECK(asmp_record_has_writer(reads) == 0);
	CHECK(asmp_record_write(writes, NULL, 0) == 0 && asmp_record_has_writer(reads) == 1);
	CHECK(asmp_record_write(reads, &sample, sizeof(sample)) == -EBUSY);
	for (; sample.number < 10; sample.number++) {
		CHECK(asmp_record_write(writes, &sample, sizeof(sample)) == 0);
		CHECK(asmp_record_read(reads, &seen, sizeof(seen)) == (long long)sample.number);
		CHECK(memcmp(&seen, &sample, sizeof(seen)) == 0);
		CHECK(asmp_record_read(writes, &seen, sizeof(seen)) == (long long)sample.number);
	}
	CHECK(asmp_record_write(writes, &sample, sizeof(sample) - 1) == -EINVAL);
	CHECK(asmp_record_write(writes, NULL, sizeof(sample)) == -EINVAL);
	CHECK(asmp_record_read(reads, &seen, sizeof(seen) + 1) == -EINVAL);
	CHECK(asmp_record_read(reads, NULL, sizeof(seen)) == -EINVAL);
	CHECK(asmp_record_write(NULL, &sample, 0) == -EINVAL &&
		asmp_record_read(NULL, &seen, 0) == -EINVAL);
	CHECK(asmp_record_has_writer(NULL) == 0);
	/* The next writer goes on with the count. */
	asmp_record_free(writes);
	CHECK(asmp_record_has_writer(reads) == 0);
	CHECK(asmp_record_write(reads, &sample, sizeof(sample)) == 0);
	CHECK(asmp_record_read(reads, &seen, sizeof(seen)) == 10);
	asmp_record_free(reads);
}

/* A child whom the kernel kills at any system call but read, write and exit. */
static void reads_and_writes_enter_no_kernel(void)
{
	struct asmp_record *record = asmp_record_alloc("r", 100);
	char *raw = mbuff_alloc("a", 4 << 20), value[100] = "";
	int status;
	pid_t child;

	CHECK(record != NULL && raw != NULL && asmp_record_write(record, NULL, 0) == 0);
	child = fork();
	if (child == 0) {
		int good = 1;

		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
			_exit(9);
		for (int round = 1; round < 1000; round++) {
			value[0] = round;
			good &= asmp_record_write(record, value, sizeof(value)) == 0;
			good &= asmp_record_read(record, value, sizeof(value)) == round && value[0] == (char)round;
		}
		memset(raw, 1, 4 << 20);
		syscall(SYS_exit, !good);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
		fprintf(stderr, "skipped: the kernel has no seccomp\n");
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(raw[(4 << 20) - 1] == 1);
	mbuff_free("a", raw);
	asmp_record_free(record);
}

static void peer(void)
{
	struct asmp_record *record = asmp_record_attach("shared", sizeof(struct sample));
	struct sample sample;

	CHECK(record != NULL && asmp_record_read(record, &sample, sizeof(sample)) == 1);
	printf("%llu %g %d %d %d %u %u %u %u\n", sample.number, sample.value, sample.small[0],
		sample.small[1],
	       sample.small[2], sample.flags[0], sample.flags[1], sample.flags[2], sample.flags[3]);
	sample.number++;
	sample.value++;
	for (int at = 0; at < 3; at++)
		sample.small[at]++;
	for (int at = 0; at < 4; at++)
		sample.flags[at]++;
	CHECK(asmp_record_write(record, &sample, sizeof(sample)) == 0);
	asmp_record_free(record);
}

int main(int argc, char **argv)
{
	alarm(60);
	if (argc == 2 && strcmp(argv[1], "peer") == 0) {
		peer();
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "old") == 0) {
		CHECK(mbuff_attach("old", 8) == NULL);
		printf("%d %s\n", errno == EBUSY, asmp_why());
		return 0;
	}
	CHECK(strcmp(asmp_why(), "") == 0);
	what_is_allocated_twice_is_one_memory_until_the_last_goes();
	what_cannot_be_is_refused_with_the_reason();
	a_full_memory_or_table_of_files_is_refused();
	a_record_has_one_writer_and_any_readers();
	reads_and_writes_enter_no_kernel();
	puts("all calls");
	return 0;
}
