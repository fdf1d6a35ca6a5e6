/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  a program calls functions of the image by their addresses. One that was linked for
 *           another image, or came damaged, would do anything.
 * Approach: it says which image it is for, by a checksum of that image's code, and this computes
 *           the same of the image that runs. What the header says is believed where it cannot lead
 *           out of the area; the rest once the checksum of all is right.
 */
#include "program.h"

#include "port.h"
#include "thread.h"

#include <stddef.h>

enum { MAGIC, MACHINE, ADDRESS, COUNT, SIZE, ENTRY, IMAGE, CHECK, WORDS };
enum { FIRST = 0x594b5031, PIECE = 64 };

/* CRC-32 as Ethernet and ZIP have it: from 0, and over further bytes from the sum so far. */
static uint32_t sum(uint32_t before, const uint8_t *bytes, uint32_t count)
{
	uint32_t crc = ~before;

	for (uint32_t n = 0; n < count; n++) {
		crc ^= bytes[n];
		for (uint32_t bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
		if (n % PIECE == PIECE - 1)
			yk_thread_yield();
	}
	return ~crc;
}

static uint32_t word(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

static const char *of_file(struct yk_area *area, struct yk_disk *disk, uint32_t handle)
{
	static const char damaged[] = "damaged: send it anew";
	uint8_t header[4 * WORDS], *bytes = (uint8_t *)area->words;
	uint32_t words[WORDS], done = 0, check;
	uint32_t address = (uint32_t)(uintptr_t)bytes;
	uint32_t code = (uint32_t)((uintptr_t)yk_port_text_end - (uintptr_t)yk_port_text);

	yk_disk_read(disk, handle, header, sizeof header, &done);
	for (uint32_t n = 0; n < WORDS; n++)
		words[n] = word(header + 4 * n);
	if (done < sizeof header || words[MAGIC] != FIRST)
		return "no program: asmp yartek program makes one";
	if (words[MACHINE] != YK_MACHINE)
		return "a program for another processor: make it for this board";
	if (words[IMAGE] != sum(0, yk_port_text, code) || words[ADDRESS] != address)
		return "a program for another image: make it for the one that runs";
	if (words[SIZE] > area->size || words[COUNT] > words[SIZE])
		return "too long for the area of programs";
	check = sum(0, header, 4 * CHECK);
	for (uint32_t at = 0; at < words[COUNT]; at += done) {
		uint32_t left = words[COUNT] - at;

		yk_disk_read(disk, handle, bytes + at, left < PIECE ? left : PIECE, &done);
		if (!done)
			return damaged;
		check = sum(check, bytes + at, done);
	}
	if (check != words[CHECK] || words[ENTRY] - address >= words[COUNT])
		return damaged;
	for (uint32_t at = words[COUNT]; at < words[SIZE]; at++)
		bytes[at] = 0;
	yk_port_new_code();
	area->run = (void (*)(void *))(uintptr_t)words[ENTRY];
	return NULL;
}

const char *yk_program_load(struct yk_area *area, struct yk_disk *disk, const char *name)
{
	const char *why;
	uint32_t handle, n = 0;

	area->run = NULL;
	if (yk_disk_open(disk, name, YK_DISK_OLD, &handle) != YK_DISK_OK)
		return "no such program: help and ls list them";
	do
		area->name[n] = name[n];
	while (name[n++]);
	why = of_file(area, disk, handle);
	yk_disk_close(disk, handle);
	return why;
}
