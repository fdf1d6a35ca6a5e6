// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The POSIX part of V3's manual: threads, keys, attributes, locks, conditions, clocks, memory; and
 * the names that do little here. Prints "all of posix", or what failed first. */
#define _GNU_SOURCE
#include <rtl.h>
#include <rtl_core.h>
#include <rtl_malloc.h>
#include <rtl_mutex.h>
#include <rtl_posixio.h>
#include <rtl_sema.h>
#include <rtl_spinlock.h>
#include <rtl_sync.h>

#include <mqueue.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1); \
		} \
	} while (0)

#define MS 1000000LL

static pthread_mutex_t mutex;
static pthread_cond_t condition;
static pthread_spinlock_t spin;
static pthread_key_t key;
static volatile int turn, cleaned, in_thread;

static void *in_new_thread(void *(*routine)(void *), void *argument)
{
	pthread_t thread;
	void *result = NULL;

	CHECK(pthread_create(&thread, NULL, routine, argument) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	return result;
}

/* An instant of the clock of RTLinux's locks. */
static struct timespec *after(long long ns)
{
	static struct timespec at;

	at = *hrt2ts(clock_gethrtime(rtl_getschedclock()) + ns);
	return &at;
}

static void *tries_the_mutex(void *argument)
{
	hrtime_t before = gethrtime();

	CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
	CHECK(pthread_mutex_timedlock(&mutex, after(20 * MS)) == ETIMEDOUT);
	CHECK(gethrtime() - before >= 20 * MS);
	return argument;
}

static void a_mutex_excludes_and_a_timed_lock_is_on_rtlinux_s_clock(void)
{
	pthread_mutexattr_t attributes;

	CHECK(pthread_mutexattr_init(&attributes) == 0);
	CHECK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_SPINLOCK_NP) == 0);
	CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT) == 0);
	CHECK(pthread_mutexattr_setprioceiling(&attributes, rtl_linux_priority_np(5)) == 0);
	CHECK(pthread_mutexattr_setprioceiling(&attributes, 100) == EINVAL);
	CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
	CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
	CHECK(pthread_mutexattr_destroy(&attributes) == 0);
	CHECK(pthread_mutex_lock(&mutex) == 0);
	in_new_thread(tries_the_mutex, NULL);
	CHECK(pthread_mutex_unlock(&mutex) == 0);
	CHECK(pthread_mutex_timedlock(&mutex, after(0)) == 0);
	CHECK(pthread_mutex_unlock(&mutex) == 0 && pthread_mutex_destroy(&mutex) == 0);
}

static void *waits_for_its_turn(void *argument)
{
	CHECK(pthread_mutex_lock(&mutex) == 0);
	turn = 1;
	pthread_cond_signal(&condition);
	while (turn != 2)
		CHECK(pthread_cond_wait(&condition, &mutex) == 0);
	CHECK(pthread_mutex_unlock(&mutex) == 0);
	return argument;
}

static void a_condition_wakes_and_times_out(void)
{
	pthread_t thread;
	hrtime_t before;

	CHECK(pthread_mutex_init(&mutex, NULL) == 0 && pthread_cond_init(&condition, NULL) == 0);
	CHECK(pthread_mutex_lock(&mutex) == 0);
	before = gethrtime();
	CHECK(pthread_cond_timedwait(&condition, &mutex, after(20 * MS)) == ETIMEDOUT);
	CHECK(gethrtime() - before >= 20 * MS);
	CHECK(pthread_create(&thread, NULL, waits_for_its_turn, NULL) == 0);
	while (turn != 1)
		CHECK(pthread_cond_wait(&condition, &mutex) == 0);
	turn = 2;
	CHECK(pthread_cond_broadcast(&condition) == 0 && pthread_mutex_unlock(&mutex) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(pthread_cond_destroy(&condition) == 0 && pthread_mutex_destroy(&mutex) == 0);
}

static void *tries_the_spin_lock(void *argument)
{
	CHECK(pthread_spin_trylock(&spin) == EBUSY && rtl_spin_trylock(&spin) == EBUSY);
	return argument;
}

static void spin_locks_exclude_under_both_names(void)
{
	rtl_spinlock_t made = RTL_SPIN_LOCK_UNLOCKED;
	rtl_irqstate_t flags = 1;

	CHECK(rtl_spin_trylock(&made) == 0 && rtl_spin_unlock(&made) == 0);
	CHECK(pthread_spin_init(&spin, 0) == 0 && pthread_spin_lock(&spin) == 0);
	in_new_thread(tries_the_spin_lock, NULL);
	CHECK(pthread_spin_unlock(&spin) == 0 && pthread_spin_destroy(&spin) == 0);
	CHECK(rtl_spin_lock_init(&spin) == 0);
	CHECK(rtl_spin_lock(&spin) == 0);
	in_new_thread(tries_the_spin_lock, NULL);
	CHECK(rtl_spin_unlock(&spin) == 0);
	rtl_spin_lock_irqsave(&spin, flags);
	in_new_thread(tries_the_spin_lock, NULL);
	rtl_spin_unlock_irqrestore(&spin, flags);
	CHECK(pthread_spin_trylock(&spin) == 0 && pthread_spin_unlock(&spin) == 0);
}

static void cleans(void *count)
{
	cleaned += *(int *)count;
}

static void *keeps_its_own_value(void *argument)
{
	static int one = 1, ten = 10;
	int before;

	CHECK(pthread_getspecific(key) == NULL);
	CHECK(pthread_setspecific(key, &one) == 0 && pthread_getspecific(key) == &one);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
	CHECK(before == PTHREAD_CANCEL_ENABLE);
	CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before) == 0);
	CHECK(before == PTHREAD_CANCEL_DEFERRED);
	pthread_cancel(pthread_self());
	pthread_testcancel();
	pthread_cleanup_push(cleans, &ten);
	/* Runs what was pushed, then the destructor of the key. */
	pthread_exit(argument);
	pthread_cleanup_pop(0);
	return NULL;
}

static void keys_cleanups_and_exits(void)
{
	int result;

	CHECK(pthread_key_create(&key, cleans) == 0);
	CHECK(in_new_thread(keeps_its_own_value, &result) == &result && cleaned == 11);
	CHECK(pthread_getspecific(key) == NULL && pthread_key_delete(key) == 0);
}

static void *notes(void *argument)
{
	in_thread = 1;
	return argument;
}

static void attributes_of_threads_are_kept(void)
{
	struct sched_param parameters = {.sched_priority = 7};
	pthread_attr_t attributes;
	pthread_t thread;
	size_t bytes = 0;
	int detached = -1;

	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
	CHECK(pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes == 256 << 10);
	CHECK(pthread_attr_setschedparam(&attributes, &parameters) == 0);
	parameters.sched_priority = -1;
	CHECK(pthread_attr_getschedparam(&attributes, &parameters) == 0);
	CHECK(parameters.sched_priority == rtl_linux_priority_np(7));
	CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
	CHECK(pthread_attr_getdetachstate(&attributes, &detached) == 0);
	CHECK(detached == PTHREAD_CREATE_DETACHED);
	CHECK(pthread_create(&thread, &attributes, notes, NULL) == 0);
	while (!in_thread)
		usleep(1000);
	CHECK(pthread_attr_destroy(&attributes) == 0);
}

static void semaphores_count(void)
{
	sem_t semaphore;
	int value = -1;

	CHECK(sem_init(&semaphore, 0, 2) == 0 && sem_wait(&semaphore) == 0);
	CHECK(sem_getvalue(&semaphore, &value) == 0 && value == 1);
	CHECK(sem_trywait(&semaphore) == 0 && sem_trywait(&semaphore) == -1 && errno == EAGAIN);
	CHECK(sem_post(&semaphore) == 0 && sem_destroy(&semaphore) == 0);
}

static void clocks_memory_and_processors(void)
{
	struct timespec step = {1, 1};
	hrtime_t before = gethrtime();
	char *bytes;

	CHECK(clock_nanosleep(CLOCK_RTL_SCHED, TIMER_ABSTIME, after(20 * MS), NULL) == 0);
	CHECK(gethrtime() - before >= 20 * MS);
	CHECK(clock_getres(CLOCK_RTL_SCHED, &step) == 0 && step.tv_sec == 0 && step.tv_nsec > 0);
	CHECK(rtl_getschedclock() == CLOCK_RTL_SCHED && CLOCK_REALTIME == CLOCK_MONOTONIC);
	bytes = rtl_malloc(100);
	CHECK(bytes != NULL);
	memset(bytes, 7, 100);
	rtl_free(bytes);
	bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(bytes != MAP_FAILED && bytes[4095] == 0 && munmap(bytes, 4096) == 0);
	CHECK(rtl_cpu_exists(rtl_getcpuid()));
	CHECK(sched_yield() == 0);
	rtl_schedule();
}

static void masks_of_signals(void)
{
	rtl_sigset_t set, before;

	rtl_sigemptyset(&set);
	rtl_sigaddset(&set, RTL_SIGUSR1);
	CHECK(rtl_sigismember(&set, RTL_SIGUSR1) && !rtl_sigismember(&set, RTL_SIGUSR2));
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(sigprocmask(SIG_UNBLOCK, &set, &before) == 0 && before == set);
}

/* Interrupts are on all the time. */
static void what_holds_interrupts_off_lets_them_on(void)
{
	rtl_irqstate_t flags = 1;

	rtl_hard_save_flags(flags);
	CHECK(flags == 0);
	rtl_hard_restore_flags(flags);
	rtl_hard_sti();
	rtl_allow_interrupts();
	rtl_restore_interrupts(flags);
	rtl_end_critical(flags);
}

static unsigned int on_interrupt(unsigned int irq, struct pt_regs *registers)
{
	(void)registers;
	return irq == 4095;
}

/* No device has this number. */
static void a_global_interrupt_is_that_of_a_device(void)
{
	CHECK(rtl_request_global_irq(4095, on_interrupt) == -ENODEV);
	CHECK(rtl_request_irq_from_np(900, eventfd(0, 0), on_interrupt) == 0);
	CHECK(rtl_free_global_irq(900) == 0);
}

static void a_queue_needs_no_slash_and_its_timeouts_are_on_rtlinux_s_clock(void)
{
	struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
	char name[40], message[8] = "";
	hrtime_t before;
	mqd_t queue;

	snprintf(name, sizeof(name), "asmp-v3-posix-%d", (int)getpid());
	queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
	if (queue == (mqd_t)-1 && errno == ENOSYS)
		return;
	CHECK(queue != (mqd_t)-1);
	before = gethrtime();
	CHECK(mq_timedreceive(queue, message, 8, NULL, after(20 * MS)) == -1 && errno == ETIMEDOUT);
	CHECK(gethrtime() - before >= 20 * MS);
	CHECK(mq_send(queue, "one", 3, 0) == 0);
	before = gethrtime();
	CHECK(mq_timedsend(queue, "two", 3, 0, after(20 * MS)) == -1 && errno == ETIMEDOUT);
	CHECK(gethrtime() - before >= 20 * MS);
	CHECK(mq_getattr(queue, &attributes) == 0 && attributes.mq_curmsgs == 1);
	CHECK(mq_timedreceive(queue, message, 8, NULL, after(0)) == 3 && memcmp(message, "one", 3) == 0);
	attributes.mq_flags = O_NONBLOCK;
	CHECK(mq_setattr(queue, &attributes, NULL) == 0 && mq_notify(queue, NULL) == 0);
	CHECK(mq_receive(queue, message, 8, NULL) == -1 && errno == EAGAIN);
	CHECK(mq_close(queue) == 0 && mq_unlink(name) == 0 && mq_unlink(name) == -1);
	CHECK(errno == ENOENT);
}

static volatile int threads_begun, order[2];

static void *notes_its_turn(void *slot)
{
	*(volatile int *)slot = ++threads_begun;
	return NULL;
}

/* The first one has more of a stack to touch. */
static void threads_begin_in_the_order_in_which_they_are_made(void)
{
	static const size_t stacks[2] = {16 << 20, 64 << 10};
	pthread_attr_t attributes;
	pthread_t threads[2];
	int at;

	CHECK(pthread_attr_init(&attributes) == 0);
	for (at = 0; at < 2; at++) {
		CHECK(pthread_attr_setstacksize(&attributes, stacks[at]) == 0);
		CHECK(pthread_create(&threads[at], &attributes, notes_its_turn, (void *)&order[at]) == 0);
	}
	for (at = 0; at < 2; at++)
		CHECK(pthread_join(threads[at], NULL) == 0);
	CHECK(pthread_attr_destroy(&attributes) == 0);
	CHECK(order[0] == 1 && order[1] == 2);
}

/* The lines are looked at by who runs this. */
static void words_go_to_stderr(void)
{
	CHECK(printk("printk %d\n", 1) == 9);
	CHECK(rtl_printf("rtl_printf %d\n", 2) == 13);
	conpr("conpr ");
	conprn(0x2a);
	conpr("\n");
}

int main(int argc, char **argv)
{
	/* Of a wait that never ends. */
	alarm(120);
	if (argc == 2 && strcmp(argv[1], "-n") == 0)
		rtl_without_priorities_np(true);
	else
		/* Others may delay an ordinary one between its begin and its turn. */
		threads_begin_in_the_order_in_which_they_are_made();
	a_mutex_excludes_and_a_timed_lock_is_on_rtlinux_s_clock();
	a_condition_wakes_and_times_out();
	spin_locks_exclude_under_both_names();
	keys_cleanups_and_exits();
	attributes_of_threads_are_kept();
	semaphores_count();
	clocks_memory_and_processors();
	masks_of_signals();
	what_holds_interrupts_off_lets_them_on();
	a_global_interrupt_is_that_of_a_device();
	a_queue_needs_no_slash_and_its_timeouts_are_on_rtlinux_s_clock();
	words_go_to_stderr();
	puts("all of posix");
	return 0;
}
