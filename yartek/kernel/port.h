/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a board gives the kernel, and what it calls. port/NAME has it for the board NAME.
 *
 * Interrupt priorities, from the lowest: the alarm; all handlers that raise lines, alike; the
 * guard; what counts the wraps of the clock.
 */
#ifndef YK_PORT_H
#define YK_PORT_H

#include "yartek.h"

/* --- The port's. --- */

/* What the clock begins with. Tests begin just before it wraps. */
#ifndef YK_CLOCK_BEGIN
#define YK_CLOCK_BEGIN 0
#endif

/* Starts the clock at YK_CLOCK_BEGIN, and prepares the alarm. */
void yk_port_start(void);
/* It never goes back, at whichever level it is read, but for the one that counts wraps. */
yk_ticks yk_port_now(void);
/*
 * Calls yk_alarm() then, or before: a timer may not reach so far. Replaces the alarm before.
 * `false`: then is not ahead, and no alarm is set. Only yk_alarm() and yk_run() may call it.
 */
bool yk_port_alarm(yk_ticks at);
/* For handlers: calls yk_alarm() as soon as no other handler and no yk_alarm() runs. */
void yk_port_alarm_now(void);
/*
 * For all but the background: the background looks for work once more before it sleeps. Sets
 * yk_woken.
 */
void yk_port_wake(void);
/* For the background: waits for an interrupt, unless yk_woken is set. */
void yk_port_sleep(void);
/* Keeps the source of a line from interrupting: for its handler; and the contrary. */
void yk_port_mask(uint32_t line);
void yk_port_unmask(uint32_t line);
/*
 * `handler` is called when the source interrupts, and raises the line. Its declaration begins with
 * YK_HANDLER. To be called before yk_run().
 */
void yk_port_attach(uint32_t line, uint32_t source, void (*handler)(void));
/* A byte for the console. `false`: not now. */
bool yk_port_put(uint8_t byte);
/*
 * The serial line, which is not the console. modules/serial.c calls these, all but
 * yk_port_serial_ask() from its handler.
 *
 * Prepares it: `handler` is called when a byte has come, and when it is asked for. To be called
 * before yk_run().
 */
void yk_port_serial_start(uint32_t line, void (*handler)(void));
/* Takes a byte, and acknowledges it. `false`: none has come. */
bool yk_port_serial_take(uint8_t *byte);
/* May a byte be given? */
bool yk_port_serial_has_room(void);
/* Gives a byte. The handler is called again once there is room. */
void yk_port_serial_give(uint8_t byte);
/* There is no byte to give: the handler is not called for room until it is asked for. */
void yk_port_serial_rest(void);
/* For the levels below: the handler is called once there is room. */
void yk_port_serial_ask(void);
/*
 * For modules/thread.c. The first keeps the registers on the stack, and its pointer in `keep`, and
 * goes on with the stack of the other pointer. The second makes a pointer with which that calls
 * `begin`; its stack ends at `top`.
 */
void yk_port_switch(void **keep, void *pointer);
void *yk_port_stack_for(uint32_t *top, void (*begin)(void));
/*
 * For modules/program.c. The image's section .text, which does not change while it runs, and where
 * it ends. What has been written to memory may be executed after the call.
 */
extern const uint8_t yk_port_text[], yk_port_text_end[];
void yk_port_new_code(void);
/* For modules/stack.c: where the variables end, and where the main stack begins, above them. */
extern uint32_t yk_port_bss_end[], yk_port_stack[];
/* Leaves an emulator with that exit code. On a board it waits for ever. */
_Noreturn void yk_port_exit(int code);
/* A job of yk_spin() looks at the clock and ends within so many ticks. */
extern const uint32_t yk_port_spin_ticks;

#ifdef __mcoldfire__
#define YK_HANDLER __attribute__((interrupt_handler))
#else
#define YK_HANDLER
#endif

/* --- The kernel's, for the port. --- */

/* From the alarm's interrupt: runs jobs. */
void yk_alarm(void);
/* Above jobs and handlers, each 50 ms or so: looks at the job that runs. */
void yk_guard(void);
/* Does any task ask for the guard? */
bool yk_is_guarded(void);
/* The processor refuses the instruction there. */
void yk_trap(uintptr_t address);
/* All levels set it. The background alone clears it, just before it looks for work. */
extern volatile uint32_t yk_woken;

/* --- Between kernel files. --- */

/* Serves the first line of the queue. `false`: there is none. */
bool yk_serve(void);

#endif
