// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A real-time program with file capabilities, and one without rights, by the same source:
 *
 *   capable offers DIRECTORY USER   samples to the user, commands and a record of the user's
 *   capable receives DIRECTORY OWNER */
#define _GNU_SOURCE
#include <asmp_rt.h>
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SOON 120000000000LL

static char path[3][200];

static void *serves(void *offer)
{
	while (asmp_offer_serve(offer, -1) == 0)
		;
	return NULL;
}

static void serve(struct asmp_offer *offer)
{
	pthread_t thread;

	CHECK(offer != NULL);
	CHECK(pthread_create(&thread, NULL, serves, offer) == 0);
}

static int offers(unsigned user)
{
	struct sched_param priority = { .sched_priority = 1 };
	struct asmp_fifo *samples, *commands;
	struct asmp_record *state;
	long long number;

	if (prctl(PR_GET_DUMPABLE) == 1 || getauxval(AT_SECURE) == 0) {
		puts("no capability");
		return 0;
	}
	CHECK((samples = asmp_fifo_create("samples", 16, sizeof(number), 0)) != NULL);
	CHECK((commands = asmp_fifo_create("commands", 16, sizeof(number), 0)) != NULL);
	CHECK((state = asmp_record_alloc("state", sizeof(number))) != NULL);
	/* Each end has its role before it is offered. */
	CHECK(asmp_fifo_put(samples, NULL, 0) == 0 && asmp_fifo_get(commands, NULL, 0) == 0);
	serve(asmp_fifo_offer(samples, path[0], &user, 1));
	serve(asmp_fifo_offer(commands, path[1], &user, 1));
	serve(asmp_record_offer(state, path[2], 0, &user, 1));
	CHECK(sched_setscheduler(0, SCHED_FIFO, &priority) == 0);
	puts("offers");
	fflush(stdout);
	/* A wait without a peer ends: there is none yet. */
	while (asmp_fifo_has_peer(commands) != 1)
		usleep(1000);
	while (asmp_fifo_wait_get(commands, SOON) == 0) {
		CHECK(asmp_fifo_get(commands, &number, sizeof(number)) == sizeof(number));
		CHECK(asmp_record_write(state, &number, sizeof(number)) == 0);
		number *= 2;
		CHECK(asmp_fifo_put(samples, &number, sizeof(number)) == 0);
	}
	puts("the peer has gone");
	return 0;
}

static int receives(unsigned owner)
{
	struct asmp_fifo *samples, *commands;
	struct asmp_record *state;
	long long answer, seen;

	samples = asmp_fifo_receive(path[0], owner, sizeof(answer), 0, SOON);
	commands = asmp_fifo_receive(path[1], owner, sizeof(answer), 0, SOON);
	state = asmp_record_receive(path[2], owner, sizeof(answer), SOON);
	CHECK(samples != NULL && commands != NULL && state != NULL);
	for (long long number = 1; number <= 100; number++) {
		CHECK(asmp_fifo_put(commands, &number, sizeof(number)) == 0);
		CHECK(asmp_fifo_wait_get(samples, SOON) == 0);
		CHECK(asmp_fifo_get(samples, &answer, sizeof(answer)) == sizeof(answer));
		CHECK(answer == 2 * number);
		CHECK(asmp_record_read(state, &seen, sizeof(seen)) > 0 && seen == number);
	}
	CHECK(asmp_record_write(state, &seen, sizeof(seen)) == -EACCES);
	puts("they met");
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "samples", "commands", "state" };

	alarm(240);
	CHECK(argc == 4);
	for (int at = 0; at < 3; at++)
		snprintf(path[at], sizeof(path[at]), "%s/%s", argv[2], names[at]);
	if (strcmp(argv[1], "offers") == 0)
		return offers(strtoul(argv[3], NULL, 10));
	return receives(strtoul(argv[3], NULL, 10));
}
