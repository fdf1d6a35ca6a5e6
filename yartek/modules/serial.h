/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The board's serial line, which is not the console: bytes in both directions, by interrupts.
 *
 * Each interrupt takes a byte, gives a byte, or both, and raises a line. In the task file `gap` is
 * the time of half a byte, at 9600 baud and with ten bits a byte 520 us, and `flag` is 2 us: what
 * the handler takes beyond one that raises and does nothing else. `most` is at least the number of
 * these gaps in the longest time that the background waits: while the line is masked, a device that
 * holds few bytes loses those that come.
 */
#ifndef YK_SERIAL_H
#define YK_SERIAL_H

#include <stdbool.h>
#include <stdint.h>

/* How many bytes wait to be read, and to be sent: a power of 2. */
#ifndef YK_SERIAL_IN
#define YK_SERIAL_IN 512
#endif
#ifndef YK_SERIAL_OUT
#define YK_SERIAL_OUT 512
#endif

/* Begins to listen. Its interrupts raise this line. To be called before yk_run(). */
void yk_serial_begin(uint32_t line);
/* For the background alone: takes a byte that has come. `false`: there is none. */
bool yk_serial_get(uint8_t *byte);
/* For the background alone: sends a byte. `false`, and it is not sent: there is no room. */
bool yk_serial_put(uint8_t byte);
/* How many bytes there are to get, and for how many more there is room. */
uint32_t yk_serial_length(void);
uint32_t yk_serial_room(void);
/* How many bytes came and found no room. It wraps. */
uint32_t yk_serial_lost(void);

#endif
