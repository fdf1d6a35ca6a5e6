// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's classic: a real-time thread counts in shared memory, and any process may read
 * along. Only names of RTLinux. */
#include <linux/module.h>
#include <linux/kernel.h>
#include <rtl.h>
#include <rtl_sched.h>
#include <mbuff.h>
#include <pthread.h>

#include "mbuff_counter.h"

#define PERIOD_NS 1000000

static pthread_t thread;
static volatile struct counter *counter;

static void *count(void *unused)
{
	pthread_make_periodic_np(pthread_self(), gethrtime(), PERIOD_NS);
	while (1) {
		pthread_wait_np();
		counter->number++;
		counter->at_ns = gethrtime();
	}
	return unused;
}

int init_module(void)
{
	counter = mbuff_alloc(NAME, sizeof(*counter));
	if (counter == NULL)
		return -ENOMEM;
	return pthread_create(&thread, NULL, count, NULL);
}

void cleanup_module(void)
{
	pthread_delete_np(thread);
	mbuff_free(NAME, (void *)counter);
}
