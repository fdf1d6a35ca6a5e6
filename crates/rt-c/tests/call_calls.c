// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Every call of the call part of libasmp_rt and every value it answers with, its two ends in two
 * processes. Prints "all calls", or what failed first.
 *
 *   call_calls client  calls the server "rust" of the test in Rust, prints the answer
 *   call_calls old     says why there is no client of "old" */
#include <asmp_rt.h>

#include "check.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000LL
/* Longer than anything takes that happens at all. */
#define SOON (20000 * MS)

/* As in src/call/server.rs. */
_Static_assert(sizeof(struct asmp_message) == 64 &&
	sizeof(struct asmp_received) == 88, "as Rust has it");
_Static_assert(offsetof(struct asmp_received, want) == 8 &&
	offsetof(struct asmp_received, client) == 12, "as Rust has it");
_Static_assert(offsetof(struct asmp_received, priority) == 16 &&
	offsetof(struct asmp_received, message) == 24, "as Rust has it");

/* All allocations of the program and the library come by here. */
void *__libc_malloc(size_t size);
static volatile int allocations;

void *malloc(size_t size)
{
	__atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
	return __libc_malloc(size);
}

static struct asmp_message message(uint64_t first)
{
	struct asmp_message message;

	for (int at = 0; at < 8; at++)
		message.words[at] = first + at;
	return message;
}

static int is(const struct asmp_message *found, uint64_t first)
{
	struct asmp_message wanted = message(first);

	return memcmp(found, &wanted, sizeof(wanted)) == 0;
}

/* A child runs `body`, which leaves by exit; it ends with this process. */
static pid_t child(void (*body)(void))
{
	pid_t parent = getpid(), child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(8);
		body();
		exit(0);
	}
	CHECK(child > 0);
	return child;
}

static int ended(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

static struct asmp_client *attached(void)
{
	struct asmp_client *client;

	/* The server may not be there yet; where it never comes, the alarm of main ends the program. */
	while ((client = asmp_call_attach("a", -1)) == NULL && errno == ENODEV)
		usleep(1000);
	CHECK(client != NULL);
	return client;
}

static void what_cannot_be_is_refused_with_the_reason(void)
{
	struct asmp_server *server;
	struct asmp_client *first, *second;

	REFUSED(asmp_call_attach("a", -1), ENODEV, "no channel a");
	REFUSED(asmp_call_serve(NULL, 2, 0), EINVAL, "the name is null");
	REFUSED(asmp_call_serve("a b", 2, 0), EINVAL, "invalid channel name");
	REFUSED(asmp_call_serve("a", 0, 0), EINVAL, "invalid number of clients 0: use 1 to 30");
	REFUSED(asmp_call_serve("a", 31, 0), EINVAL, "number of clients 31");
	REFUSED(asmp_call_serve("a", 2, 4), EINVAL, "invalid flags 0x4");
	server = asmp_call_serve("a", 2, 0);
	CHECK(server != NULL);
	REFUSED(asmp_call_serve("a", 2, 0), EBUSY, "already has a server");
	REFUSED(asmp_call_serve("a", 3, 0), EBUSY, "clients: 2");
	REFUSED(asmp_call_serve("a", 2, ASMP_CALL_DIRECT), EBUSY, "Direct");
	REFUSED(asmp_call_serve("a", 2, ASMP_CALL_INHERIT), EBUSY, "inherit: true");
	REFUSED(asmp_call_attach("a", 2), EINVAL, "has no slot 2");
	first = asmp_call_attach("a", 1);
	CHECK(first != NULL && asmp_call_slot(first) == 1);
	REFUSED(asmp_call_attach("a", 1), EBUSY, "already has a client");
	second = asmp_call_attach("a", -1);
	CHECK(second != NULL && asmp_call_slot(second) == 0);
	REFUSED(asmp_call_attach("a", -1), EAGAIN, "all 2 slots");
	CHECK(asmp_call_has_client(server, 0) == 1 && asmp_call_has_client(server, 7) == 0);
	asmp_client_close(second);
	CHECK(asmp_call_has_client(server, 0) == 0);
	CHECK(asmp_server_close(server) == 0);
	asmp_client_close(first);

	void *other = mbuff_alloc("a", 1);

	CHECK(other != NULL);
	REFUSED(asmp_call_serve("a", 2, 0), EBUSY, "it is of kind 2, expected 3 (Call)");
	REFUSED(asmp_call_attach("a", 0), EBUSY, "it is of kind 2, expected 3 (Call)");
	mbuff_free("a", other);
}

static struct asmp_server *elsewhere;

static void *by_another_thread(void *unused)
{
	struct asmp_message answer = message(0);
	struct asmp_received received;

	CHECK(asmp_call_receive(elsewhere, &received, 0) == -EPERM);
	CHECK(asmp_call_reply(elsewhere, &answer) == -EPERM &&
		asmp_call_notify_client(elsewhere, 0, 1) == -EPERM);
	CHECK(asmp_call_reply_wait(elsewhere, &answer, &received, 0) == -EPERM);
	CHECK(asmp_call_set_ceiling(elsewhere, 0, 1) == -EPERM &&
		asmp_server_set_spins(elsewhere, 1) == -EPERM);
	CHECK(asmp_call_has_client(elsewhere, 0) == -EPERM && asmp_server_close(elsewhere) == -EPERM);
	return unused;
}

static void nothing_at_all_is_refused_and_a_server_is_its_threads(void)
{
	struct asmp_message some = message(0);
	struct asmp_received received;
	struct asmp_client *client;
	pthread_t thread;
	uint64_t bits;

	elsewhere = asmp_call_serve("a", 1, 0);
	client = asmp_call_attach("a", 0);
	CHECK(elsewhere != NULL && client != NULL);
	CHECK(asmp_call_receive(NULL, &received, 0) == -EINVAL &&
		asmp_call_receive(elsewhere, NULL, 0) == -EINVAL);
	CHECK(asmp_call_reply(NULL, &some) == -EINVAL && asmp_call_reply(elsewhere, NULL) == -EINVAL);
	CHECK(asmp_call_reply_wait(elsewhere, NULL, &received, 0) == -EINVAL);
	CHECK(asmp_call_reply_wait(elsewhere, &some, NULL, 0) == -EINVAL);
	CHECK(asmp_call_set_ceiling(NULL, 0, 1) == -EINVAL && asmp_server_set_spins(NULL, 1) == -EINVAL);
	CHECK(asmp_call_notify_client(NULL, 0, 1) == -EINVAL && asmp_call_has_client(NULL, 0) == -EINVAL);
	CHECK(asmp_call(NULL, &some, &some, 0) == -EINVAL && asmp_call(client, NULL, &some, 0) == -EINVAL);
	CHECK(asmp_call(client, &some, NULL, 0) == -EINVAL && asmp_call_send(NULL, &some, 0) == -EINVAL);
	CHECK(asmp_call_send(client, NULL, 0) == -EINVAL && asmp_call_notify(NULL, 1) == -EINVAL);
	CHECK(asmp_call_wait_bits(NULL, &bits, 0) == -EINVAL &&
		asmp_call_wait_bits(client, NULL, 0) == -EINVAL);
	CHECK(asmp_call_set_priority(NULL, 1) == -EINVAL && asmp_client_set_spins(NULL, 1) == -EINVAL);
	CHECK(asmp_call_slot(NULL) == -EINVAL && asmp_server_close(NULL) == 0);
	asmp_client_close(NULL);
	CHECK(pthread_create(&thread, NULL, by_another_thread, NULL) == 0 &&
		pthread_join(thread, NULL) == 0);
	CHECK(asmp_server_close(elsewhere) == 0);
	asmp_client_close(client);
}

#define ROUNDS 1000

static void calls_and_sends(void)
{
	struct asmp_client *client = attached();
	struct asmp_message sent, answer;

	CHECK(asmp_call_set_priority(client, 9) == 0);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		sent = message(round);
		CHECK(asmp_call(client, &sent, &answer, -1) == 0 && is(&answer, round + 1));
		CHECK(asmp_call_send(client, &sent, SOON) == 0);
	}
	asmp_client_close(client);
}

static void calls_are_answered_and_sends_are_taken(unsigned int flags)
{
	struct asmp_server *server = asmp_call_serve("a", 2, flags);
	struct asmp_received received;
	pid_t client = child(calls_and_sends);
	unsigned int believed = flags & ASMP_CALL_DIRECT ? 0 : 5;
	int before;

	CHECK(server != NULL && asmp_call_set_ceiling(server, 0, 5) == 0);
	CHECK(asmp_call_receive(server, &received, -1) == 0);
	before = allocations;
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct asmp_message answer = message(round + 1);

		CHECK(received.bits == 0 && received.want == ASMP_WANT_ANSWER && received.client == 0);
		CHECK(received.priority == believed && is(&received.message, round));
		if (round % 2 == 0) {
			CHECK(asmp_call_reply_wait(server, &answer, &received, SOON) == 0);
		} else {
			CHECK(asmp_call_reply(server, &answer) == 0 && asmp_call_reply(server, &answer) == -ESRCH);
			CHECK(asmp_call_receive(server, &received, SOON) == 0);
		}
		CHECK(received.want == ASMP_WANT_NOTHING && is(&received.message, round));
		CHECK(asmp_call_reply_wait(server, &answer, &received, -1) == -ESRCH);
		if (round + 1 < ROUNDS)
			CHECK(asmp_call_receive(server, &received, SOON) == 0);
	}
	CHECK(allocations == before && ended(client) == 0);
	CHECK(asmp_server_close(server) == 0);
}

/* In memory that both processes have. */
static volatile int *gave_up;

static void gives_up(void)
{
	struct asmp_client *client = attached();
	struct asmp_message sent = message(1), answer = message(7);

	CHECK(asmp_call(client, &sent, &answer, 200 * MS) == -EINPROGRESS && is(&answer, 7));
	*gave_up = 1;
	/* Its late answer reaches no client. */
	sent = message(2);
	CHECK(asmp_call(client, &sent, &answer, SOON) == 0 && is(&answer, 20));
	sent = message(3);
	CHECK(asmp_call(client, &sent, &answer, SOON) == -ENODATA);
	asmp_client_close(client);
}

static void a_timeout_says_whether_the_request_was_taken(void)
{
	struct asmp_server *server = asmp_call_serve("a", 2, 0);
	struct asmp_client *client = asmp_call_attach("a", 1);
	struct asmp_message some = message(5), answer;
	struct asmp_received received;
	pid_t other;

	gave_up = mbuff_alloc("gave_up", sizeof(*gave_up));
	CHECK(gave_up != NULL && server != NULL && client != NULL);
	for (int timeout = 0; timeout < 2; timeout++) {
		CHECK(asmp_call_receive(server, &received, timeout * MS) == -ETIMEDOUT);
		CHECK(asmp_call(client, &some, &answer, timeout * MS) == -ETIMEDOUT);
		CHECK(asmp_call_send(client, &some, timeout * MS) == -ETIMEDOUT);
	}
	CHECK(asmp_call_receive(server, &received, 0) == -ETIMEDOUT);
	other = child(gives_up);
	CHECK(asmp_call_receive(server, &received, SOON) == 0 && is(&received.message, 1));
	while (!*gave_up)
		usleep(1000);
	CHECK(asmp_call_reply(server, &some) == 0 && asmp_call_receive(server, &received, SOON) == 0);
	CHECK(is(&received.message, 2) && asmp_call_has_client(server, 0) == 1);
	answer = message(20);
	CHECK(asmp_call_reply_wait(server, &answer, &received, SOON) == 0 && is(&received.message, 3));
	CHECK(asmp_call_receive(server, &received, 0) == -ETIMEDOUT);
	CHECK(ended(other) == 0);
	mbuff_free("gave_up", (void *)gave_up);
	asmp_client_close(client);
	CHECK(asmp_server_close(server) == 0);
}

static void waits_for_bits(void)
{
	struct asmp_client *client = attached();
	uint64_t bits = 0, all = 0;
	int result;

	CHECK(asmp_call_notify(client, 1) == 0 && asmp_call_notify(client, 4) == 0);
	while (all != 0x8000000000000003) {
		CHECK(asmp_call_wait_bits(client, &bits, SOON) == 0 && bits != 0);
		all |= bits;
	}
	CHECK(asmp_call_wait_bits(client, &bits, 0) == -ETIMEDOUT);
	CHECK(asmp_call_wait_bits(client, &bits, MS) == -ETIMEDOUT);
	CHECK(asmp_call_notify(client, 8) == 0);
	/* The server goes, while this waits or before. */
	result = asmp_call_wait_bits(client, &bits, -1);
	CHECK(result == -EPIPE || result == -ENOTCONN);
	CHECK(asmp_call_wait_bits(client, &bits, -1) == -ENOTCONN);
	asmp_client_close(client);
}

static void bits_come_in_both_directions(void)
{
	struct asmp_server *server = asmp_call_serve("a", 1, 0);
	struct asmp_received received;
	uint64_t all = 0;
	pid_t client;

	CHECK(server != NULL);
	client = child(waits_for_bits);
	while (all != 5) {
		CHECK(asmp_call_receive(server, &received, SOON) == 0 && received.want == ASMP_WANT_NONE);
		all |= received.bits;
	}
	CHECK(asmp_call_notify_client(server, 0, 1) == 0 && asmp_call_notify_client(server, 9, 1) == 0);
	CHECK(asmp_call_notify_client(server, 0, 0x8000000000000002) == 0);
	CHECK(asmp_call_receive(server, &received, SOON) == 0 && received.bits == 8);
	CHECK(asmp_server_close(server) == 0 && ended(client) == 0);
}

static void calls_for_ever(void)
{
	struct asmp_client *client = attached();
	struct asmp_message sent = message(0), answer;

	while (1)
		CHECK(asmp_call(client, &sent, &answer, -1) == 0);
}

static void a_client_killed_in_a_call_leaves_its_slot_and_the_server_goes_on(unsigned int flags)
{
	struct asmp_server *server = asmp_call_serve("a", 1, flags);
	struct asmp_message answer = message(1);
	struct asmp_received received;

	CHECK(server != NULL);
	for (int round = 0; round < 10; round++) {
		pid_t client = child(calls_for_ever);

		for (int call = 0; call < 10 + round; call++) {
			/* What the client before has left may come first. */
			CHECK(asmp_call_receive(server, &received, SOON) == 0 && is(&received.message, 0));
			if (round % 2 == 0 || call + 1 < 10 + round)
				CHECK(asmp_call_reply(server, &answer) == 0);
		}
		/* In odd rounds while it waits for its answer. */
		CHECK(asmp_call_has_client(server, 0) == 1 && kill(client, SIGKILL) == 0);
		CHECK(ended(client) == SIGKILL && asmp_call_has_client(server, 0) == 0);
	}
	CHECK(asmp_server_close(server) == 0);
}

static unsigned int their_flags;

static void serves_for_ever(void)
{
	struct asmp_server *server = asmp_call_serve("a", 3, their_flags);
	struct asmp_received received;

	CHECK(server != NULL && asmp_call_receive(server, &received, -1) == 0);
	while (1)
		CHECK(asmp_call_reply_wait(server, &received.message, &received, -1) == 0);
}

static void a_server_killed_in_a_call_is_an_error_and_the_next_one_serves_the_same_client(
	unsigned int flags)
{
	struct asmp_client *client = NULL;
	struct asmp_message sent = message(3), answer;
	int result, before;
	uint64_t bits;

	their_flags = flags;
	for (int round = 0; round < 6; round++) {
		pid_t server = child(serves_for_ever), killer;

		if (client == NULL)
			client = attached();
		/* It may not have come yet, and the last one's word still stand. */
		while ((result = asmp_call(client, &sent, &answer, SOON)) == -ENOTCONN || result == -EPIPE)
			usleep(1000);
		CHECK(result == 0 && is(&answer, 3));
		killer = fork();
		if (killer == 0) {
			usleep(round * 777 % 5000);
			_exit(kill(server, SIGKILL));
		}
		/* No timeout: it must end by itself. */
		before = allocations;
		if (round % 3 == 2)
			result = asmp_call_wait_bits(client, &bits, -1);
		else
			while ((result = asmp_call(client, &sent, &answer, -1)) == 0)
				CHECK(is(&answer, 3));
		CHECK(allocations == before && result == -EPIPE);
		CHECK(ended(server) == SIGKILL && ended(killer) == 0);
	}
	/* Until the next server comes, the last server's word stands; then a call says so by itself. */
	CHECK(asmp_call(client, &sent, &answer, -1) == -EPIPE);
	asmp_client_close(client);
}

/* A child whom the kernel kills at any system call but read, write and exit. */
static void calls_without_the_kernel(void)
{
	struct asmp_client *client = attached();
	struct asmp_message sent, answer;
	int good = 1;

	/* More than a minute. */
	CHECK(asmp_client_set_spins(client, 0xffffffff) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
		_exit(9);
	for (int round = 0; round < ROUNDS; round++) {
		sent = message(round);
		good &= asmp_call(client, &sent, &answer, -1) == 0 && is(&answer, round);
	}
	syscall(SYS_exit, !good);
}

static void a_call_to_a_server_that_is_awake_enters_no_kernel(void)
{
	struct asmp_server *server = asmp_call_serve("a", 1, 0);
	struct asmp_received received;
	int status, calls = 0;
	pid_t client;

	CHECK(server != NULL && asmp_server_set_spins(server, 0xffffffff) == 0);
	client = child(calls_without_the_kernel);
	while (waitpid(client, &status, WNOHANG) == 0) {
		if (asmp_call_has_client(server, 0) == 0 || calls == ROUNDS) {
			usleep(1000);
			continue;
		}
		CHECK(asmp_call_receive(server, &received, -1) == 0 &&
			asmp_call_reply(server, &received.message) == 0);
		calls++;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
		fprintf(stderr, "skipped: the kernel has no seccomp\n");
	else
		CHECK(status == 0 && calls == ROUNDS);
	CHECK(asmp_server_close(server) == 0);
}

int main(int argc, char **argv)
{
	static const unsigned int flags[] = { 0, ASMP_CALL_DIRECT, ASMP_CALL_INHERIT };

	alarm(120);
	if (argc == 2 && strcmp(argv[1], "client") == 0) {
		struct asmp_client *client = asmp_call_attach("rust", 1);
		struct asmp_message some = message(0xffffffffffffff00);

		CHECK(client != NULL && asmp_call_set_priority(client, 3) == 0);
		CHECK(asmp_call(client, &some, &some, SOON) == 0);
		for (int at = 0; at < 8; at++)
			printf("%llx ", (unsigned long long)some.words[at]);
		puts("");
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "old") == 0) {
		CHECK(asmp_call_attach("old", -1) == NULL);
		printf("%d %s\n", errno == EBUSY, asmp_why());
		return 0;
	}
	what_cannot_be_is_refused_with_the_reason();
	nothing_at_all_is_refused_and_a_server_is_its_threads();
	for (int at = 0; at < 3; at++)
		calls_are_answered_and_sends_are_taken(flags[at]);
	a_timeout_says_whether_the_request_was_taken();
	bits_come_in_both_directions();
	for (int at = 0; at < 3; at++) {
		a_client_killed_in_a_call_leaves_its_slot_and_the_server_goes_on(flags[at]);
		a_server_killed_in_a_call_is_an_error_and_the_next_one_serves_the_same_client(flags[at]);
	}
	a_call_to_a_server_that_is_awake_enters_no_kernel();
	CHECK(allocations > 0);
	puts("all calls");
	return 0;
}
