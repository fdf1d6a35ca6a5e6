/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Programs that are not in the image: a file of the disk holds one, and it runs in an area of RAM.
 * `asmp yartek program` links it for that area of one image, whose functions it may call, and sends
 * the file.
 *
 * The file: eight words, the first byte of each the highest, then the bytes for the begin of the
 * area.
 *   magic    `YKP1`
 *   machine  e_machine of ELF: the processor
 *   address  of the area
 *   count    bytes that follow
 *   size     bytes in the area: with those that begin as zero
 *   entry    address of program()
 *   image    CRC-32 of the image's .text
 *   check    CRC-32 of all before, then of the bytes that follow
 *
 * There is no memory protection: a program may do what the image may.
 */
#ifndef YK_PROGRAM_H
#define YK_PROGRAM_H

#include "ramdisk.h"

/* The application's, which calls it yk_program_area: where such a program runs, one at a time. */
struct yk_area {
	uint32_t *words;
	uint32_t size;
	/* yk_program_load. An image without such programs does not name it, and has nothing of it. */
	const char *(*load)(struct yk_area *area, struct yk_disk *disk, const char *name);
	/* Of the program in it. */
	char name[YK_DISK_NAME + 1];
	void (*run)(void *argument);
};

/*
 * For threads: reads the program of that name into the area. `run` is its function then. Another
 * must not run there. It gives other threads a turn after each 64 bytes. NULL: it is done. Else it
 * says why not: a line, without its end. The area then has no program.
 */
const char *yk_program_load(struct yk_area *area, struct yk_disk *disk, const char *name);

#endif
