// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Names of V3's manual beside threads' periods and FIFOs: signals, soft interrupts, files of the
 * real-time side, times. Prints "all of v3", or what failed first. */
#define _GNU_SOURCE
#include <rtl.h>
#include <rtl_fifo.h>

#include <sys/eventfd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1); \
		} \
	} while (0)

#define MS 1000000LL

static volatile int handled, last, inner, stage, policy, asked;
static volatile pthread_t in_thread;
static sem_t go, ready;

static void note(int signal)
{
	last = signal;
	in_thread = pthread_self();
	handled++;
}

static void raises_another(int signal)
{
	pthread_kill(pthread_self(), RTL_SIGUSR2);
	inner = handled;
	note(signal);
}

static void handle(int signal, void (*handler)(int), rtl_sigset_t mask)
{
	struct sigaction action;

	action.sa_handler = handler;
	action.sa_mask = mask;
	action.sa_flags = 0;
	CHECK(sigaction(signal, &action, NULL) == 0);
}

/* What another thread does is waited for; main's alarm ends a wait without end. */
static void until(volatile int *what, int wanted)
{
	while (*what < wanted)
		usleep(1000);
}

static void start(pthread_t *thread, void *(*routine)(void *))
{
	CHECK(pthread_create(thread, NULL, routine, NULL) == 0);
	sem_wait(&ready);
}

static void *sleeps(void *argument)
{
	struct timespec left = {0, 0};

	sem_post(&ready);
	stage = nanosleep(hrt2ts(3600000 * MS), &left) == -1 && errno == EINTR && left.tv_sec > 3500;
	return argument;
}

static void a_handler_runs_in_the_thread_and_interrupts_its_sleep(void)
{
	pthread_t thread;

	handled = stage = 0;
	handle(RTL_SIGUSR1, note, 0);
	start(&thread, sleeps);
	/* It may not have begun to sleep: another signal then. */
	while (!stage) {
		CHECK(pthread_kill(thread, RTL_SIGUSR1) == 0);
		usleep(2000);
	}
	pthread_join(thread, NULL);
	CHECK(handled > 0 && last == RTL_SIGUSR1 && in_thread == thread);
	CHECK(pthread_kill(pthread_self(), RTL_SIGRTMAX + 1) == EINVAL);
	CHECK(pthread_kill(pthread_self(), RTL_SIGNAL_NULL) == 0);
	/* A thread that is not created yet. */
	CHECK(pthread_kill(0, RTL_SIGUSR1) == ESRCH && pthread_kill(0, SIGUSR1) == ESRCH);
	CHECK(pthread_wakeup_np(0) == ESRCH && pthread_suspend_np(0) == ESRCH);
	CHECK(pthread_kill(0, RTL_SIGNAL_CANCEL) == ESRCH);
	CHECK(pthread_make_periodic_np(0, 0, 1) == ESRCH);
}

static void what_is_blocked_waits_and_is_one_however_often_it_came(void)
{
	rtl_sigset_t set, old, pending;

	handled = 0;
	handle(RTL_SIGRTMIN + 3, note, 0);
	rtl_sigemptyset(&set);
	rtl_sigaddset(&set, RTL_SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(pthread_kill(pthread_self(), RTL_SIGRTMIN + 3) == 0);
	CHECK(pthread_kill(pthread_self(), RTL_SIGRTMIN + 3) == 0);
	CHECK(handled == 0 && sigpending(&pending) == 0 && pending == set);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &set, &old) == 0 && old == set);
	CHECK(handled == 1 && sigpending(&pending) == 0 && pending == 0);
	CHECK(pthread_kill(pthread_self(), RTL_SIGRTMIN + 3) == 0 && handled == 2);
	CHECK(pthread_sigmask(99, &set, NULL) == EINVAL);
}

static void a_handler_s_mask_holds_while_it_runs_and_a_signal_without_handler_is_ignored(void)
{
	rtl_sigset_t set;
	struct sigaction old;

	handled = 0;
	handle(RTL_SIGUSR2, note, 0);
	rtl_sigemptyset(&set);
	rtl_sigaddset(&set, RTL_SIGUSR2);
	handle(RTL_SIGUSR1, raises_another, set);
	CHECK(pthread_kill(pthread_self(), RTL_SIGUSR1) == 0);
	CHECK(inner == 0 && handled == 2 && last == RTL_SIGUSR2);
	handled = 0;
	handle(RTL_SIGUSR1, raises_another, 0);
	CHECK(pthread_kill(pthread_self(), RTL_SIGUSR1) == 0);
	CHECK(inner == 1 && handled == 2 && last == RTL_SIGUSR1);
	handle(RTL_SIGUSR1, SIG_IGN, 0);
	CHECK(pthread_kill(pthread_self(), RTL_SIGUSR1) == 0 && handled == 2);
	CHECK(sigaction(RTL_SIGUSR2, NULL, &old) == 0 && old.sa_handler == note);
	CHECK(sigaction(RTL_SIGNAL_SUSPEND, &old, NULL) == -1 && errno == EINVAL);
}

static void *suspends_for_a_signal(void *argument)
{
	rtl_sigset_t all, but_one;

	rtl_sigfillset(&all);
	but_one = all;
	rtl_sigdelset(&but_one, RTL_SIGRTMIN);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	sem_post(&ready);
	CHECK(sigsuspend(&but_one) == -1 && errno == EINTR);
	stage = handled;
	return argument;
}

static void sigsuspend_returns_after_a_handler_and_not_for_what_its_mask_blocks(void)
{
	pthread_t thread;

	handled = stage = 0;
	handle(RTL_SIGRTMIN, note, 0);
	start(&thread, suspends_for_a_signal);
	CHECK(pthread_kill(thread, RTL_SIGUSR2) == 0);
	usleep(5000);
	CHECK(handled == 0 && stage == 0);
	CHECK(pthread_kill(thread, RTL_SIGRTMIN) == 0);
	pthread_join(thread, NULL);
	CHECK(stage == 1 && last == RTL_SIGRTMIN);
}

static void raises_linux_s_own(int signal)
{
	pthread_kill(pthread_self(), SIGUSR2);
	inner = handled;
	note(signal);
}

static void linux_s_own_signals_keep_their_numbers(void)
{
	struct sigaction action, old;
	sigset_t set;

	/* As a source for Linux says it: its mask is kept. */
	handled = 0;
	handle(SIGUSR2, note, 0);
	action.sa_handler = raises_linux_s_own;
	action.sa_flags = SA_RESTART;
	CHECK(sigemptyset(&action.sa_mask) == 0);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0 && inner == 1 && handled == 2);
	handled = 0;
	CHECK(sigaddset(&action.sa_mask, SIGUSR2) == 0 && sigismember(&action.sa_mask, SIGUSR2));
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0 && inner == 0 && handled == 2);
	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_mask == action.sa_mask);
	CHECK(old.sa_handler == raises_linux_s_own && (old.sa_flags & SA_RESTART));
	handled = 0;
	handle(SIGUSR1, note, 0);
	CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0 && handled == 1 && last == SIGUSR1);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0 && handled == 1);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0 && handled == 2);
}

static void *stops_itself(void *argument)
{
	sem_post(&ready);
	CHECK(pthread_kill(pthread_self(), RTL_SIGNAL_SUSPEND) == 0);
	stage = 1;
	while (1)
		pthread_wait_np();
	return argument;
}

static void suspend_wakeup_and_cancel_are_signals(void)
{
	pthread_t thread;
	void *value;

	stage = 0;
	start(&thread, stops_itself);
	usleep(5000);
	CHECK(stage == 0);
	CHECK(pthread_kill(thread, RTL_SIGNAL_WAKEUP) == 0);
	until(&stage, 1);
	CHECK(pthread_kill(thread, RTL_SIGNAL_CANCEL) == 0);
	CHECK(pthread_join(thread, &value) == 0 && value == PTHREAD_CANCELED);
}

static void serves(int irq, void *ignored, struct pt_regs *registers)
{
	struct sched_param parameters;
	int now;

	CHECK(ignored == NULL && registers == NULL);
	CHECK((pthread_getschedparam)(pthread_self(), &now, &parameters) == 0);
	policy = now;
	asked = irq;
	sem_post(&ready);
	sem_wait(&go);
	handled++;
}

static void a_soft_interrupt_runs_at_linux_s_priority_once_for_several(void)
{
	int irq = rtl_get_soft_irq(serves, "test");

	CHECK(irq > 0 && rtl_get_soft_irq(NULL, "test") == -EINVAL);
	handled = 0;
	rtl_global_pend_irq(irq);
	sem_wait(&ready);
	CHECK(asked == irq && policy == SCHED_OTHER);
	/* Two while it runs are one more. */
	rtl_global_pend_irq(irq);
	rtl_global_pend_irq(irq);
	sem_post(&go);
	sem_wait(&ready);
	sem_post(&go);
	until(&handled, 2);
	rtl_free_soft_irq(irq);
	CHECK(handled == 2 && sem_trywait(&ready) == -1);
	CHECK(rtl_get_soft_irq(serves, NULL) == irq);
	rtl_free_soft_irq(irq);
}

static void a_fifo_is_a_file_on_its_real_time_side(void)
{
	char bytes[8] = "";
	int fd, file;

	CHECK(open("/dev/rtf61", O_NONBLOCK) == -1 && (errno == ENOENT || errno == ENXIO));
	CHECK(rtf_create(61, 100) == 0);
	CHECK((fd = open("/dev/rtf61", O_NONBLOCK)) >= 0);
	CHECK(read(fd, bytes, sizeof(bytes)) == 0);
	CHECK(write(fd, "abc", 3) == 3 && rtf_get(61, bytes, sizeof(bytes)) == 3);
	CHECK(memcmp(bytes, "abc", 3) == 0);
	CHECK(rtf_put(61, "de", 2) == 2 && read(fd, bytes, sizeof(bytes)) == 2 && bytes[0] == 'd');
	CHECK(rtf_put(61, "x", 1) == 1 && ioctl(fd, RTF_FLUSH) == 0 && rtf_isempty(61) == 1);
	CHECK(ioctl(fd, RTF_SETSIZE, 200) == 0);
	CHECK(ioctl(fd, 77, 0) == -1 && errno == ENOTTY);
	CHECK(close(fd) == 0 && close(fd) == -1 && errno == EBADF);
	CHECK(rtf_destroy(61) == 0);
	/* The number is the system's again. */
	CHECK((file = open("/dev/null", O_RDWR)) == fd && write(file, "abc", 3) == 3);
	CHECK(close(file) == 0);
	CHECK((fd = open("/dev/rtf61", O_NONBLOCK | O_CREAT)) >= 0 && access("/dev/rtf61", F_OK) == -1);
	CHECK(rtf_create(61, 100) == -EBUSY && write(fd, "abc", 3) == 3);
	CHECK((file = open("/dev/rtf61", O_NONBLOCK | O_CREAT)) != fd && rtf_isempty(61) == 0);
	CHECK(close(file) == 0 && close(fd) == 0 && rtf_destroy(61) == 0);
}

static unsigned int on_event(unsigned int irq, struct pt_regs *registers)
{
	CHECK(registers == NULL);
	rtl_hard_enable_irq(irq);
	handled++;
	return 0;
}

static void a_disabled_interrupt_calls_no_handler_until_it_is_enabled(void)
{
	const uint64_t one = 1;
	int fd = eventfd(0, 0);

	handled = 0;
	CHECK(rtl_request_irq_from_np(900, fd, on_event) == 0);
	CHECK(write(fd, &one, sizeof(one)) == sizeof(one));
	until(&handled, 1);
	CHECK(rtl_hard_disable_irq(900) == 0);
	CHECK(write(fd, &one, sizeof(one)) == sizeof(one));
	usleep(20000);
	CHECK(handled == 1);
	rtl_hard_enable_irq(900);
	while (handled == 1) {
		CHECK(write(fd, &one, sizeof(one)) == sizeof(one));
		usleep(1000);
	}
	CHECK(rtl_free_irq(900) == 0 && rtl_hard_disable_irq(900) == 0);
	close(fd);
}

static void *waits_for_its_period(void *argument)
{
	struct itimerspec period = {{0, 1000000}, {0, 0}};

	CHECK(pthread_setperiod_np(pthread_self(), &period) == 0);
	for (int at = 0; at < 5; at++)
		CHECK(pthread_wait_np() == 0);
	CHECK(pthread_setperiod_np(pthread_self(), NULL) == EINVAL);
	return argument;
}

static void times_and_cpus(void)
{
	struct timespec a = {1, 900000000}, b = {0, 200000000};
	pthread_attr_t attributes;
	pthread_t thread;
	hrtime_t before = gethrtime();
	int cpu = -1, other = -1;

	rtl_delay(2 * MS);
	CHECK(gethrtime() - before >= 2 * MS);
	timespec_add(&a, &b);
	CHECK(a.tv_sec == 2 && a.tv_nsec == 100000000 && timespec_gt(&a, &b) && timespec_le(&b, &a));
	timespec_sub(&a, &b);
	CHECK(a.tv_sec == 1 && a.tv_nsec == 900000000 && timespec_nz(&a) && !timespec_eq(&a, &b));
	b.tv_nsec = 2100000000;
	timespec_normalize(&b);
	CHECK(b.tv_sec == 2 && b.tv_nsec == 100000000 && timespec_lt(&a, &b) && timespec_ge(&b, &a));
	CHECK(timespec_to_ns(hrt2ts(-1)) == -1 && hrt2ts(-1)->tv_nsec == 999999999);
	CHECK(rtl_setclockmode(CLOCK_REALTIME, RTL_CLOCK_MODE_PERIODIC, 1000) == 0);
	CHECK(rtl_setclockmode(CLOCK_REALTIME, RTL_CLOCK_MODE_PERIODIC, 0) == -EINVAL);
	while (!rtl_cpu_exists(++cpu))
		CHECK(cpu < 1024);
	CHECK(!rtl_cpu_exists(-1) && !rtl_cpu_exists(100000));
	pthread_attr_init(&attributes);
	CHECK(pthread_attr_setcpu_np(&attributes, cpu) == 0);
	CHECK(pthread_attr_getcpu_np(&attributes, &other) == 0 && other == cpu);
	pthread_attr_destroy(&attributes);
	CHECK(pthread_create(&thread, NULL, waits_for_its_period, NULL) == 0);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	/* Of a wait that never ends. */
	alarm(120);
	if (argc == 2 && strcmp(argv[1], "-n") == 0)
		rtl_without_priorities_np(true);
	sem_init(&go, 0, 0);
	sem_init(&ready, 0, 0);
	a_handler_runs_in_the_thread_and_interrupts_its_sleep();
	what_is_blocked_waits_and_is_one_however_often_it_came();
	a_handler_s_mask_holds_while_it_runs_and_a_signal_without_handler_is_ignored();
	sigsuspend_returns_after_a_handler_and_not_for_what_its_mask_blocks();
	linux_s_own_signals_keep_their_numbers();
	suspend_wakeup_and_cancel_are_signals();
	a_soft_interrupt_runs_at_linux_s_priority_once_for_several();
	a_fifo_is_a_file_on_its_real_time_side();
	a_disabled_interrupt_calls_no_handler_until_it_is_enabled();
	times_and_cpus();
	puts("all of v3");
	return 0;
}
