/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A shell on the serial line, with a disk, and programs that it begins: some of this image, and
 * those that `asmp yartek program` sends to the disk.
 */
#include "yartek.h"

#include "serial.h"
#include "shell.h"
#include "stack.h"
#include "trace.h"

#include <stddef.h>

enum { SERIAL_LINE = 0, BLOCKS = 48, FILES = 4, HANDLES = 2, STACK = 512, PLACES = 2, AREA = 512,
       MAIN_STACK = 4096 };

static struct yk_disk_block blocks[BLOCKS];
static struct yk_disk_file files[FILES];
static struct yk_disk_handle handles[HANDLES];
static struct yk_disk disk = {
	.blocks = blocks,
	.files = files,
	.handles = handles,
	.blocks_count = BLOCKS,
	.files_count = FILES,
	.handles_count = HANDLES,
};

/* Appends a line to a file. */
static void note(void *argument)
{
	static const char line[] = "all is well\n";
	uint32_t handle, done;
	char byte;

	(void)argument;
	if (yk_disk_open(&disk, "log", YK_DISK_MAKE, &handle) != YK_DISK_OK)
		return;
	do
		yk_disk_read(&disk, handle, &byte, 1, &done);
	while (done);
	if (yk_disk_write(&disk, handle, line, sizeof line - 1, &done) != YK_DISK_OK)
		yk_shell_text("the disk is full\r\n");
	yk_disk_close(&disk, handle);
}

/* Has a turn whenever the others have had one, until it is killed. */
static void spin(void *argument)
{
	(void)argument;
	for (;;)
		yk_thread_yield();
}

static void end(void *argument)
{
	(void)argument;
	/* That is over: what is left of the trace is printed, and the emulator ends. */
	yk_trace_until = 1;
}

static const struct yk_program programs[] = {
	{ "note", "append a line to the file `log`", note, NULL },
	{ "spin", "have turns until it is killed", spin, NULL },
	{ "end", "leave the emulator", end, NULL },
};
static uint32_t stacks[1 + PLACES][STACK];
static struct yk_place places[PLACES] = {
	{ .stack = stacks[1], .words = STACK },
	{ .stack = stacks[2], .words = STACK },
};
static uint32_t area_words[AREA];
/* `asmp yartek program` finds it by its name. */
struct yk_area yk_program_area = {
	.words = area_words,
	.size = sizeof area_words,
	.load = yk_program_load,
};
static struct yk_shell shell = {
	.programs = programs,
	.programs_count = sizeof programs / sizeof *programs,
	.places = places,
	.places_count = PLACES,
	.disk = &disk,
	.area = &yk_program_area,
};

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	yk_trace_fault(why, job, address);
}

void yk_ended(const struct yk_job *job, yk_ticks end)
{
	yk_trace_keep(job, end);
}

bool yk_background(void)
{
	bool is_busy = yk_threads_run();

	yk_stack_look();
	return yk_trace_print() || is_busy;
}

int main(void)
{
	static struct yk_thread thread;

	yk_stack_watch(MAIN_STACK);
	yk_disk_begin(&disk);
	yk_thread_begin(&thread, "shell", yk_shell, &shell, stacks[0], STACK);
	yk_serial_begin(SERIAL_LINE);
	yk_run();
}
