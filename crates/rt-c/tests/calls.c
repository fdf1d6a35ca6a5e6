// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Every call of the thread part of libasmp_rt, by its RTLinux name. Prints "all calls", or what
 * failed first. */
#define _GNU_SOURCE
#include <rtl.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

#define MS 1000000LL

static sem_t done;
static volatile int count;
static int real_time = 1;

/* Waits for what another thread does. Where that never happens, the alarm of main ends the
 * program. */
static void until(int wanted)
{
	while (count < wanted)
		usleep(1000);
}

/* The count once it has stood still for a while; one that goes on later is found out by what
 * follows. */
static int settled(void)
{
	int before = -1;

	for (int still = 0; still < 2;) {
		usleep(2000);
		still = count == before ? still + 1 : 0;
		before = count;
	}
	return before;
}

static void *counts(void *argument)
{
	while (1) {
		pthread_wait_np();
		count++;
	}
	return argument;
}

static void releases_keep_to_their_grid(void)
{
	hrtime_t start = gethrtime() + 2 * MS;

	CHECK(pthread_make_periodic_np(pthread_self(), start, MS) == 0);
	CHECK(pthread_wait_np() == 0);
	CHECK(gethrtime() >= start);
	for (int release = 1; release < 20; release++) {
		unsigned long long missed = rtl_overruns_np(pthread_self());

		CHECK(pthread_wait_np() == 0);
		start += (1 + rtl_overruns_np(pthread_self()) - missed) * MS;
		CHECK(gethrtime() >= start);
	}
	/* A job of five periods misses four releases at least, and is released at once. */
	unsigned long long missed = rtl_overruns_np(pthread_self());
	hrtime_t late = gethrtime() + 5 * MS;

	while (gethrtime() < late)
		;
	CHECK(pthread_wait_np() == 0);
	CHECK(rtl_overruns_np(pthread_self()) - missed >= 4);
	CHECK(pthread_make_periodic_np(pthread_self(), start, -1) == EINVAL);
}

static void a_thread_made_periodic_by_another_runs_from_its_start_on(void)
{
	pthread_t thread;

	count = 0;
	CHECK(pthread_create(&thread, NULL, counts, NULL) == 0);
	usleep(5000);
	CHECK(count == 0);
	CHECK(pthread_make_periodic_np(thread, gethrtime(), MS) == 0);
	until(5);
	CHECK(pthread_make_periodic_np(thread, HRTIME_INFINITY, 0) == 0);
	int before = settled();

	/* With a period of 0 one release, then none. */
	CHECK(pthread_make_periodic_np(thread, gethrtime() + 2 * MS, 0) == 0);
	until(before + 1);
	usleep(10000);
	CHECK(count == before + 1);
	CHECK(pthread_delete_np(thread) == 0);
}

static void a_wakeup_ends_a_wait_and_is_not_lost(void)
{
	pthread_t thread;

	count = 0;
	CHECK(pthread_create(&thread, NULL, counts, NULL) == 0);
	for (int wakeup = 1; wakeup <= 100; wakeup++) {
		CHECK(pthread_wakeup_np(thread) == 0);
		until(wakeup);
	}
	CHECK(count == 100);
	CHECK(pthread_cancel(thread) == 0);
	void *value;

	CHECK(pthread_join(thread, &value) == 0 && value == PTHREAD_CANCELED);
}

static void *suspends_itself(void *argument)
{
	while (1) {
		pthread_suspend_np(pthread_self());
		count++;
		sem_post(&done);
	}
	return argument;
}

static void a_thread_suspends_itself_until_it_is_woken(void)
{
	pthread_t thread;

	count = 0;
	CHECK(pthread_create(&thread, NULL, suspends_itself, NULL) == 0);
	for (int wakeup = 1; wakeup <= 100; wakeup++) {
		CHECK(pthread_wakeup_np(thread) == 0);
		CHECK(sem_wait(&done) == 0);
		CHECK(count == wakeup);
	}
	CHECK(pthread_delete_np(thread) == 0);
}

static void *spins(void *argument)
{
	while (1) {
		for (int turn = 0; turn < 1000; turn++)
			count++;
		usleep(100);
	}
	return argument;
}

static void a_thread_is_stopped_wherever_it_is_and_goes_on_from_there(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, spins, NULL) == 0);
	for (int turn = 0; turn < 20; turn++) {
		CHECK(pthread_suspend_np(thread) == 0);
		int before = settled();

		CHECK(pthread_wakeup_np(thread) == 0);
		until(before + 10000);
	}
	CHECK(pthread_suspend_np(thread) == 0);
	CHECK(pthread_delete_np(thread) == 0);
	/* Stopped in a cancellation point, in its midst, or just about to stop: cancelled all the same. */
	for (int turn = 0; turn < 100; turn++) {
		CHECK(pthread_create(&thread, NULL, turn % 2 ? counts : spins, NULL) == 0);
		if (turn % 3)
			usleep(500);
		CHECK(pthread_suspend_np(thread) == 0);
		if (turn % 5)
			usleep(500);
		CHECK(pthread_delete_np(thread) == 0);
	}
}

static int empty[2];

static void *reads_for_ever(void *unused)
{
	char byte;

	count++;
	while (read(empty[0], &byte, 1) == 1)
		;
	return unused;
}

/* Since glibc 2.41 what blocks is cancelled by a signal that comes while it blocks, and by no
 * other. */
static void what_is_stopped_in_a_call_that_blocks_is_cancelled_there(void)
{
	struct sigaction stops;
	pthread_t thread;

	CHECK(pipe(empty) == 0);
	for (int turn = 0; turn < 20; turn++) {
		count = 0;
		CHECK(pthread_create(&thread, NULL, reads_for_ever, NULL) == 0);
		until(1);
		if (turn % 2)
			usleep(2000);
		CHECK(pthread_suspend_np(thread) == 0);
		usleep(2000);
		CHECK(pthread_delete_np(thread) == 0);
	}
	/* So the one that stops has it wait: signal 32, which sigismember denies. */
	CHECK(sigaction(SIGRTMIN + 6, NULL, &stops) == 0 &&
		(*(unsigned long *)&stops.sa_mask & 1UL << 31) != 0);
	close(empty[0]);
	close(empty[1]);
}

static volatile int set_ups, stoppable_set_ups;

/* Found before glibc's by the set-up of a thread, which asks it for its stack. */
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
	int (*glibcs)(pthread_t, pthread_attr_t *) =
		(int (*)(pthread_t, pthread_attr_t *))dlsym(RTLD_NEXT, "pthread_getattr_np");
	sigset_t mask;

	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	set_ups++;
	stoppable_set_ups += sigismember(&mask, SIGRTMIN + 6) == 0;
	return glibcs(thread, attributes);
}

/* It would be stopped with malloc's locks, or the library's own. */
static void a_thread_cannot_be_stopped_before_its_routine(void)
{
	pthread_t thread;

	count = set_ups = stoppable_set_ups = 0;
	CHECK(pthread_create(&thread, NULL, counts, NULL) == 0);
	CHECK(pthread_suspend_np(thread) == 0);
	while (set_ups == 0)
		usleep(1000);
	CHECK(stoppable_set_ups == 0);
	CHECK(pthread_wakeup_np(thread) == 0);
	CHECK(pthread_wakeup_np(thread) == 0);
	until(1);
	CHECK(pthread_delete_np(thread) == 0);
}

static void *tells_its_number(void *argument)
{
	*(volatile int *)argument = (int)syscall(SYS_gettid);
	return NULL;
}

static void what_is_said_to_an_ended_thread_is_not_heard_by_the_next(void)
{
	int (*say[])(pthread_t) = { pthread_wakeup_np, pthread_suspend_np };

	for (int said = 0; said < 2; said++) {
		pthread_t ended, next;
		volatile int number = 0;
		char alive[64];

		CHECK(pthread_create(&ended, NULL, tells_its_number, (void *)&number) == 0);
		while (number == 0)
			usleep(1000);
		snprintf(alive, sizeof(alive), "/proc/self/task/%d", number);
		while (access(alive, F_OK) == 0)
			usleep(1000);
		/* Older glibcs say ESRCH to the second. */
		(void)say[said](ended);
		CHECK(pthread_join(ended, NULL) == 0);

		count = 0;
		CHECK(pthread_create(&next, NULL, counts, NULL) == 0);
		/* glibc gives it the same stack, and so the same pthread_t. */
		CHECK(pthread_equal(ended, next));
		CHECK(settled() == 0);
		CHECK(pthread_wakeup_np(next) == 0);
		until(1);
		CHECK(settled() == 1);
		CHECK(pthread_delete_np(next) == 0);
	}
}

static void *leaves(void *argument)
{
	pthread_delete_np(pthread_self());
	return argument;
}

static void a_thread_deletes_itself(void)
{
	pthread_t thread;
	void *value = &thread;

	CHECK(pthread_create(&thread, NULL, leaves, &thread) == 0);
	CHECK(pthread_join(thread, &value) == 0 && value == NULL);
}

static void *tells_its_policy(void *argument)
{
	struct sched_param parameters;
	int policy;

	CHECK(pthread_getschedparam(pthread_self(), &policy, &parameters) == 0);
	return (void *)(long)(policy * 1000 + parameters.sched_priority);
}

static long policy_of(pthread_attr_t *attributes)
{
	pthread_t thread;
	void *value;

	CHECK(pthread_create(&thread, attributes, tells_its_policy, NULL) == 0);
	CHECK(pthread_join(thread, &value) == 0);
	return (long)value;
}

static void priorities_are_mapped_and_others_refused(void)
{
	struct sched_param parameters;
	pthread_attr_t attributes;

	CHECK(sched_get_priority_max(SCHED_FIFO) == 1000000 && sched_get_priority_min(SCHED_FIFO) == 0);
	CHECK(policy_of(NULL) == (real_time ? SCHED_FIFO * 1000 + 1 : 0));
	pthread_attr_init(&attributes);
	parameters.sched_priority = 1000000;
	CHECK(pthread_attr_setschedparam(&attributes, &parameters) == 0);
	CHECK(policy_of(&attributes) == (real_time ? SCHED_FIFO * 1000 + 98 : 0));
	pthread_attr_setschedpolicy(&attributes, SCHED_RR);
	parameters.sched_priority = 7;
	CHECK(pthread_attr_setschedparam(&attributes, &parameters) == 0);
	CHECK(policy_of(&attributes) == (real_time ? SCHED_RR * 1000 + 8 : 0));
	parameters.sched_priority = 1000001;
	CHECK(pthread_attr_setschedparam(&attributes, &parameters) == EINVAL);
	parameters.sched_priority = 1;
	CHECK(pthread_setschedparam(pthread_self(), SCHED_EDF_NP, &parameters) == ENOTSUP);
	CHECK(pthread_setdeadline_np(pthread_self(), gethrtime()) == ENOTSUP);
	CHECK(pthread_setfp_np(pthread_self(), 1) == 0 && pthread_setfp_np(pthread_self(), 2) == EINVAL);
	CHECK(pthread_attr_setfp_np(&attributes, 1) == 0);
	CHECK(pthread_attr_setcpu_np(&attributes, 0) == 0 &&
		pthread_attr_setcpu_np(&attributes, 99999) == EINVAL);
	CHECK(policy_of(&attributes) >= 0);
	pthread_attr_destroy(&attributes);
}

#define IRQ 5

static unsigned int enables(unsigned int irq, struct pt_regs *registers)
{
	CHECK(irq == IRQ && registers == NULL);
	count++;
	rtl_hard_enable_irq(irq);
	return 0;
}

static unsigned int leaves_it_masked(unsigned int irq, struct pt_regs *registers)
{
	count++;
	return 0;
}

static void an_interrupt_has_one_handler_and_is_masked_until_it_is_enabled(void)
{
	int line = eventfd(0, EFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC);

	count = 0;
	CHECK(rtl_request_irq(4095, enables) == -ENODEV);
	CHECK(rtl_request_irq_from_np(IRQ, -1, enables) == -EBADF);
	CHECK(rtl_request_irq_from_np(IRQ, line, NULL) == -EINVAL);
	CHECK(rtl_request_irq_from_np(IRQ, line, enables) == 0);
	CHECK(rtl_request_irq_from_np(IRQ, other, enables) == -EBUSY);
	CHECK(rtl_request_irq_from_np(IRQ + 1, line, enables) == -EBUSY);
	for (int event = 1; event <= 50; event++) {
		eventfd_write(line, 1);
		until(event);
	}
	CHECK(rtl_free_irq(IRQ) == 0 && rtl_free_irq(IRQ) == -EINVAL);

	count = 0;
	CHECK(rtl_request_irq_from_np(IRQ, line, leaves_it_masked) == 0);
	eventfd_write(line, 1);
	until(1);
	eventfd_write(line, 1);
	usleep(20000);
	CHECK(count == 1);
	rtl_hard_enable_irq(IRQ);
	until(2);
	CHECK(rtl_free_irq(IRQ) == 0);
}

static void clocks_tell_the_same_time(void)
{
	struct timespec now;

	hrtime_t before = gethrtime();
	hrtime_t between = clock_gethrtime(CLOCK_REALTIME);

	clock_gettime(CLOCK_REALTIME, &now);
	CHECK(before <= between && between <= timespec_to_ns(&now));
	timespec_add_ns(&now, -5 * NSECS_PER_SEC - 1);
	CHECK(timespec_to_ns(&now) < gethrtime() && now.tv_nsec >= 0);
	CHECK(clock_gethrtime(99999) == -1);
	/* A timeout is on RTLinux's clock: one in the past is over at once, one in the future is not. */
	now = timespec_from_ns(gethrtime() + 3 * MS);
	CHECK(sem_timedwait(&done, &now) == -1 && errno == ETIMEDOUT &&
		gethrtime() >= timespec_to_ns(&now));
}

int main(int argc, char **argv)
{
	alarm(60);
	sem_init(&done, 0, 0);
	if (argc == 2 && strcmp(argv[1], "-n") == 0) {
		rtl_without_priorities_np(true);
		real_time = 0;
	}
	releases_keep_to_their_grid();
	a_thread_made_periodic_by_another_runs_from_its_start_on();
	a_wakeup_ends_a_wait_and_is_not_lost();
	a_thread_suspends_itself_until_it_is_woken();
	a_thread_is_stopped_wherever_it_is_and_goes_on_from_there();
	what_is_stopped_in_a_call_that_blocks_is_cancelled_there();
	a_thread_cannot_be_stopped_before_its_routine();
	what_is_said_to_an_ended_thread_is_not_heard_by_the_next();
	a_thread_deletes_itself();
	priorities_are_mapped_and_others_refused();
	an_interrupt_has_one_handler_and_is_masked_until_it_is_enabled();
	clocks_tell_the_same_time();
	puts("all calls");
	return 0;
}
