// SPDX-License-Identifier: Apache-2.0 OR MIT
// calls PROCESSES SECONDS TURNS: guests of shared CPUs that enter the kernel in every way. Between
// two entries each counts to TURNS. Prints how many system calls of how many kinds there were, and
// how many other events. Exits with 1 if a way of entering does not do what it should.
#define _GNU_SOURCE
#include "count.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>

// What the processes share: how often each thing was done.
enum { CALLS, FAULTS, UFFD, SIGNALS, TRAPS, FORKS, EXECS, TRACES, URING, NR_KINDS };
static const char *kinds[] = { "calls", "faults", "userfaults", "signals", "exceptions", "forks",
			       "execs", "traced stops", "io_uring" };
static long *done;
static unsigned long turns;

static void did(int kind, long n)
{
	__atomic_fetch_add(&done[kind], n, __ATOMIC_RELAXED);
}

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	_exit(1);
}

static int zero, null, file, dir, sock[2], ep, ev, tfd;
static char buffer[4096];
static cpu_set_t mask;
static struct iovec vector = { buffer, 64 };
static struct timespec soon = { 0, 1000 };

static void prepare(void)
{
	char name[64];

	snprintf(name, sizeof(name), "/tmp/calls-%d", getpid());
	zero = open("/dev/zero", O_RDWR);
	null = open("/dev/null", O_RDWR);
	file = open(name, O_RDWR | O_CREAT, 0600);
	dir = open("/", O_RDONLY);
	must(zero >= 0 && null >= 0 && file >= 0 && dir >= 0, "open");
	unlink(name);
	must(ftruncate(file, 1 << 20) == 0, "ftruncate");
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, sock) == 0, "socketpair");
	ep = epoll_create1(0);
	ev = syscall(SYS_eventfd2, 1, 0);
	tfd = syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 0);
	must(sched_getaffinity(0, sizeof(mask), &mask) == 0, "sched_getaffinity");
}

static long and_close(int fd)
{
	return syscall(SYS_close, fd);
}

// System call N of the table; -2 after the last.
static long call(int n)
{
	static struct stat seen;
	static struct rlimit limit;
	static struct timespec time;
	static struct itimerval timer;
	static struct itimerspec later;
	static sigset_t set;
	static unsigned int cpu;
	struct epoll_event event = { .events = EPOLLIN };
	struct pollfd polled = { ev, POLLIN, 0 };
	int fds[2];
	char *p;

#define C case __COUNTER__: return
	switch (n) {
	C syscall(SYS_getpid);
	C syscall(SYS_getppid);
	// The kernel looks at the lower half alone.
	C syscall(SYS_getppid | (long)(0xffffffffUL << 32));
	C syscall(SYS_gettid);
	C syscall(SYS_getuid);
	C syscall(SYS_geteuid);
	C syscall(SYS_getgid);
	C syscall(SYS_getegid);
	C syscall(SYS_getpgid, 0);
	C syscall(SYS_getsid, 0);
	C syscall(SYS_getgroups, 0, 0);
	C syscall(SYS_getresuid, buffer, buffer + 8, buffer + 16);
	C syscall(SYS_getpriority, PRIO_PROCESS, 0);
	C syscall(SYS_setpriority, PRIO_PROCESS, 0, 0);
	C syscall(SYS_sched_yield);
	C syscall(SYS_sched_getaffinity, 0, sizeof(mask), buffer);
	C syscall(SYS_sched_setaffinity, 0, sizeof(mask), &mask);
	C syscall(SYS_sched_getscheduler, 0);
	C syscall(SYS_sched_getparam, 0, buffer);
	C syscall(SYS_sched_rr_get_interval, 0, &time);
	C syscall(SYS_sched_getattr, 0, buffer, 48, 0);
	C syscall(SYS_getrlimit, RLIMIT_NOFILE, &limit);
	C syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
	C syscall(SYS_getrusage, RUSAGE_SELF, buffer);
	C syscall(SYS_times, buffer);
	C syscall(SYS_sysinfo, buffer);
	C syscall(SYS_uname, buffer);
	C syscall(SYS_getcwd, buffer, sizeof(buffer));
	C syscall(SYS_umask, 022);
	C syscall(SYS_access, "/", R_OK);
	C syscall(SYS_faccessat, dir, "dev", R_OK);
	C syscall(SYS_stat, "/dev", &seen);
	C syscall(SYS_lstat, "/dev", &seen);
	C syscall(SYS_fstat, file, &seen);
	C syscall(SYS_newfstatat, dir, "dev", &seen, 0);
	C syscall(SYS_statx, dir, "dev", 0, STATX_BASIC_STATS, buffer);
	C syscall(SYS_statfs, "/", buffer);
	C and_close(syscall(SYS_openat, dir, "dev/null", O_RDONLY));
	C and_close(syscall(SYS_dup, null));
	C syscall(SYS_dup2, null, 200);
	C syscall(SYS_fcntl, file, F_GETFL);
	C syscall(SYS_read, zero, buffer, 4096);
	C syscall(SYS_write, null, buffer, 4096);
	C syscall(SYS_pread64, file, buffer, 512, 0);
	C syscall(SYS_pwrite64, file, buffer, 512, 0);
	C syscall(SYS_readv, zero, &vector, 1);
	C syscall(SYS_writev, null, &vector, 1);
	C syscall(SYS_lseek, file, 0, SEEK_SET);
	C syscall(SYS_getdents64, dir, buffer, sizeof(buffer));
	C syscall(SYS_ftruncate, file, 1 << 20);
	C syscall(SYS_fallocate, file, 0, 0, 4096);
	C syscall(SYS_fdatasync, file);
	C syscall(SYS_flock, file, LOCK_UN);
	C syscall(SYS_fchmod, file, 0600);
	C syscall(SYS_readlink, "/proc/self/exe", buffer, 100);
	C syscall(SYS_mkdir, "/proc/no", 0700);
	C syscall(SYS_unlink, "/tmp/no-such-file");
	C syscall(SYS_rename, "/tmp/no-such-file", "/tmp/none");
	C syscall(SYS_ioctl, zero, FIONREAD, buffer);
	C syscall(SYS_poll, &polled, 1, 0);
	C syscall(SYS_ppoll, &polled, 1, &soon, NULL, 0);
	C select(0, NULL, NULL, NULL, &(struct timeval){ 0, 0 });
	C pselect(0, NULL, NULL, NULL, &soon, NULL);
	C syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, ev, &event);
	C syscall(SYS_epoll_wait, ep, buffer, 1, 0);
	C and_close(syscall(SYS_epoll_create1, 0));
	C and_close(syscall(SYS_eventfd2, 0, 0));
	C and_close(syscall(SYS_memfd_create, "m", 0));
	C and_close(syscall(SYS_pidfd_open, getpid(), 0));
	C and_close(syscall(SYS_inotify_init1, 0));
	C syscall(SYS_timerfd_settime, tfd, 0, &later, NULL);
	C syscall(SYS_timerfd_gettime, tfd, &later);
	C syscall(SYS_pipe2, fds, 0) ?: (and_close(fds[0]), and_close(fds[1]));
	C syscall(SYS_sendto, sock[0], buffer, 16, 0, NULL, 0);
	C syscall(SYS_recvfrom, sock[1], buffer, 16, MSG_DONTWAIT, NULL, NULL);
	C syscall(SYS_getsockname, sock[0], buffer, &(socklen_t){ 64 });
	C syscall(SYS_getsockopt, sock[0], SOL_SOCKET, SO_TYPE, buffer, &(socklen_t){ 4 });
	C and_close(syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0));
	C p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), munmap(p, 8192);
	C syscall(SYS_mprotect, (uintptr_t)buffer & ~4095UL, 4096, PROT_READ | PROT_WRITE);
	C syscall(SYS_madvise, (uintptr_t)buffer & ~4095UL, 4096, MADV_NORMAL);
	C syscall(SYS_mincore, (uintptr_t)buffer & ~4095UL, 4096, buffer);
	C syscall(SYS_brk, 0);
	C syscall(SYS_nanosleep, &soon, NULL);
	C syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &soon, NULL);
	C syscall(SYS_clock_getres, CLOCK_MONOTONIC, &time);
	C syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &time);
	C syscall(SYS_gettimeofday, buffer, NULL);
	C syscall(SYS_getcpu, &cpu, NULL, NULL);
	C syscall(SYS_futex, buffer, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
	C syscall(SYS_kill, getpid(), 0);
	C syscall(SYS_tgkill, getpid(), gettid(), 0);
	C syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &set, 8);
	C syscall(SYS_rt_sigpending, &set, 8);
	C syscall(SYS_sigaltstack, NULL, buffer);
	C syscall(SYS_getrandom, buffer, 16, 0);
	C syscall(SYS_getitimer, ITIMER_REAL, &timer);
	C syscall(SYS_alarm, 0);
	C syscall(SYS_prctl, 3 /* PR_GET_DUMPABLE */, 0, 0, 0, 0);
	C syscall(SYS_capget, buffer, NULL);
	C syscall(SYS_personality, 0xffffffff);
	C syscall(SYS_get_robust_list, 0, buffer, buffer + 8);
	C syscall(SYS_membarrier, 0, 0, 0);
	C syscall(SYS_wait4, -1, NULL, WNOHANG, NULL);
	C syscall(SYS_process_vm_readv, getpid(), &vector, 1, &vector, 1, 0);
	}
	return -2;
}
static const int nr_calls = __COUNTER__;

static void touch(char *p, int is_write)
{
	count(turns);
	if (is_write)
		*(volatile char *)p = 1;
	else
		(void)*(volatile char *)p;
	did(FAULTS, 1);
}

// Anonymous, copy-on-write of the zero page, file, copy-on-write of a file, write-protected.
static void faults(void)
{
	char *p = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);

	must(p != MAP_FAILED && shared != MAP_FAILED && own != MAP_FAILED, "mmap");
	touch(p, 1);
	touch(p + 4096, 0);
	touch(p + 4096, 1);
	touch(shared, 0);
	touch(shared, 1);
	touch(own, 0);
	touch(own, 1);
	must(mprotect(p, 4096, PROT_READ) == 0 && mprotect(p, 4096, PROT_READ | PROT_WRITE) == 0,
	     "mprotect");
	touch(p, 1);
	munmap(p, 16384);
	munmap(shared, 4096);
	munmap(own, 4096);
}

static void *serve(void *argument)
{
	struct uffd_msg message;
	int fd = (int)(intptr_t)argument;

	while (read(fd, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_zeropage page = {
			.range = { message.arg.pagefault.address & ~4095UL, 4096 },
		};

		ioctl(fd, UFFDIO_ZEROPAGE, &page);
	}
	return NULL;
}

static void userfaults(void)
{
	static char *p;
	static int fd;

	if (!p) {
		struct uffdio_api api = { .api = UFFD_API };
		struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
		pthread_t server;

		fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
		must(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0, "userfaultfd");
		p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		range.range.start = (uintptr_t)p;
		range.range.len = 8192;
		must(ioctl(fd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
		must(pthread_create(&server, NULL, serve, (void *)(intptr_t)fd) == 0, "thread");
	}
	must(madvise(p, 8192, MADV_DONTNEED) == 0, "madvise");
	touch(p, 1);
	touch(p + 4096, 0);
	did(UFFD, 2);
}

static volatile sig_atomic_t handled;

// Each of the faulting instructions is two bytes long.
static void on_signal(int sig, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	handled++;
	if (sig == SIGSEGV || sig == SIGILL || sig == SIGFPE)
		c->uc_mcontext.gregs[REG_RIP] += 2;
	count(turns / 4);
}

static void signals(void)
{
	int before = handled;

	count(turns);
	raise(SIGUSR1);
	setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { 0, 300 } }, NULL);
	for (int i = 0; handled < before + 2 && i < 100000; i++)
		count(turns);
	must(handled == before + 2, "two signals");
	did(SIGNALS, 2);
}

static void exceptions(void)
{
	int before = handled;

	count(turns);
	__asm__ volatile("hlt; nop" : : : "memory");	/* #GP */
	count(turns);
	__asm__ volatile("ud2" : : : "memory");		/* #UD */
	count(turns);
	__asm__ volatile("divl %1" : : "a"(1), "r"(0), "d"(0) : "cc");	/* #DE */
	must(handled == before + 3, "three exceptions");
	did(TRAPS, 3);
}

static void forks(char *self)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		count(turns);
		*(volatile char *)buffer = 1;
		_exit(7);
	}
	must(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "fork");
	did(FORKS, 1);
	child = vfork();
	if (child == 0) {
		execl(self, self, "nothing", NULL);
		_exit(1);
	}
	must(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 8, "exec");
	did(EXECS, 1);
}

static void traces(void)
{
	int status, stops = 0;
	pid_t child = fork();

	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		count(turns);
		_exit(0);
	}
	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
		ptrace(stops < 20 ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL);
		stops++;
	}
	must(stops >= 20, "traced stops");
	did(TRACES, stops);
}

// One read of /dev/zero, by a worker of the kernel.
static void uring(void)
{
	static struct io_uring_params params;
	static struct io_uring_sqe *entries;
	static char *ring;
	static int fd = -1;

	if (fd == -1) {
		fd = syscall(SYS_io_uring_setup, 4, &params);
		if (fd < 0)
			fd = -2;	/* not here */
		if (fd < 0)
			return;
		ring = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		entries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x10000000);
		must(ring != MAP_FAILED && entries != MAP_FAILED, "io_uring");
	}
	if (fd < 0)
		return;
	unsigned int *tail = (unsigned int *)(ring + params.sq_off.tail);
	unsigned int *array = (unsigned int *)(ring + params.sq_off.array);
	unsigned int *head = (unsigned int *)(ring + params.cq_off.head);
	unsigned int *complete = (unsigned int *)(ring + params.cq_off.tail);

	entries[0] = (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = zero,
		.flags = IOSQE_ASYNC, .addr = (uintptr_t)buffer, .len = 4096 };
	array[*tail & 3] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	must(syscall(SYS_io_uring_enter, fd, 1, 0, 0, NULL, 0) == 1, "io_uring_enter");
	while (__atomic_load_n(complete, __ATOMIC_ACQUIRE) == *head)
		count(turns);
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	did(URING, 1);
}

static void guest(char *self, double end)
{
	struct sigaction act = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	int all[] = { SIGUSR1, SIGALRM, SIGSEGV, SIGILL, SIGFPE };

	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		sigaction(all[i], &act, NULL);
	prepare();
	for (long round = 0; now() < end; round++) {
		for (int n = 0; n < nr_calls; n++) {
			count(turns);
			call(n);
		}
		did(CALLS, nr_calls);
		faults();
		// What takes long is done less often, and each at first.
		if (round % 8)
			continue;
		userfaults();
		signals();
		exceptions();
		uring();
		if (round % 64)
			continue;
		forks(self);
		traces();
	}
}

int main(int argc, char **argv)
{
	int status, failed = 0;

	if (argc == 2)
		return 8;
	if (argc != 4)
		return 2;
	int processes = atoi(argv[1]);
	double end = now() + atof(argv[2]);

	turns = strtoul(argv[3], NULL, 0);
	done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < processes; i++) {
		if (fork() == 0) {
			guest(argv[0], end);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		failed |= status;
	printf("%d kinds of system calls\n", nr_calls);
	for (int kind = 0; kind < NR_KINDS; kind++)
		printf("%ld %s\n", done[kind], kinds[kind]);
	return failed ? 1 : 0;
}
