// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Each call on offers of channels, checked: ./offer_calls DIRECTORY. */
#define _GNU_SOURCE
#include <asmp_rt.h>
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000LL
#define SOON (120000 * MS)

static char path[200];

struct server {
	struct asmp_offer *offer;
	long given, ended;
};

static void *serves(void *argument)
{
	struct server *server = argument;
	int served;

	while ((served = asmp_offer_serve(server->offer, -1)) == 0)
		server->given++;
	server->ended = served;
	return NULL;
}

static void a_fifo_goes_to_who_receives_it_in_both_directions(void)
{
	struct asmp_fifo *fifo, *peer;
	long long record[8] = { 7 }, seen[8];
	struct server server = { 0 };
	pthread_t thread;

	for (int to_peer = 0; to_peer <= 1; to_peer++) {
		fifo = asmp_fifo_create("a", 4, sizeof(record), 0);
		CHECK(fifo != NULL);
		REFUSED(asmp_fifo_offer(fifo, path, NULL, 0), EINVAL, "take its role first");
		CHECK((to_peer ? asmp_fifo_put(fifo, NULL, 0) : asmp_fifo_get(fifo, NULL, 0)) == 0);
		server.offer = asmp_fifo_offer(fifo, path, NULL, 0);
		CHECK(server.offer != NULL);
		CHECK(pthread_create(&thread, NULL, serves, &server) == 0);
		peer = asmp_fifo_receive(path, -1, sizeof(record), 0, SOON);
		CHECK(peer != NULL);
		if (to_peer) {
			CHECK(asmp_fifo_put(peer, record, sizeof(record)) == -EBUSY);
			CHECK(asmp_fifo_put(fifo, record, sizeof(record)) == 0);
			CHECK(asmp_fifo_get(peer, seen, sizeof(seen)) == sizeof(seen) && seen[0] == 7);
		} else {
			CHECK(asmp_fifo_put(peer, record, sizeof(record)) == 0);
			CHECK(asmp_fifo_get(fifo, seen, sizeof(seen)) == sizeof(seen) && seen[0] == 7);
		}
		CHECK(asmp_fifo_has_peer(fifo) == 1 && asmp_fifo_has_peer(peer) == 1);
		REFUSED(asmp_fifo_receive(path, -1, 3, 0, SOON), EBUSY, "expected records of 3 bytes");
		REFUSED(asmp_fifo_receive(path, -1, 0, 8, SOON), EINVAL, "invalid flags 0x8");
		REFUSED(asmp_record_receive(path, -1, 8, SOON), EBUSY, "of kind 1, expected 2 (Mbuff)");
		asmp_offer_end(server.offer);
		CHECK(pthread_join(thread, NULL) == 0 && server.ended == -ECANCELED);
		CHECK(asmp_offer_serve(server.offer, 0) == -ECANCELED);
		asmp_offer_close(server.offer);
		asmp_fifo_close(peer);
		asmp_fifo_close(fifo);
	}
	CHECK(server.given == 6);
}

static void a_record_is_for_reading_unless_it_says_otherwise(void)
{
	struct asmp_record *record = asmp_record_alloc("r", 8), *peer;
	struct server server = { 0 };
	char seen[8];
	pthread_t thread;

	CHECK(record != NULL && asmp_record_write(record, "1234567", 8) == 0);
	REFUSED(asmp_record_offer(record, path, 2, NULL, 0), EINVAL, "invalid flags 0x2");
	server.offer = asmp_record_offer(record, path, 0, NULL, 0);
	CHECK(server.offer != NULL);
	CHECK(pthread_create(&thread, NULL, serves, &server) == 0);
	peer = asmp_record_receive(path, -1, 8, SOON);
	CHECK(peer != NULL && asmp_record_read(peer, seen, 8) == 1 && strcmp(seen, "1234567") == 0);
	CHECK(asmp_record_write(peer, "7654321", 8) == -EACCES && asmp_record_has_writer(peer) == 1);
	asmp_record_free(peer);
	REFUSED(asmp_record_receive(path, -1, 9, SOON), EBUSY, "holds a record of 8 bytes");
	/* A thread that serves can be cancelled. */
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0 && server.ended == 0);
	asmp_offer_close(server.offer);
	asmp_record_free(record);

	record = asmp_record_alloc("r", 8);
	server.offer = asmp_record_offer(record, path, ASMP_OFFER_WRITE, NULL, 0);
	CHECK(server.offer != NULL);
	CHECK(pthread_create(&thread, NULL, serves, &server) == 0);
	peer = asmp_record_receive(path, -1, 8, SOON);
	CHECK(peer != NULL && asmp_record_write(peer, "7654321", 8) == 0);
	CHECK(asmp_record_read(record, seen, 8) == 1 && strcmp(seen, "7654321") == 0);
	asmp_offer_end(server.offer);
	CHECK(pthread_join(thread, NULL) == 0);
	asmp_offer_close(server.offer);
	asmp_record_free(peer);
	asmp_record_free(record);
}

static void what_cannot_be_is_refused_with_the_reason(void)
{
	struct asmp_fifo *fifo = asmp_fifo_create("a", 4, 8, 0);
	struct asmp_offer *offer;
	struct pollfd waits = { .events = POLLIN };
	const unsigned ids[60] = { 0 };
	char longer[300];

	CHECK(fifo != NULL && asmp_fifo_put(fifo, NULL, 0) == 0);
	REFUSED(asmp_fifo_offer(NULL, path, NULL, 0), EINVAL, "the FIFO is null");
	REFUSED(asmp_record_offer(NULL, path, 0, NULL, 0), EINVAL, "the record is null");
	REFUSED(asmp_fifo_offer(fifo, NULL, NULL, 0), EINVAL, "the path is null");
	REFUSED(asmp_fifo_offer(fifo, path, NULL, 2), EINVAL, "the users are null");
	snprintf(longer, sizeof(longer), "/run/%0200d", 0);
	REFUSED(asmp_fifo_offer(fifo, longer, NULL, 0), ENAMETOOLONG, "at most 107 bytes");
	REFUSED(asmp_fifo_offer(fifo, "/tmp/asmp-offer-calls", NULL, 0), EACCES, "other users");
	REFUSED(asmp_fifo_offer(fifo, "/none/socket", NULL, 0), ENOENT, "/none");
	REFUSED(asmp_fifo_receive(path, -1, 8, 0, 0), ENODEV, "start the program that offers it");
	REFUSED(asmp_fifo_receive(NULL, -1, 8, 0, 0), EINVAL, "the path is null");
	REFUSED(asmp_fifo_receive(path, 1LL << 32, 8, 0, 0), EINVAL, "no such user ID");
	REFUSED(asmp_fifo_receive("/dev/null", -1, 8, 0, 0), ENOTSOCK, "is no socket");
	offer = asmp_fifo_offer(fifo, path, NULL, 0);
	CHECK(offer != NULL);
	REFUSED(asmp_fifo_offer(fifo, path, NULL, 0), EADDRINUSE, "another process listens");
	CHECK(asmp_offer_serve(offer, 0) == -ETIMEDOUT && asmp_offer_serve(offer, MS) == -ETIMEDOUT);
	waits.fd = asmp_offer_fd(offer);
	CHECK(poll(&waits, 1, 0) == 0);
	REFUSED(asmp_fifo_receive(path, -1, 8, 0, MS), ETIMEDOUT, "timed out");
	CHECK(poll(&waits, 1, 0) == 1 && asmp_offer_serve(offer, 0) == -ETIMEDOUT);
	CHECK(asmp_offer_serve(NULL, 0) == -EINVAL && asmp_offer_fd(NULL) == -EINVAL);
	asmp_offer_end(NULL);
	asmp_offer_close(NULL);
	asmp_offer_close(offer);
	REFUSED(asmp_fifo_keep(NULL, NULL, 0, NULL, 0), EINVAL, "the FIFO is null");
	REFUSED(asmp_record_keep(NULL, 0, NULL, 0, NULL, 0), EINVAL, "the record is null");
	REFUSED(asmp_fifo_keep(fifo, NULL, 1, NULL, 0), EINVAL, "the users are null");
	REFUSED(asmp_fifo_keep(fifo, NULL, 0, NULL, 1), EINVAL, "the groups are null");
	REFUSED(asmp_fifo_keep(fifo, ids, 60, ids, 5), E2BIG, "name at most 64");
	CHECK(asmp_kept_renew(NULL) == -EINVAL && asmp_kept_fd(NULL) == -EINVAL);
	asmp_kept_close(NULL);
	if (access("/run/asmpd/channels/register", F_OK) == 0)
		fprintf(stderr, "skipped: asmpd runs here\n");
	else
		REFUSED(asmp_fifo_keep(fifo, ids, 1, ids, 1), ENOTCONN, "asmpd does not listen");
	CHECK(access(path, F_OK) != 0);
	asmp_fifo_close(fifo);
}

static void only_users_that_are_named_get_it(void)
{
	const unsigned users[] = { 65534, 65533 };
	struct asmp_fifo *fifo = asmp_fifo_create("a", 4, 8, 0);
	struct server server = { 0 };
	pthread_t thread;
	int status;

	if (geteuid() != 0) {
		fprintf(stderr, "skipped: another user's process needs root\n");
		asmp_fifo_close(fifo);
		return;
	}
	CHECK(fifo != NULL && asmp_fifo_put(fifo, NULL, 0) == 0);
	server.offer = asmp_fifo_offer(fifo, path, users, 2);
	CHECK(server.offer != NULL);
	CHECK(pthread_create(&thread, NULL, serves, &server) == 0);
	for (unsigned user = 65532; user <= 65534; user++) {
		pid_t child = fork();

		if (child == 0) {
			CHECK(setgid(user) == 0 && setuid(user) == 0);
			if (user == 65532)
				REFUSED(asmp_fifo_receive(path, 0, 8, 0, SOON), EACCES, "is not for user 65532");
			else
				CHECK(asmp_fifo_receive(path, 0, 8, 0, SOON) != NULL);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	asmp_offer_end(server.offer);
	CHECK(pthread_join(thread, NULL) == 0 && server.given == 2);
	asmp_offer_close(server.offer);
	asmp_fifo_close(fifo);
}

int main(int argc, char **argv)
{
	alarm(240);
	CHECK(argc == 2);
	snprintf(path, sizeof(path), "%s/socket", argv[1]);
	a_fifo_goes_to_who_receives_it_in_both_directions();
	a_record_is_for_reading_unless_it_says_otherwise();
	what_cannot_be_is_refused_with_the_reason();
	only_users_that_are_named_get_it();
	puts("all calls");
	return 0;
}
