// SPDX-License-Identifier: Apache-2.0 OR MIT
// gates GATE SECONDS: system calls by ways that do not look like one. Each is made from user mode
// on a CPU from 2 on, as the CPU's own segment limit says, which needs no call. Prints how many
// calls began there, and for those of getcpu() how many bodies ran there.
//
//     native     SYSCALL
//     int80      INT 0x80, the gate of 32-bit programs
//     rewritten  the same, whose code another thread writes over all the time
//     negative   SYSCALL with the number -1: only a filter of seccomp runs
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 2, GETCPU_64 = 309, GETCPU_32 = 318 };

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

// The kernel puts the CPU's number there for getcpu() of the vDSO.
static unsigned cpu_of_user_mode(void)
{
	unsigned limit;

	__asm__ volatile("lsl %1, %0" : "=r"(limit) : "r"(0x7b));
	return limit & 0xfff;
}

static bool arrives(double end)
{
	while (cpu_of_user_mode() < FIRST) {
		for (volatile int n = 0; n < 10000; n++)
			;
		if (now() > end)
			return false;
	}
	return true;
}

// `int $0x80; ret` in memory that may be written. The other thread puts in two `nop` instead.
static unsigned char *gate;

static void *rewrite(void *unused)
{
	(void)unused;
	for (;;) {
		*(volatile unsigned short *)gate = 0x9090;
		for (volatile int n = 0; n < 20; n++)
			;
		*(volatile unsigned short *)gate = 0x80cd;
		for (volatile int n = 0; n < 20; n++)
			;
	}
	return NULL;
}

// A processor may read one byte before and one after it is written over. What comes of that is no
// call.
static sigjmp_buf behind;

static void torn(int signal)
{
	siglongjmp(behind, signal);
}

static void by_gate(int *cpu)
{
	long number = GETCPU_32;

	__asm__ volatile("call *%1"
			 : "+a"(number)
			 : "r"(gate), "b"(cpu), "c"(0), "d"(0)
			 : "memory", "r8", "r9", "r10", "r11", "cc");
}

static void filter(void)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { 1, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) {
		perror("seccomp");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	bool negative = !strcmp(argv[1], "negative"), native = !strcmp(argv[1], "native");
	double end = now() + atof(argv[2]);
	long began = 0, ran = 0;
	pthread_t thread;
	int *cpu = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_POPULATE, -1, 0);

	gate = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	memcpy(gate, "\xcd\x80\xc3", 3);
	if (negative)
		filter();
	if (!strcmp(argv[1], "rewritten")) {
		signal(SIGSEGV, torn);
		signal(SIGILL, torn);
		pthread_create(&thread, NULL, rewrite, NULL);
	}
	while (now() < end && arrives(end)) {
		*cpu = -1;
		if (sigsetjmp(behind, 1))
			continue;
		if (native)
			syscall(GETCPU_64, cpu, NULL, NULL);
		else if (negative)
			syscall(-1);
		else
			by_gate(cpu);
		// Of the gate that was written over, no call was made.
		began += negative || *cpu >= 0;
		ran += *cpu >= FIRST;
	}
	printf("%ld %ld\n", began, ran);
	return 0;
}
