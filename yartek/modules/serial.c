/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  bytes come while jobs run, and go when the device has room; neither may wait for the
 *           background, and the background may not wait for them.
 * Approach: a ring each way. The handler has one end of both. It asks the device to interrupt for
 *           room no longer once there is nothing to send; the background asks anew after each byte,
 *           so that it needs not know.
 */
#include "serial.h"

#include "port.h"

static volatile uint8_t in_bytes[YK_SERIAL_IN];
static volatile uint8_t out_bytes[YK_SERIAL_OUT];
static struct yk_ring in = { .bytes = in_bytes, .size = YK_SERIAL_IN };
static struct yk_ring out = { .bytes = out_bytes, .size = YK_SERIAL_OUT };
static uint32_t line;

/* A byte each way at most: the device interrupts again, and jobs run in between. */
static void YK_HANDLER on_interrupt(void)
{
	uint8_t byte;

	if (yk_port_serial_take(&byte))
		yk_ring_put(&in, byte);
	if (yk_port_serial_has_room()) {
		if (yk_ring_get(&out, &byte))
			yk_port_serial_give(byte);
		else
			yk_port_serial_rest();
	}
	yk_raise(line);
}

void yk_serial_begin(uint32_t of)
{
	line = of;
	yk_port_serial_start(line, on_interrupt);
}

bool yk_serial_get(uint8_t *byte)
{
	return yk_ring_get(&in, byte);
}

bool yk_serial_put(uint8_t byte)
{
	/* Not by yk_ring_put(): what finds no room is not lost here. */
	if (!yk_serial_room())
		return false;
	yk_ring_put(&out, byte);
	yk_port_serial_ask();
	return true;
}

uint32_t yk_serial_length(void)
{
	return yk_ring_length(&in);
}

uint32_t yk_serial_room(void)
{
	return out.size - yk_ring_length(&out);
}

uint32_t yk_serial_lost(void)
{
	return in.refused;
}
