// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Samples from a periodic loop to an ordinary program through a FIFO by its name: asmp_rt.h alone,
 * nothing of RTLinux.
 *
 *   samples write 1000     makes the FIFO, waits for a reader and puts a sample in every
 *                          millisecond
 *   samples read           prints what comes, until the writer ends or SIGINT */
#include <asmp_rt.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS 1000000LL

/* The same in both programs: no pointers, no padding. */
struct sample {
	uint64_t number;
	int64_t late_ns;
};

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static int refused(const char *what)
{
	/* The line says what to do. */
	fprintf(stderr, "%s: %s\n", what, asmp_why());
	return 1;
}

static int writes(uint64_t count)
{
	struct asmp_fifo *fifo = asmp_fifo_create("samples", 256, sizeof(struct sample),
		ASMP_FIFO_DROP_OLDEST);
	struct sample sample = { 0, 0 };
	struct timespec at;
	hrtime_t next;

	if (fifo == NULL)
		return refused("create");
	/* The role is taken up here, so that no put below enters the kernel. */
	if (asmp_fifo_put(fifo, NULL, 0) != 0)
		return 1;
	puts("ready");
	fflush(stdout);
	while (!stopped && asmp_fifo_has_peer(fifo) == 0)
		usleep(1000);
	next = gethrtime();
	for (; !stopped && sample.number < count; sample.number++) {
		next += MS;
		at.tv_sec = next / (1000 * MS);
		at.tv_nsec = next % (1000 * MS);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		sample.late_ns = gethrtime() - next;
		/* Never waits: what a late reader has no room for any more are the oldest samples. */
		if (asmp_fifo_put(fifo, &sample, sizeof(sample)) != 0)
			return 1;
	}
	printf("%" PRIu64 " put, %llu dropped\n", sample.number, asmp_fifo_dropped(fifo));
	/* What is in it the reader still gets. */
	asmp_fifo_close(fifo);
	return 0;
}

static int reads(void)
{
	struct asmp_fifo *fifo = asmp_fifo_attach("samples", sizeof(struct sample), 0);
	struct sample sample;
	ptrdiff_t got = 0;
	int waited = 0;

	if (fifo == NULL)
		return refused("attach");
	/* No signal ends a wait, so in steps; of more than 100 ms, in which it finds out that the writer
	 * has gone. */
	while (!stopped && (waited = asmp_fifo_wait_get(fifo, 200 * MS)) != -EPIPE) {
		if (waited != 0 && waited != -ETIMEDOUT)
			break;
		while ((got = asmp_fifo_get(fifo, &sample, sizeof(sample))) == sizeof(sample))
			printf("%" PRIu64 " %" PRId64 " ns late\n", sample.number, sample.late_ns);
		if (got != 0 && got != -EAGAIN)
			break;
	}
	asmp_fifo_close(fifo);
	if (stopped || waited == -EPIPE)
		return 0;
	fprintf(stderr, "read: %s\n", strerror(waited < 0 ? -waited : got < 0 ? (int)-got : EBADMSG));
	return 1;
}

int main(int argc, char **argv)
{
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	if (argc == 3 && strcmp(argv[1], "write") == 0)
		return writes(strtoull(argv[2], NULL, 10));
	if (argc == 2 && strcmp(argv[1], "read") == 0)
		return reads();
	fprintf(stderr, "usage: samples write COUNT | samples read\n");
	return 2;
}
