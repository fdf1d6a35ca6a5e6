/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "shell.h"

#include "serial.h"
#include "stack.h"

#include <stddef.h>

enum { LINE = 100, WORDS = 3, COLUMN = 10 };

/* Of the table that asmp has made, in the order of the task file. Other tables may lack them. */
extern const char *const yk_task_names[] __attribute__((weak));
extern const char *const yk_line_names[] __attribute__((weak));

static bool has_room(void *none)
{
	(void)none;
	return yk_serial_room();
}

static bool has_come(void *none)
{
	(void)none;
	return yk_serial_length();
}

void yk_shell_byte(char byte)
{
	while (!yk_serial_put((uint8_t)byte))
		yk_thread_wait(has_room, NULL);
}

void yk_shell_text(const char *text)
{
	while (*text)
		yk_shell_byte(*text++);
}

/* Digits at the end of `room`. */
static const char *digits(uint32_t number, char room[COLUMN + 1])
{
	char *at = room + COLUMN;

	*at = '\0';
	do {
		*--at = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	return at;
}

void yk_shell_decimal(uint32_t number)
{
	char room[COLUMN + 1];

	yk_shell_text(digits(number, room));
}

static uint32_t length(const char *text)
{
	uint32_t n = 0;

	while (text[n])
		n++;
	return n;
}

static void blanks(uint32_t count)
{
	while (count--)
		yk_shell_byte(' ');
}

/* In a column, to the left and to the right. */
static void left(const char *text, uint32_t width)
{
	uint32_t is = length(text);

	yk_shell_text(text);
	blanks(is < width ? width - is : 1);
}

static void right(const char *text)
{
	uint32_t is = length(text);

	blanks(is < COLUMN ? COLUMN - is : 1);
	yk_shell_text(text);
}

static void number(uint32_t number)
{
	char room[COLUMN + 1];

	right(digits(number, room));
}

/* More than it can show is `long`. */
static void ticks(yk_ticks ticks)
{
	if (ticks >> 32)
		right("long");
	else
		number((uint32_t)ticks);
}

static void end(void)
{
	yk_shell_text("\r\n");
}

static void say(const char *text)
{
	yk_shell_text(text);
	end();
}

static bool is_same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* The name, or the number where there are no names. */
static void name_of(const char *const *names, uint32_t n)
{
	char room[COLUMN + 1];

	left(names ? names[n] : digits(n, room), 20);
}

static void headings(const char *of, const char *const *headings)
{
	left(of, 20);
	while (*headings)
		right(*headings++);
	end();
}

static void stat(const struct yk_shell *shell, char *const unused[])
{
	static const char *const of_tasks[] = { "ended",   "missed",   "skipped",  "over",
						"refused", "lateness", "response", "run",
						NULL };
	static const char *const of_lines[] = { "raised", "served", "masked", NULL };

	(void)shell;
	(void)unused;
	headings("task", of_tasks);
	for (uint32_t n = 0; n < yk_table.tasks_count; n++) {
		/* A job may end meanwhile: each number is one that was true. */
		const struct yk_stats *stats = yk_stats(n);

		name_of(yk_task_names, n);
		number(stats->ended);
		number(stats->missed);
		number(stats->skipped);
		number(stats->over_budget);
		number(stats->refused);
		ticks(stats->lateness);
		ticks(stats->response);
		ticks(stats->run);
		end();
	}
	if (!yk_table.lines_count)
		return;
	headings("line", of_lines);
	for (uint32_t n = 0; n < yk_table.lines_count; n++) {
		const struct yk_line *line = &yk_table.lines[n];

		name_of(yk_line_names, n);
		number(line->raised);
		number(line->served);
		number(line->masked);
		end();
	}
}

static void ps(const struct yk_shell *shell, char *const unused[])
{
	static const char *const states[] = { "ended", "ready", "waits", "sleeps" };
	static const char *const columns[] = { "state", "stack", "unused", NULL };

	(void)shell;
	(void)unused;
	headings("thread", columns);
	for (const struct yk_thread *thread = yk_threads(); thread; thread = thread->next) {
		left(thread->name, 20);
		right(thread->is_suspended ? "suspended" : states[thread->state]);
		number(thread->words);
		number(yk_thread_unused(thread));
		end();
	}
}

static void bytes(const char *of, uint32_t count)
{
	left(of, 28);
	number(count);
	say(" bytes");
}

static void mem(const struct yk_shell *shell, char *const unused[])
{
	(void)unused;
	if (shell->heap)
		bytes("heap, largest block", yk_heap_largest(shell->heap));
	if (shell->disk)
		bytes("RAM disk, free", yk_disk_free(shell->disk) * YK_DISK_BLOCK);
	if (yk_stack_is_watched())
		bytes("main stack, never used", yk_stack_unused());
	bytes("serial line, lost", yk_serial_lost());
}

static void ls(const struct yk_shell *shell, char *const unused[])
{
	const struct yk_disk_file *file;
	uint32_t at = 0;

	(void)unused;
	if (!shell->disk) {
		say("no disk");
		return;
	}
	while ((file = yk_disk_list(shell->disk, &at)) != NULL) {
		left(file->name, 20);
		number(file->length);
		end();
	}
}

static void cat(const struct yk_shell *shell, char *const words[])
{
	uint32_t handle, done;
	char byte;

	if (!shell->disk || yk_disk_open(shell->disk, words[1], YK_DISK_OLD, &handle) != YK_DISK_OK) {
		say("no such file, or too many are open: ls lists the files");
		return;
	}
	while (yk_disk_read(shell->disk, handle, &byte, 1, &done) == YK_DISK_OK && done) {
		if (byte == '\n')
			yk_shell_byte('\r');
		yk_shell_byte(byte);
	}
	yk_disk_close(shell->disk, handle);
}

static void rm(const struct yk_shell *shell, char *const words[])
{
	if (!shell->disk || yk_disk_unlink(shell->disk, words[1]) != YK_DISK_OK)
		say("no such file, or it is open: ls lists the files");
}

/* 0 to 15. Else: it is no digit. */
static uint32_t digit(char of)
{
	if (of >= '0' && of <= '9')
		return (uint32_t)(of - '0');
	return of >= 'a' && of <= 'f' ? (uint32_t)(of - 'a' + 10) : 16;
}

/* How many bytes, which are written over the digits. LINE: they are no bytes. */
static uint32_t bytes_of(char *digits)
{
	uint32_t count = 0;

	for (const char *at = digits; *at; at += 2) {
		uint32_t high = digit(at[0]), low = at[1] ? digit(at[1]) : 16;

		if (high > 15 || low > 15)
			return LINE;
		digits[count++] = (char)(high << 4 | low);
	}
	return count;
}

static void append(const struct yk_shell *shell, char *const words[])
{
	uint32_t handle, done, count = bytes_of(words[2]);
	char byte;

	if (count == LINE) {
		say("bytes are pairs of the digits 0-9 and a-f");
		return;
	}
	if (!shell->disk ||
	    yk_disk_open(shell->disk, words[1], YK_DISK_MAKE, &handle) != YK_DISK_OK) {
		say("not written: the name is too long, or there are too many files");
		return;
	}
	while (yk_disk_read(shell->disk, handle, &byte, 1, &done) == YK_DISK_OK && done)
		;
	if (yk_disk_write(shell->disk, handle, words[2], count, &done) != YK_DISK_OK)
		say("the disk is full: rm removes files");
	yk_disk_close(shell->disk, handle);
}

static void begin(const struct yk_shell *shell, const char *name, void (*run)(void *argument),
		  void *argument)
{
	struct yk_place *place = shell->places;

	for (uint32_t n = 0; n < shell->places_count; n++, place++)
		if (yk_thread_begin(&place->thread, name, run, argument, place->stack, place->words))
			return;
	say("no place is free: kill a program, or let it end");
}

/* The program of that name that runs. NULL: there is none. */
static struct yk_thread *running(const struct yk_shell *shell, const char *name)
{
	for (uint32_t n = 0; n < shell->places_count; n++) {
		struct yk_thread *thread = &shell->places[n].thread;

		if (thread->state != YK_THREAD_ENDED && is_same(thread->name, name))
			return thread;
	}
	return NULL;
}

/* Of the disk. */
static void load(const struct yk_shell *shell, const char *name)
{
	struct yk_area *area = shell->area;
	const char *why;

	if (running(shell, area->name)) {
		yk_shell_text("the area of programs is in use: kill ");
		say(area->name);
		return;
	}
	why = area->load(area, shell->disk, name);
	if (why)
		say(why);
	else
		begin(shell, area->name, area->run, NULL);
}

static void exec(const struct yk_shell *shell, char *const words[])
{
	const struct yk_program *program = shell->programs;

	for (uint32_t n = 0; n < shell->programs_count; n++, program++) {
		if (is_same(program->name, words[1])) {
			begin(shell, program->name, program->run, program->argument);
			return;
		}
	}
	if (shell->disk && shell->area)
		load(shell, words[1]);
	else
		say("no such program: help lists them");
}

static void kill(const struct yk_shell *shell, char *const words[])
{
	struct yk_thread *thread = running(shell, words[1]);

	if (thread)
		yk_thread_kill(thread);
	else
		say("no such program runs: ps lists them");
}

static void help(const struct yk_shell *shell, char *const unused[]);

static const struct command {
	const char *name;
	/* What it needs, and how many words that are. */
	const char *needs;
	uint32_t count;
	const char *does;
	void (*run)(const struct yk_shell *shell, char *const words[]);
} commands[] = {
	{ "help", "", 0, "this list", help },
	{ "stat", "", 0, "jobs and interrupts so far, longest times in ticks", stat },
	{ "ps", "", 0, "threads; their stacks in words", ps },
	{ "mem", "", 0, "memory that is free", mem },
	{ "ls", "", 0, "files, and their bytes", ls },
	{ "cat", "FILE", 1, "print a file", cat },
	{ "append", "FILE BYTES", 2, "append bytes to a file, as 0a1b2c", append },
	{ "rm", "FILE", 1, "remove a file", rm },
	{ "exec", "PROGRAM", 1, "begin a program", exec },
	{ "kill", "PROGRAM", 1, "end a program that runs", kill },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void row(const char *command, const char *needs, const char *does)
{
	left(command, 7);
	left(needs, 15);
	say(does);
}

static void help(const struct yk_shell *shell, char *const unused[])
{
	(void)unused;
	for (uint32_t n = 0; n < COMMANDS; n++)
		row(commands[n].name, commands[n].needs, commands[n].does);
	for (uint32_t n = 0; n < shell->programs_count; n++)
		row("exec", shell->programs[n].name, shell->programs[n].does);
}

/* Cuts the line into words. Says how many there are, also if more than there is room for. */
static uint32_t cut(char *line, char *words[WORDS])
{
	uint32_t count = 0;

	while (*line) {
		if (*line == ' ') {
			*line++ = '\0';
			continue;
		}
		if (count < WORDS)
			words[count] = line;
		count++;
		while (*line && *line != ' ')
			line++;
	}
	return count;
}

static void obey(const struct yk_shell *shell, char *line)
{
	char *words[WORDS];
	uint32_t count = cut(line, words), n = 0;
	const struct command *command = commands;

	if (!count)
		return;
	while (n < COMMANDS && !is_same(command->name, words[0])) {
		command++;
		n++;
	}
	if (n == COMMANDS) {
		yk_shell_text(words[0]);
		say(": no such command: help lists them");
	} else if (count != 1 + command->count) {
		yk_shell_text("usage: ");
		left(command->name, 0);
		say(command->needs);
	} else {
		command->run(shell, words);
	}
}

/* A line, as a person types it. `false`: it was given up. */
static bool read_line(char line[LINE])
{
	enum { BELL = 7, BACKSPACE = 8, ESCAPE = 27, DELETE = 127, GIVE_UP = 3 };
	/* The byte before, also if it ended another line. */
	static uint8_t before;
	enum { OUTSIDE, AFTER_ESCAPE, IN_KEY } place = OUTSIDE;
	uint32_t count = 0;
	bool is_long = false;

	for (;;) {
		uint8_t byte, last = before;

		while (!yk_serial_get(&byte))
			yk_thread_wait(has_come, NULL);
		before = byte;
		/* A key that is no character: ESC, `[` or `O`, digits, and a letter or `~`. */
		if (place == AFTER_ESCAPE && (byte == '[' || byte == 'O')) {
			place = IN_KEY;
			continue;
		}
		if (place == IN_KEY && byte >= ' ') {
			if (byte >= '@')
				place = OUTSIDE;
			continue;
		}
		place = byte == ESCAPE ? AFTER_ESCAPE : OUTSIDE;
		if (byte == '\r' || (byte == '\n' && last != '\r')) {
			end();
			line[count] = '\0';
			if (is_long)
				say("the line is too long");
			return !is_long;
		}
		if (byte == GIVE_UP) {
			say("^C");
			return false;
		}
		if ((byte == BACKSPACE || byte == DELETE) && count) {
			count--;
			is_long = false;
			yk_shell_text("\b \b");
		} else if (byte >= ' ' && byte < DELETE) {
			if (count < LINE - 1) {
				line[count++] = (char)byte;
			} else {
				is_long = true;
				byte = BELL;
			}
			yk_shell_byte((char)byte);
		}
	}
}

void yk_shell(void *argument)
{
	const struct yk_shell *shell = argument;
	char line[LINE];

	for (;;) {
		yk_shell_text("> ");
		if (read_line(line))
			obey(shell, line);
	}
}
