/* RTLinux's classic: what comes in by FIFO 1 goes out by FIFO 2, through a real-time thread that the FIFO's handler
 * wakes. Only names of RTLinux. */
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
	int count;

	while (1) {
		pthread_wait_np();
		while (!rtf_isempty(IN)) {
			count = rtf_get(IN, bytes, sizeof(bytes));
			if (count > 0 && rtf_put(OUT, bytes, count) != count)
				rtl_printf("fifo echo: %d bytes lost\n", count);
		}
	}
	return unused;
}

static int written(unsigned int fifo)
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
		result = rtf_create_handler(IN, written);
	return result;
}

void cleanup_module(void)
{
	rtf_destroy(IN);
	pthread_delete_np(thread);
	rtf_destroy(OUT);
}
