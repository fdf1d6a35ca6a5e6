// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Every call of the FIFO part of libasmp_rt and every value it answers with. Prints "all calls", or
 * what failed first. */
#include <rtl.h>
#include <rtl_fifo.h>

#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

#define SIZE 100

static char bytes[1 << 16];
static volatile int count;

/* All allocations of the program and the library come by here. */
void *__libc_malloc(size_t size);
static volatile int allocations;

void *malloc(size_t size)
{
	__atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
	return __libc_malloc(size);
}

/* Waits for what a handler does; where that never happens, the alarm of main ends the program. */
static void until(int wanted)
{
	while (count < wanted)
		usleep(1000);
}

static int counts(unsigned int fifo)
{
	count++;
	return fifo;
}

static int fill(unsigned int fifo)
{
	int puts = 0, result;

	while ((result = rtf_put(fifo, "x", 1)) == 1)
		puts++;
	CHECK(result == -ENOSPC);
	return puts;
}

static void a_fifo_is_created_once_and_destroyed_once(void)
{
	CHECK(rtf_create(RTF_NO, SIZE) == -ENODEV && rtf_destroy(RTF_NO) == -ENODEV);
	CHECK(rtf_create(0, 0) == -ENOMEM && rtf_create(0, -1) == -ENOMEM);
	CHECK(rtf_create(0, 0x7fffffff) == -ENOMEM);
	CHECK(rtf_destroy(0) == -EINVAL);
	CHECK(rtf_attach_np(0) == -ENODEV && rtf_attach_np(RTF_NO) == -ENODEV);
	CHECK(rtf_create(0, SIZE) == 0 && rtf_create(0, SIZE) == -EBUSY && rtf_attach_np(0) == -EBUSY);
	CHECK(rtf_destroy(0) == 0 && rtf_destroy(0) == -EINVAL);
	CHECK(rtf_create(0, SIZE) == 0 && rtf_destroy(0) == 0);
}

static void a_put_is_whole_or_nothing_and_a_get_takes_what_is_there(void)
{
	CHECK(rtf_put(RTF_NO, "x", 1) == -ENODEV && rtf_get(RTF_NO, bytes, 1) == -ENODEV);
	CHECK(rtf_put(0, "x", 1) == -EINVAL && rtf_get(0, bytes, 1) == -EINVAL);
	CHECK(rtf_create(0, SIZE) == 0);
	CHECK(rtf_put(0, NULL, 1) == -EINVAL && rtf_get(0, NULL, 1) == -EINVAL);
	CHECK(rtf_put(0, "x", -1) == -EINVAL && rtf_get(0, bytes, -1) == -EINVAL);
	CHECK(rtf_put(0, NULL, 0) == 0 && rtf_get(0, NULL, 0) == 0);
	CHECK(rtf_get(0, bytes, sizeof(bytes)) == 0);
	/* Over the bounds of puts, and in pieces of one. */
	CHECK(rtf_put(0, "one", 3) == 3 && rtf_put(0, "two", 3) == 3 && rtf_put(0, "three", 5) == 5);
	CHECK(rtf_get(0, bytes, 4) == 4 && memcmp(bytes, "onet", 4) == 0);
	CHECK(rtf_isempty(0) == 0);
	CHECK(rtf_get(0, bytes, sizeof(bytes)) == 7 && memcmp(bytes, "wothree", 7) == 0);
	CHECK(rtf_isempty(0) == 1 && rtf_get(0, bytes, 1) == 0);
	/* The size fits byte by byte, twice, and as a whole; what is larger than all memory never does. */
	for (int round = 0; round < 2; round++) {
		int puts = fill(0);

		CHECK(puts >= SIZE && rtf_put(0, bytes, 2 * SIZE) == -ENOSPC);
		CHECK(rtf_get(0, bytes, sizeof(bytes)) == puts);
	}
	CHECK(rtf_put(0, bytes, SIZE) == SIZE && rtf_get(0, bytes, sizeof(bytes)) == SIZE);
	CHECK(rtf_put(0, bytes, sizeof(bytes)) == -ENOSPC && rtf_isempty(0) == 1);
	CHECK(rtf_destroy(0) == 0);
}

static void a_flush_empties_unless_another_reads(void)
{
	struct rtf_file *file;

	CHECK(rtf_flush(RTF_NO) == -ENODEV && rtf_isempty(RTF_NO) == -ENODEV && rtf_isused(RTF_NO) == 0);
	CHECK(rtf_flush(0) == -EINVAL && rtf_isempty(0) == -EINVAL && rtf_isused(0) == 0);
	CHECK(rtf_create(0, SIZE) == 0);
	fill(0);
	CHECK(rtf_isempty(0) == 0 && rtf_flush(0) == 0 && rtf_isempty(0) == 1);
	CHECK(fill(0) >= SIZE);
	/* Flushing did not make this side the reader. */
	CHECK(rtf_open_np(0, O_RDONLY, &file) == 0);
	CHECK(rtf_flush(0) == -EBUSY && rtf_isempty(0) == 0);
	CHECK(rtf_get(0, bytes, 1) == -EBUSY);
	rtf_close_np(file);
	CHECK(rtf_get(0, bytes, 1) == 1 && rtf_flush(0) == 0 && rtf_isempty(0) == 1);
	CHECK(rtf_destroy(0) == 0);
}

static void the_other_side_reads_and_writes_as_a_device(void)
{
	struct rtf_file *file, *other;

	CHECK(rtf_open_np(RTF_NO, O_RDONLY, &file) == -ENODEV &&
		rtf_open_np(0, O_RDONLY, &file) == -ENODEV);
	CHECK(rtf_create(0, SIZE) == 0);
	CHECK(rtf_open_np(0, O_RDWR, &file) == -EINVAL && rtf_open_np(0, O_ACCMODE, &file) == -EINVAL);
	CHECK(rtf_open_np(0, O_RDONLY | O_CREAT, &file) == -EINVAL);
	CHECK(rtf_isused(0) == 0);
	CHECK(rtf_open_np(0, O_RDONLY | O_NONBLOCK, &file) == 0);
	CHECK(rtf_isused(0) == 1 && rtf_destroy(0) == -EINVAL);
	CHECK(rtf_open_np(0, O_RDONLY, &other) == -EBUSY);
	CHECK(rtf_read_np(file, bytes, 1) == -EAGAIN && rtf_read_np(file, NULL, 1) == -EINVAL);
	CHECK(rtf_write_np(file, bytes, 1) == -EBADF && rtf_read_np(NULL, bytes, 1) == -EBADF);
	CHECK(rtf_put(0, "ab", 2) == 2 && rtf_put(0, "cd", 2) == 2);
	CHECK(rtf_read_np(file, bytes, 3) == 3 && rtf_read_np(file, bytes + 3, 9) == 1);
	CHECK(memcmp(bytes, "abcd", 4) == 0);
	rtf_close_np(file);
	rtf_close_np(NULL);
	CHECK(rtf_isused(0) == 0 && rtf_destroy(0) == 0);

	CHECK(rtf_create(0, SIZE) == 0);
	CHECK(rtf_open_np(0, O_WRONLY | O_NONBLOCK, &file) == 0);
	CHECK(rtf_isused(0) == 1 && rtf_put(0, "x", 1) == -EBUSY);
	CHECK(rtf_write_np(file, bytes, sizeof(bytes)) == -EAGAIN || rtf_get(0, bytes, SIZE) == SIZE);
	CHECK(rtf_flush(0) == 0);
	CHECK(rtf_write_np(file, "hello", 5) == 5 && rtf_get(0, bytes, 99) == 5);
	CHECK(memcmp(bytes, "hello", 5) == 0 && rtf_read_np(file, bytes, 1) == -EBADF);
	CHECK(rtf_write_np(file, NULL, 1) == -EINVAL && rtf_write_np(NULL, bytes, 1) == -EBADF);
	rtf_close_np(file);
	CHECK(rtf_put(0, "x", 1) == 1 && rtf_destroy(0) == 0);
}

static void a_pair_is_one_file_for_both_directions(void)
{
	struct rtf_file *file;

	CHECK(rtf_make_user_pair(1, RTF_NO) == -ENODEV && rtf_make_user_pair(RTF_NO, 1) == -ENODEV);
	CHECK(rtf_create(1, SIZE) == 0);
	CHECK(rtf_make_user_pair(1, 2) == -EINVAL && rtf_make_user_pair(2, 1) == -EINVAL);
	CHECK(rtf_create(2, SIZE) == 0 && rtf_make_user_pair(1, 2) == 0);
	CHECK(rtf_open_np(1, O_RDWR, &file) == 0);
	CHECK(rtf_write_np(file, "ping", 4) == 4 && rtf_get(1, bytes, 9) == 4 &&
		memcmp(bytes, "ping", 4) == 0);
	CHECK(rtf_put(2, "pong!", 5) == 5 && rtf_read_np(file, bytes, 9) == 5 &&
		memcmp(bytes, "pong!", 5) == 0);
	CHECK(rtf_isused(1) == 1 && rtf_isused(2) == 1);
	rtf_close_np(file);
	CHECK(rtf_destroy(1) == 0 && rtf_destroy(2) == 0);
}

/* A process of this program that does `what` with FIFO 0; it ends when `told` is closed. */
static pid_t peer(const char *what, int *told)
{
	int ready[2], end[2];
	char byte;
	pid_t child;

	CHECK(pipe(ready) == 0 && pipe(end) == 0);
	child = fork();
	if (child == 0) {
		dup2(end[0], 0);
		dup2(ready[1], 1);
		close(end[1]);
		/* A program of its own: a child as such shares what we have open. */
		execl("/proc/self/exe", "fifo_calls", what, NULL);
		_exit(1);
	}
	close(end[0]);
	close(ready[1]);
	CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	*told = end[1];
	return child;
}

/* Has it and is neither end. */
static int stands_by(void)
{
	char byte;

	CHECK(rtf_attach_np(0) == 0 && write(1, "r", 1) == 1);
	CHECK(read(0, &byte, 1) == 0);
	return rtf_destroy(0);
}

/* Has it now and then: between being found and being taken up the FIFO of the real-time side may
 * go. */
static int comes_and_goes(void)
{
	struct pollfd end = { .fd = 0, .events = POLLIN };

	CHECK(write(1, "r", 1) == 1);
	while (poll(&end, 1, 0) == 0)
		if (rtf_attach_np(0) == 0)
			CHECK(rtf_destroy(0) == 0);
	return 0;
}

static void a_fifo_is_made_also_while_a_peer_lets_the_last_one_go(void)
{
	int told, round;
	pid_t other = peer("comes and goes", &told);

	for (round = 0; round < 20000; round++) {
		CHECK(rtf_create(0, SIZE) == 0);
		CHECK(rtf_destroy(0) == 0);
	}
	close(told);
	CHECK(waitpid(other, NULL, 0) == other);
}

static void a_resize_is_refused_while_another_has_it_open(void)
{
	struct rtf_file *file;
	pid_t other;
	int told;

	CHECK(rtf_resize(RTF_NO, SIZE) == -ENODEV && rtf_resize(0, SIZE) == -EINVAL);
	CHECK(rtf_create(0, SIZE) == 0 && rtf_create_rt_handler(0, counts) == 0);
	CHECK(rtf_create_handler(0, counts) == 0);
	CHECK(rtf_put(0, "lost", 4) == 4);
	CHECK(rtf_resize(0, 0) == -EINVAL && rtf_resize(0, -1) == -EINVAL);
	CHECK(rtf_resize(0, 0x7fffffff) == -ENOMEM && rtf_isempty(0) == 0);
	CHECK(rtf_open_np(0, O_RDONLY, &file) == 0 && rtf_resize(0, 10 * SIZE) == -EINVAL);
	rtf_close_np(file);
	CHECK(rtf_isempty(0) == 0 && rtf_resize(0, 10 * SIZE) == 0 && rtf_isempty(0) == 1);
	/* One that has it and is neither end keeps its memory, too; what is in it stays. */
	CHECK(rtf_put(0, bytes, SIZE) == SIZE);
	other = peer("stands by", &told);
	CHECK(rtf_resize(0, 20 * SIZE) == -EINVAL && rtf_get(0, bytes, 2 * SIZE) == SIZE);
	close(told);
	CHECK(waitpid(other, NULL, 0) == other);
	CHECK(rtf_resize(0, 20 * SIZE) == 0 && rtf_put(0, bytes, 20 * SIZE) == 20 * SIZE &&
		rtf_flush(0) == 0);
	count = 0;
	CHECK(fill(0) >= 10 * SIZE && count >= 10 * SIZE);
	count = 0;
	CHECK(rtf_open_np(0, O_RDONLY, &file) == 0 && rtf_read_np(file, bytes, 1) == 1);
	until(1);
	rtf_close_np(file);
	CHECK(rtf_destroy(0) == 0);
}

static void handlers_hear_of_each_side(void)
{
	struct rtf_file *file;

	CHECK(rtf_create_handler(0, counts) == -EINVAL && rtf_create_rt_handler(0, counts) == -EINVAL);
	CHECK(rtf_create_handler(RTF_NO, counts) == -EINVAL &&
		rtf_create_rt_handler(RTF_NO, counts) == -EINVAL);
	CHECK(rtf_create(0, SIZE) == 0 && rtf_create(1, SIZE) == 0);
	CHECK(rtf_create_handler(0, NULL) == -EINVAL && rtf_create_rt_handler(0, NULL) == -EINVAL);
	/* In the caller, after each put that succeeded and each get. */
	count = 0;
	CHECK(rtf_create_rt_handler(0, counts) == 0);
	CHECK(rtf_put(0, "x", 1) == 1 && count == 1 && rtf_get(0, bytes, 1) == 1 && count == 2);
	CHECK(rtf_get(0, bytes, 1) == 0 && count == 3 && rtf_put(0, bytes, sizeof(bytes)) < 0 &&
		count == 3);
	CHECK(rtf_destroy(0) == 0);
	/* Of writes and of reads by the other side, and not of our own. */
	CHECK(rtf_create_handler(1, counts) == 0);
	count = 0;
	CHECK(rtf_put(1, "x", 1) == 1 && rtf_get(1, bytes, 1) == 1);
	/* Longer than the handler's thread ever sleeps. */
	usleep(250000);
	CHECK(count == 0 && rtf_destroy(1) == 0 && rtf_create(1, SIZE) == 0 &&
		rtf_create_handler(1, counts) == 0);
	CHECK(rtf_open_np(1, O_WRONLY, &file) == 0);
	for (int access = 1; access <= 20; access++) {
		count = 0;
		CHECK(rtf_write_np(file, "x", 1) == 1);
		until(1);
		CHECK(rtf_get(1, bytes, 9) == 1);
	}
	usleep(20000);
	CHECK(count == 1);
	rtf_close_np(file);
	CHECK(rtf_destroy(1) == 0 && rtf_create(1, SIZE) == 0 && rtf_create_handler(1, counts) == 0);
	CHECK(rtf_open_np(1, O_RDONLY, &file) == 0);
	for (int access = 1; access <= 20; access++) {
		count = 0;
		CHECK(rtf_put(1, "x", 1) == 1);
		usleep(2000);
		CHECK(count == 0);
		CHECK(rtf_read_np(file, bytes, 1) == 1);
		until(1);
	}
	rtf_close_np(file);
	CHECK(rtf_destroy(1) == 0);
}

static void *puts_numbers(void *fifo)
{
	for (int put = 0; put < 1000; put++) {
		while (rtf_put((unsigned int)(size_t)fifo, &put, sizeof(put)) != sizeof(put))
			usleep(100);
	}
	return NULL;
}

static void threads_of_one_process_take_turns(void)
{
	pthread_t threads[3];
	int number, sums = 0;

	CHECK(rtf_create(3, 64) == 0);
	for (int at = 0; at < 3; at++)
		CHECK(pthread_create(&threads[at], NULL, puts_numbers, (void *)3) == 0);
	for (int got = 0; got < 3000;) {
		if (rtf_get(3, &number, sizeof(number)) == sizeof(number)) {
			CHECK(number >= 0 && number < 1000);
			sums += number;
			got++;
		} else {
			usleep(100);
		}
	}
	CHECK(sums == 3 * 999 * 1000 / 2);
	for (int at = 0; at < 3; at++)
		CHECK(pthread_join(threads[at], NULL) == 0);
	CHECK(rtf_destroy(3) == 0);
}

/* A child whom the kernel kills at any system call but read, write and exit. */
static void puts_and_gets_after_the_first_enter_no_kernel_and_allocate_nothing(void)
{
	int status;
	pid_t child;

	CHECK(rtf_create(0, SIZE) == 0 && rtf_create_rt_handler(0, counts) == 0);
	CHECK(rtf_put(0, NULL, 0) == 0 && rtf_get(0, NULL, 0) == 0);
	child = fork();
	if (child == 0) {
		int before = allocations, good = 1;

		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
			_exit(9);
		for (int round = 0; round < 1000; round++) {
			good &= rtf_put(0, bytes, 1 + round % SIZE) == 1 + round % SIZE;
			good &= rtf_isempty(0) == 0 && rtf_get(0, bytes, sizeof(bytes)) == 1 + round % SIZE;
			good &= rtf_get(0, bytes, 1) == 0 && rtf_isempty(0) == 1;
			good &= rtf_put(0, bytes, sizeof(bytes)) == -ENOSPC;
		}
		syscall(SYS_exit, !good || allocations != before);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
		fprintf(stderr, "skipped: the kernel has no seccomp\n");
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(allocations > 0 && rtf_destroy(0) == 0);
}

int main(int argc, char **argv)
{
	alarm(60);
	if (argc == 2 && strcmp(argv[1], "stands by") == 0)
		return stands_by();
	if (argc == 2 && strcmp(argv[1], "comes and goes") == 0)
		return comes_and_goes();
	if (argc == 2 && strcmp(argv[1], "-n") == 0)
		rtl_without_priorities_np(true);
	puts_and_gets_after_the_first_enter_no_kernel_and_allocate_nothing();
	a_fifo_is_created_once_and_destroyed_once();
	a_put_is_whole_or_nothing_and_a_get_takes_what_is_there();
	a_flush_empties_unless_another_reads();
	the_other_side_reads_and_writes_as_a_device();
	a_pair_is_one_file_for_both_directions();
	a_resize_is_refused_while_another_has_it_open();
	a_fifo_is_made_also_while_a_peer_lets_the_last_one_go();
	handlers_hear_of_each_side();
	threads_of_one_process_take_turns();
	puts("all calls");
	return 0;
}
