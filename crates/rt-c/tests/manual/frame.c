// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Around the uses of uses.txt, which stand in place of the line USES. */
#include <rtl.h>
#include <rtl_cond.h>
#include <rtl_conf.h>
#include <rtl_debug.h>
#include <rtl_fifo.h>
#include <rtl_mutex.h>
#include <rtl_posix.h>
#include <rtl_sema.h>
#include <rtl_signal.h>
#include <rtl_spinlock.h>
#include <rtl_sync.h>
#include <rtl_wait.h>
#include <rtlinux_signal.h>
#include <mbuff.h>
#include <mqueue.h>

static pthread_t thread;
static pthread_attr_t attributes;
static pthread_key_t key;
static pthread_mutex_t mutex;
static pthread_mutexattr_t kind;
static pthread_cond_t condition;
static sem_t semaphore;
static struct sched_param parameters;
static struct itimerspec period;
static struct timespec time_of, other;
static struct sigaction action;
static struct rtlinux_sigaction psc_action;
static rtlinux_sigset_t psc_set;
static rtl_sigset_t set;
static mqd_t queue;
static struct mq_attr queue_attributes;
static pthread_spinlock_t spin;
static rtl_spinlock_t lock;
static rtl_irqstate_t flags;
static hrtime_t now;
static size_t size;
static int number;
static void *memory;
static char buffer[8];

static void *routine(void *argument)
{
	return argument;
}

static void cleanup(void *argument)
{
	memory = argument;
}

static void handler(int signal)
{
	number = signal;
}

static int on_access(unsigned int fifo)
{
	return (int)fifo;
}

static unsigned int on_interrupt(unsigned int irq, struct pt_regs *registers)
{
	return registers ? irq : 0;
}

static void on_soft(int irq, void *ignored, struct pt_regs *registers)
{
	number = ignored || registers ? irq : 0;
}

#define time time_of

USES

int main(int argc, char **argv)
{
	size_t at;

	for (at = 0; argc == 2 && at < sizeof(uses) / sizeof(uses[0]); at++)
		if (strcmp(argv[1], uses[at].name) == 0)
			uses[at].use();
	return 0;
}
