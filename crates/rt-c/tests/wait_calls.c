// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Every wait by its descriptor, and how another thread, a signal handler and pthread_cancel end it.
 * Prints "all calls", or what failed first. */
#include <asmp_rt.h>

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000LL
#define SOON (20000 * MS)

static struct asmp_fifo *reader, *writer;
static struct asmp_client *client;
static struct asmp_server *server;
static int survived;

static int readable(int fd, int within_ms)
{
	struct pollfd asked = { .fd = fd, .events = POLLIN };

	return poll(&asked, 1, within_ms) == 1 && asked.revents == POLLIN;
}

static void opens(void)
{
	reader = asmp_fifo_create("a", 64, 0, ASMP_FIFO_WAKE);
	writer = asmp_fifo_attach("a", 0, ASMP_FIFO_WAKE);
	CHECK(reader != NULL && writer != NULL && asmp_fifo_get(reader, NULL, 0) == 0);
	CHECK(asmp_fifo_put(writer, NULL, 0) == 0);
}

static void closes(void)
{
	asmp_fifo_close(reader);
	asmp_fifo_close(writer);
}

static void each_end_has_a_descriptor_that_says_when_its_wait_would_return(void)
{
	struct asmp_fifo *neither = asmp_fifo_create("b", 64, 0, 0);
	struct asmp_received received;
	char bytes[64] = "1";
	uint64_t bits;
	int fd;

	CHECK(asmp_fifo_fd(NULL) == -EINVAL && asmp_fifo_fd(neither) == -EBADF);
	asmp_fifo_close(neither);
	opens();
	fd = asmp_fifo_fd(reader);
	CHECK(fd >= 0 && asmp_fifo_fd(reader) == fd && !readable(fd, 20));
	CHECK(asmp_fifo_put(writer, bytes, 1) == 0 && readable(fd, 20000));
	CHECK(asmp_fifo_get(reader, bytes, 64) == 1 && bytes[0] == '1');
	while (readable(fd, 20))
		CHECK(asmp_fifo_get(reader, bytes, 64) == 0);
	CHECK(asmp_fifo_wait_get(reader, 0) == -ETIMEDOUT);
	fd = asmp_fifo_fd(writer);
	CHECK(readable(fd, 20000));
	while (asmp_fifo_put(writer, bytes, 8) == 0)
		;
	while (readable(fd, 20))
		CHECK(asmp_fifo_put(writer, bytes, 8) == -ENOSPC);
	CHECK(asmp_fifo_get(reader, bytes, 64) == 8 && readable(fd, 20000));
	while (asmp_fifo_put(writer, bytes, 8) == 0)
		;
	asmp_fifo_close(reader);
	CHECK(readable(fd, 20000) && asmp_fifo_wait_put(writer, 8, 0) == -EPIPE);
	asmp_fifo_close(writer);

	server = asmp_call_serve("c", 1, 0);
	client = asmp_call_attach("c", -1);
	CHECK(asmp_server_fd(NULL) == -EINVAL && asmp_client_fd(NULL) == -EINVAL);
	fd = asmp_server_fd(server);
	CHECK(fd >= 0 && !readable(fd, 20) && asmp_call_notify(client, 1) == 0 && readable(fd, 20000));
	CHECK(asmp_call_receive(server, &received, 0) == 0 && received.bits == 1);
	while (readable(fd, 20))
		CHECK(asmp_call_receive(server, &received, 0) == -ETIMEDOUT);
	fd = asmp_client_fd(client);
	CHECK(fd >= 0 && !readable(fd, 20) && asmp_call_notify_client(server, 0, 4) == 0);
	CHECK(readable(fd, 20000) && asmp_call_wait_bits(client, &bits, 0) == 0 && bits == 4);
	while (readable(fd, 20))
		CHECK(asmp_call_wait_bits(client, &bits, 0) == -ETIMEDOUT);
	asmp_server_close(server);
	CHECK(readable(fd, 20000) && asmp_call_wait_bits(client, &bits, 0) == -ENOTCONN);
	asmp_client_close(client);
}

static void a_child_that_was_forked_closes_an_end_whose_thread_it_does_not_have(void)
{
	char byte;
	int status, fd;
	pid_t child;

	opens();
	fd = asmp_fifo_fd(reader);
	child = fork();
	if (child == 0) {
		alarm(20);
		closes();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0 && !readable(fd, 20));
	CHECK(asmp_fifo_put(writer, "1", 1) == 0 && readable(fd, 20000));
	CHECK(asmp_fifo_get(reader, &byte, 1) == 1);
	closes();
}

static void *cancelled_before_it_gets(void *fd)
{
	char byte;

	CHECK(readable(*(int *)fd, 20000) && asmp_fifo_get(reader, &byte, 1) == 1);
	pthread_cancel(pthread_self());
	/* Lowers the descriptor, which is no place to be cancelled. */
	CHECK(asmp_fifo_get(reader, &byte, 1) == 0);
	survived = 1;
	pthread_testcancel();
	survived = 2;
	return NULL;
}

static void a_get_that_clears_a_descriptor_is_no_cancellation_point(void)
{
	pthread_t thread;
	void *result;
	int fd;

	opens();
	fd = asmp_fifo_fd(reader);
	CHECK(asmp_fifo_put(writer, "1", 1) == 0);
	CHECK(pthread_create(&thread, NULL, cancelled_before_it_gets, &fd) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && survived == 1);
	closes();
}

static void many_short_waits_learn_that_the_writer_was_killed(void)
{
	static const long long slices[] = { 0, MS, 50 * MS };
	struct timespec begin, now;
	char byte;
	pid_t child;
	int error;

	for (int at = 0; at < 3; at++) {
		reader = asmp_fifo_create("a", 64, 0, 0);
		child = fork();
		if (child == 0) {
			writer = asmp_fifo_attach("a", 0, 0);
			asmp_fifo_put(writer, "1", 1);
			pause();
		}
		while (asmp_fifo_wait_get(reader, SOON) != 0)
			;
		CHECK(asmp_fifo_get(reader, &byte, 1) == 1);
		kill(child, SIGKILL);
		CHECK(waitpid(child, NULL, 0) == child);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		do {
			error = asmp_fifo_wait_get(reader, slices[at]);
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while (error == -ETIMEDOUT && now.tv_sec - begin.tv_sec < 20);
		CHECK(error == -EPIPE);
		asmp_fifo_close(reader);
	}
}

static struct asmp_message message;

/* Each waits without limit and gives the answer back as its value. */
static void *waits_get(void *unused)
{
	return (void *)(long)asmp_fifo_wait_get(reader, -1);
}

static void *waits_put(void *unused)
{
	return (void *)(long)asmp_fifo_wait_put(writer, 64, -1);
}

static void *calls(void *unused)
{
	return (void *)(long)asmp_call(client, &message, &message, -1);
}

static void *waits_bits(void *unused)
{
	uint64_t bits;

	return (void *)(long)asmp_call_wait_bits(client, &bits, -1);
}

static void *sends(void *unused)
{
	return (void *)(long)asmp_call_send(client, &message, -1);
}

/* A server is not closed while another thread cancels it. */
static int may_close;

static void *closes_when_told(struct asmp_server *own, long answer)
{
	while (!__atomic_load_n(&may_close, __ATOMIC_SEQ_CST))
		usleep(1000);
	asmp_server_close(own);
	return (void *)answer;
}

static void *receives(void *unused)
{
	struct asmp_received received;
	struct asmp_server *own = asmp_call_serve("d", 1, 0);

	__atomic_store_n(&server, own, __ATOMIC_SEQ_CST);
	return closes_when_told(own, asmp_call_receive(own, &received, -1));
}

static void *replies_and_waits(void *name)
{
	struct asmp_received received;
	struct asmp_server *own = asmp_call_serve(name, 1, 0);

	__atomic_store_n(&server, own, __ATOMIC_SEQ_CST);
	CHECK(asmp_call_receive(own, &received, SOON) == 0);
	received.message.words[0]++;
	return closes_when_told(own, asmp_call_reply_wait(own, &received.message, &received, -1));
}

static struct asmp_server *serves(void)
{
	struct asmp_server *own;

	while ((own = __atomic_load_n(&server, __ATOMIC_SEQ_CST)) == NULL)
		usleep(1000);
	return own;
}

static void another_thread_ends_each_wait_before_it_or_within_it(void)
{
	pthread_t thread;
	void *answer;
	char bytes[64] = "";

	CHECK(asmp_fifo_cancel(NULL) == -EINVAL && asmp_fifo_resume(NULL) == -EINVAL);
	CHECK(asmp_client_cancel(NULL) == -EINVAL && asmp_client_resume(NULL) == -EINVAL);
	CHECK(asmp_server_cancel(NULL) == -EINVAL && asmp_server_resume(NULL) == -EINVAL);
	for (int within_us = 0; within_us < 60000; within_us += 20000) {
		/* Even before it has a role. */
		reader = asmp_fifo_create("a", 64, 0, ASMP_FIFO_WAKE);
		CHECK(pthread_create(&thread, NULL, waits_get, NULL) == 0);
		usleep(within_us);
		/* Without a writer it ends with that, after 100 ms. */
		CHECK(asmp_fifo_cancel(reader) == 0 && pthread_join(thread, &answer) == 0);
		CHECK((long)answer == -ECANCELED || (long)answer == -EPIPE);
		CHECK(asmp_fifo_wait_get(reader, 0) == -ECANCELED && asmp_fifo_resume(reader) == 0);
		writer = asmp_fifo_attach("a", 0, ASMP_FIFO_WAKE);
		while (asmp_fifo_put(writer, bytes, 8) == 0)
			;
		CHECK(asmp_fifo_wait_get(reader, -1) == 0);
		CHECK(pthread_create(&thread, NULL, waits_put, NULL) == 0);
		usleep(within_us);
		CHECK(asmp_fifo_cancel(writer) == 0 && pthread_join(thread, &answer) == 0);
		CHECK((long)answer == -ECANCELED && asmp_fifo_resume(writer) == 0);
		closes();

		server = asmp_call_serve("c", 1, 0);
		client = asmp_call_attach("c", -1);
		CHECK(pthread_create(&thread, NULL, calls, NULL) == 0);
		usleep(within_us);
		CHECK(asmp_client_cancel(client) == 0 && pthread_join(thread, &answer) == 0);
		CHECK((long)answer == -ECANCELED && asmp_client_resume(client) == 0);
		CHECK(pthread_create(&thread, NULL, waits_bits, NULL) == 0);
		usleep(within_us);
		CHECK(asmp_client_cancel(client) == 0 && pthread_join(thread, &answer) == 0);
		CHECK((long)answer == -ECANCELED);
		CHECK(asmp_server_close(server) == 0);
		asmp_client_close(client);
		server = NULL;
		may_close = 0;
		CHECK(pthread_create(&thread, NULL, receives, NULL) == 0);
		CHECK(asmp_server_cancel(serves()) == 0);
		__atomic_store_n(&may_close, 1, __ATOMIC_SEQ_CST);
		CHECK(pthread_join(thread, &answer) == 0 && (long)answer == -ECANCELED);
	}
}

static void another_thread_ends_a_send_that_no_server_takes_and_withdraws_it(void)
{
	struct asmp_received received;
	pthread_t thread;
	void *answer;

	server = asmp_call_serve("c", 1, 0);
	client = asmp_call_attach("c", -1);
	for (int within_us = 0; within_us < 60000; within_us += 20000) {
		message.words[0] = 1;
		CHECK(pthread_create(&thread, NULL, sends, NULL) == 0);
		usleep(within_us);
		CHECK(asmp_client_cancel(client) == 0 && pthread_join(thread, &answer) == 0);
		CHECK((long)answer == -ECANCELED);
		CHECK(asmp_call_send(client, &message, -1) == -ECANCELED);
		CHECK(asmp_call_receive(server, &received, 0) == -ETIMEDOUT);
		CHECK(asmp_client_resume(client) == 0);
		message.words[0] = 2;
		CHECK(pthread_create(&thread, NULL, sends, NULL) == 0);
		CHECK(asmp_call_receive(server, &received, SOON) == 0);
		CHECK(received.want == ASMP_WANT_NOTHING && received.message.words[0] == 2);
		CHECK(pthread_join(thread, &answer) == 0 && (long)answer == 0);
	}
	CHECK(asmp_server_close(server) == 0);
	asmp_client_close(client);
}

static void another_thread_ends_a_reply_that_waits_after_the_answer_was_given(void)
{
	pthread_t thread;
	void *answer;

	for (int within_us = 0; within_us < 60000; within_us += 20000) {
		server = NULL;
		may_close = 0;
		CHECK(pthread_create(&thread, NULL, replies_and_waits, "d") == 0 && serves() != NULL);
		client = asmp_call_attach("d", -1);
		message.words[0] = 3;
		CHECK(asmp_call(client, &message, &message, SOON) == 0 && message.words[0] == 4);
		usleep(within_us);
		CHECK(asmp_server_cancel(server) == 0);
		__atomic_store_n(&may_close, 1, __ATOMIC_SEQ_CST);
		CHECK(pthread_join(thread, &answer) == 0 && (long)answer == -ECANCELED);
		asmp_client_close(client);
	}
}

static void cancels(int signal)
{
	asmp_fifo_cancel(reader);
}

static void a_signal_handler_ends_the_wait_that_it_interrupts(void)
{
	timer_t timer;
	struct itimerspec once = { .it_value.tv_nsec = 50 * MS };

	opens();
	signal(SIGALRM, cancels);
	CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	CHECK(timer_settime(timer, 0, &once, NULL) == 0);
	CHECK(asmp_fifo_wait_get(reader, -1) == -ECANCELED);
	CHECK(timer_delete(timer) == 0);
	signal(SIGALRM, SIG_DFL);
	closes();
}

/* All but a call, which has no moment in which nothing is half done. */
static void pthread_cancel_ends_a_wait_and_leaves_the_channel_whole(void)
{
	static void *(*const waits[])(void *) = { waits_get, waits_put, waits_bits };
	char bytes[64] = "";
	pthread_t thread;
	void *answer;

	for (int at = 0; at < 3; at++) {
		for (int within_us = 0; within_us < 200000; within_us += 150000) {
			opens();
			server = asmp_call_serve("c", 1, 0);
			client = asmp_call_attach("c", -1);
			while (waits[at] == waits_put && asmp_fifo_put(writer, bytes, 8) == 0)
				;
			CHECK(pthread_create(&thread, NULL, waits[at], NULL) == 0);
			usleep(within_us);
			CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &answer) == 0);
			CHECK(answer == PTHREAD_CANCELED);
			while (asmp_fifo_get(reader, bytes, 64) > 0)
				;
			CHECK(asmp_fifo_put(writer, "1", 1) == 0 && asmp_fifo_wait_get(reader, -1) == 0);
			CHECK(asmp_fifo_get(reader, bytes, 64) == 1 && bytes[0] == '1');
			asmp_client_close(client);
			CHECK(asmp_server_close(server) == 0);
			closes();
		}
	}
	server = NULL;
	CHECK(pthread_create(&thread, NULL, receives, NULL) == 0 && serves() != NULL);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &answer) == 0);
	CHECK(answer == PTHREAD_CANCELED);
	/* Not "d", whose server went with its thread. */
	server = NULL;
	CHECK(pthread_create(&thread, NULL, replies_and_waits, "e") == 0 && serves() != NULL);
	client = asmp_call_attach("e", -1);
	message.words[0] = 5;
	CHECK(asmp_call(client, &message, &message, SOON) == 0 && message.words[0] == 6);
	usleep(150000);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &answer) == 0);
	CHECK(answer == PTHREAD_CANCELED);
	asmp_client_close(client);
}

static long ended_with;

static void *calls_and_ends(void *unused)
{
	__atomic_store_n(&ended_with, (long)calls(NULL), __ATOMIC_SEQ_CST);
	pthread_testcancel();
	return NULL;
}

static void *sends_and_ends(void *unused)
{
	__atomic_store_n(&ended_with, (long)sends(NULL), __ATOMIC_SEQ_CST);
	pthread_testcancel();
	return NULL;
}

static void a_thread_that_is_cancelled_in_a_call_or_a_send_ends_after_it(void)
{
	static void *(*const ends[])(void *) = { calls_and_ends, sends_and_ends };
	pthread_t thread;
	void *answer;

	for (int at = 0; at < 2; at++) {
		server = asmp_call_serve("c", 1, 0);
		client = asmp_call_attach("c", -1);
		ended_with = 0;
		CHECK(pthread_create(&thread, NULL, ends[at], NULL) == 0);
		usleep(50000);
		/* Long enough for a look after a slice of 100 ms. */
		CHECK(pthread_cancel(thread) == 0 && usleep(250000) == 0);
		CHECK(__atomic_load_n(&ended_with, __ATOMIC_SEQ_CST) == 0);
		CHECK(asmp_client_cancel(client) == 0 && pthread_join(thread, &answer) == 0);
		CHECK(answer == PTHREAD_CANCELED && ended_with == -ECANCELED);
		CHECK(asmp_server_close(server) == 0);
		asmp_client_close(client);
	}
}

static struct rtf_file *file;

static void *reads(void *unused)
{
	char byte;

	return (void *)(long)rtf_read_np(file, &byte, 1);
}

/* More than there is room for. */
static void *writes(void *unused)
{
	static char bytes[65536];

	return (void *)(long)rtf_write_np(file, bytes, sizeof(bytes));
}

static void pthread_cancel_ends_a_read_and_a_write_of_the_time_sharing_side(void)
{
	char bytes[64] = "";
	pthread_t thread;
	void *answer;

	for (int within_us = 0; within_us < 200000; within_us += 150000) {
		CHECK(rtf_create(0, 64) == 0 && rtf_open_np(0, O_RDONLY, &file) == 0);
		CHECK(pthread_create(&thread, NULL, reads, NULL) == 0);
		usleep(within_us);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &answer) == 0);
		CHECK(answer == PTHREAD_CANCELED);
		CHECK(rtf_put(0, "1", 1) == 1 && rtf_read_np(file, bytes, 64) == 1 && bytes[0] == '1');
		rtf_close_np(file);
		CHECK(rtf_destroy(0) == 0);
		CHECK(rtf_create(1, 64) == 0 && rtf_open_np(1, O_WRONLY, &file) == 0);
		CHECK(pthread_create(&thread, NULL, writes, NULL) == 0);
		usleep(within_us);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &answer) == 0);
		CHECK(answer == PTHREAD_CANCELED);
		while (rtf_get(1, bytes, 64) > 0)
			;
		CHECK(rtf_write_np(file, "2", 1) == 1 && rtf_get(1, bytes, 64) == 1 && bytes[0] == '2');
		rtf_close_np(file);
		CHECK(rtf_destroy(1) == 0);
	}
}

int main(void)
{
	alarm(120);
	each_end_has_a_descriptor_that_says_when_its_wait_would_return();
	a_child_that_was_forked_closes_an_end_whose_thread_it_does_not_have();
	many_short_waits_learn_that_the_writer_was_killed();
	another_thread_ends_each_wait_before_it_or_within_it();
	another_thread_ends_a_send_that_no_server_takes_and_withdraws_it();
	another_thread_ends_a_reply_that_waits_after_the_answer_was_given();
	a_signal_handler_ends_the_wait_that_it_interrupts();
	a_get_that_clears_a_descriptor_is_no_cancellation_point();
	pthread_cancel_ends_a_wait_and_leaves_the_channel_whole();
	a_thread_that_is_cancelled_in_a_call_or_a_send_ends_after_it();
	pthread_cancel_ends_a_read_and_a_write_of_the_time_sharing_side();
	puts("all calls");
	return 0;
}
