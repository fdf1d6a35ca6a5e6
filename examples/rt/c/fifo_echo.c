// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's classic: what comes in by FIFO 1 goes out by FIFO 2, through a real-time thread that
 * their handlers wake. Only names of RTLinux. */
#include <linux/module.h>
#include <linux/kernel.h>
#include <rtl.h>
#include <rtl_sched.h>
#include <rtl_fifo.h>
#include <pthread.h>

#define IN 1
#define OUT 2
#define SIZE 4000

static pthread_t thread;

static void *echo(void *unused)
{
	char bytes[256];
	int count = 0;

	while (1) {
		pthread_wait_np();
		while (1) {
			if (count <= 0)
				count = rtf_get(IN, bytes, sizeof(bytes));
			if (count <= 0)
				break;
			/* All or nothing: what does not fit is kept until somebody has read. */
			if (rtf_put(OUT, bytes, count) != count)
				break;
			count = 0;
		}
	}
	return unused;
}

/* Somebody has written to IN or read from OUT. */
static int accessed(unsigned int fifo)
{
	return pthread_wakeup_np(thread);
}

int init_module(void)
{
	int result = rtf_create(IN, SIZE);

	if (result == 0)
		result = rtf_create(OUT, SIZE);
	if (result == 0)
		result = pthread_create(&thread, NULL, echo, NULL);
	if (result == 0)
		result = rtf_create_handler(IN, accessed);
	if (result == 0)
		result = rtf_create_handler(OUT, accessed);
	/* For what came before there were handlers. */
	if (result == 0)
		result = accessed(IN);
	return result;
}

void cleanup_module(void)
{
	rtf_destroy(IN);
	rtf_destroy(OUT);
	pthread_delete_np(thread);
}
