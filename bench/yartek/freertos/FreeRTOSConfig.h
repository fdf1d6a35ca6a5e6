/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* As small and as fast as FreeRTOS gets here: what the program does not use is off. */
#ifndef FREERTOS_CONFIG_H
#define FREERTOS_CONFIG_H

#define configCPU_CLOCK_HZ 25000000
#define configTICK_RATE_HZ 1000
#define configTICK_TYPE_WIDTH_IN_BITS TICK_TYPE_WIDTH_32_BITS
#define configUSE_PREEMPTION 1
#define configUSE_TIME_SLICING 0
#define configUSE_PORT_OPTIMISED_TASK_SELECTION 1
#define configIDLE_SHOULD_YIELD 0
#define configUSE_IDLE_HOOK 1
#define configUSE_TICK_HOOK 0
#define configMAX_PRIORITIES 3
#define configMAX_TASK_NAME_LEN 2
/* In words. */
#define configMINIMAL_STACK_SIZE 128
#define configSUPPORT_STATIC_ALLOCATION 1
#define configSUPPORT_DYNAMIC_ALLOCATION 0
#define configKERNEL_PROVIDED_STATIC_MEMORY 1
#define configUSE_TASK_NOTIFICATIONS 1
#define configUSE_MUTEXES 0
#define configUSE_TIMERS 0
#define configUSE_TRACE_FACILITY 0
#define configQUEUE_REGISTRY_SIZE 0
#define configCHECK_FOR_STACK_OVERFLOW 0
#define configCHECK_HANDLER_INSTALLATION 0
/* Interrupts of this priority and below may call the kernel. Three bits count. */
#define configMAX_SYSCALL_INTERRUPT_PRIORITY 0x20

#define INCLUDE_xTaskDelayUntil 1
/* A task waits for its interrupt without end. */
#define INCLUDE_vTaskSuspend 1
#define INCLUDE_vTaskDelay 0
#define INCLUDE_vTaskDelete 0
#define INCLUDE_vTaskPrioritySet 0
#define INCLUDE_uxTaskPriorityGet 0
#define INCLUDE_xTaskGetSchedulerState 0

#endif
