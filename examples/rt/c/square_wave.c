// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's classic: a square wave of 1 kHz on bit 0 of the parallel port. Only names of
 * RTLinux. */
#include <linux/module.h>
#include <linux/kernel.h>
#include <rtl.h>
#include <time.h>
#include <rtl_sched.h>
#include <pthread.h>
#include <asm/io.h>

#define PORT 0x378
#define HALF_PERIOD_NS 500000

static pthread_t thread;

static void *wave(void *unused)
{
	struct sched_param parameters;
	unsigned char level = 0;

	parameters.sched_priority = 1;
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters);
	pthread_make_periodic_np(pthread_self(), gethrtime(), HALF_PERIOD_NS);
	while (1) {
		pthread_wait_np();
		level ^= 1;
		outb(level, PORT);
	}
	return 0;
}

int init_module(void)
{
	pthread_attr_t attributes;
	struct sched_param parameters;

	pthread_attr_init(&attributes);
	pthread_attr_setcpu_np(&attributes, 0);
	pthread_attr_setfp_np(&attributes, 1);
	parameters.sched_priority = sched_get_priority_max(SCHED_FIFO);
	pthread_attr_setschedparam(&attributes, &parameters);
	return pthread_create(&thread, &attributes, wave, 0);
}

void cleanup_module(void)
{
	pthread_delete_np(thread);
	outb(0, PORT);
	rtl_printf("square wave: done\n");
}
