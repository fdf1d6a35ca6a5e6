/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* FreeRTOS: an interrupt's work in a task of the highest priority, and a periodic task. */
#include "../measure.h"

#include "FreeRTOS.h"
#include "task.h"

#define NVIC_ENABLE WORD(0xe000e100)
#define NVIC_PRIORITY(n) (*(volatile uint8_t *)(0xe000e400 + (n)))
#define SYSTICK_VALUE WORD(0xe000e018)
enum { TICK = configCPU_CLOCK_HZ / configTICK_RATE_HZ };
enum { EXCEPTIONS = 16, IRQS = 32, LINES = 0x80 };

int main(void);
void reset(void);
/* Of the port. */
void vPortSVCHandler(void);
void xPortPendSVHandler(void);
void xPortSysTickHandler(void);
void vApplicationIdleHook(void);
/* The linker's. */
extern uint32_t yk_port_data[], yk_port_data_end[], yk_port_data_load[], yk_port_bss_end[];
extern uint32_t yk_port_stack[];

static StaticTask_t deferred_task, periodic_task;
static StackType_t deferred_stack[configMINIMAL_STACK_SIZE];
static StackType_t periodic_stack[configMINIMAL_STACK_SIZE];
static TaskHandle_t deferred_handle;

static void deferred(void *unused)
{
	(void)unused;
	for (;;) {
		uint32_t now;

		ulTaskNotifyTake(pdTRUE, portMAX_DELAY);
		now = DUAL_VALUE;
		keep(since(now));
	}
}

static void periodic(void *unused)
{
	TickType_t woken = xTaskGetTickCount();

	(void)unused;
	for (;;) {
		uint32_t now;

		xTaskDelayUntil(&woken, pdMS_TO_TICKS(ROUND_MS));
		now = SYSTICK_VALUE;
		/* It counts down from there, and has interrupted at 0. */
		begin_round(TICK - 1 - now);
	}
}

static void interrupted(void)
{
	BaseType_t is_higher = pdFALSE;

	DUAL_CLEAR = 1;
	vTaskNotifyGiveFromISR(deferred_handle, &is_higher);
	portYIELD_FROM_ISR(is_higher);
}

void vApplicationIdleHook(void)
{
	if (!trigger())
		__asm__ volatile("dsb\n\twfi");
}

int main(void)
{
	deferred_handle = xTaskCreateStatic(deferred, "", configMINIMAL_STACK_SIZE, NULL, 2,
					    deferred_stack, &deferred_task);
	xTaskCreateStatic(periodic, "", configMINIMAL_STACK_SIZE, NULL, 1, periodic_stack,
			  &periodic_task);
	NVIC_PRIORITY(DUAL_IRQ) = NVIC_PRIORITY(WATCHED_IRQ) = LINES;
	NVIC_ENABLE = 1 << DUAL_IRQ | 1 << WATCHED_IRQ;
	start();
	vTaskStartScheduler();
	return 1;
}

#ifndef SMALL
static void watched(void)
{
	uint32_t now = DUAL_VALUE;

	keep(since(now));
}
#endif

static void trap(void)
{
	for (;;)
		;
}

void reset(void)
{
	const uint32_t *from = yk_port_data_load;
	uint32_t *to = yk_port_data;

	while (to < yk_port_data_end)
		*to++ = *from++;
	while (to < yk_port_bss_end)
		*to++ = 0;
	main();
}

static const union {
	uint32_t *stack;
	void (*handler)(void);
} vectors[EXCEPTIONS + IRQS] __attribute__((section(".vectors"), used)) = {
	[0].stack = yk_port_stack,
	[1].handler = reset,
	[2 ... 10].handler = trap,
	[11].handler = vPortSVCHandler,
	[14].handler = xPortPendSVHandler,
	[15].handler = xPortSysTickHandler,
	[EXCEPTIONS + DUAL_IRQ].handler = interrupted,
#ifndef SMALL
	[EXCEPTIONS + WATCHED_IRQ].handler = watched,
#endif
};
