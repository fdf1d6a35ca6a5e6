/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * K10: calls on a RAM disk beside a model, arrays of files and handles. Explored: each sequence of
 * STEPS calls on a tiny disk. If STEPS is given, for random.c: on a larger disk, with arguments of
 * each kind, blocks as they are, and numbers of handles that begin anew.
 */
#include "../modules/ramdisk.h"
#include "explore.h"

#include <stddef.h>
#include <string.h>

#ifdef STEPS
enum { BLOCKS = 9, FILES = 4, HANDLES = 4, IS_RANDOM = 1, CALLS = 9 };
#else
enum { BLOCKS = 3, FILES = 2, HANDLES = 2, IS_RANDOM = 0, CALLS = 7, STEPS = 6 };
#endif
enum { BLOCK = YK_DISK_BLOCK, ALL = BLOCKS * BLOCK, MOST = ALL + 1, UNTOUCHED = 0xee };

void at_access(void)
{
}

static struct yk_disk_block blocks[BLOCKS];
static struct yk_disk_file files[FILES];
static struct yk_disk_handle handles[HANDLES];
static struct yk_disk disk;

/* All that a call may change. */
struct memory {
	struct yk_disk_block blocks[BLOCKS];
	struct yk_disk_file files[FILES];
	struct yk_disk_handle handles[HANDLES];
	struct yk_disk disk;
};

struct model_file {
	/* NULL: there is none. */
	const char *name;
	uint32_t length;
	uint8_t bytes[ALL];
	/* Of a listing that began earlier: it has still to be told, or may be told. */
	bool is_due, is_told;
};

struct model_handle {
	/* Also when it is closed. 0: it was never open. */
	uint32_t number;
	/* NULL: it is closed. */
	struct model_file *file;
	uint32_t position;
};

static struct model {
	struct model_file files[FILES];
	struct model_handle handles[HANDLES];
	/* Number of a handle. */
	uint32_t latest;
} model;
static uint32_t list_at;
static uint8_t next_byte;

static const char too_long[YK_DISK_NAME + 1] = "0123456789abcdef";
static const char *const names[] = {
	"a", "ab", "0123456789abcde", "", too_long, "0123456789abcd", "0123456789abcdf", "\xff\n",
};

static const char *a_name(void)
{
	return names[choose(IS_RANDOM ? 8 : 5)];
}

static enum yk_disk_answer of_name(const char *name)
{
	size_t length = strnlen(name, YK_DISK_NAME + 1);

	if (length > YK_DISK_NAME)
		return YK_DISK_LONG_NAME;
	return length ? YK_DISK_OK : YK_DISK_NO_NAME;
}

/* NULL: the first place without a file. */
static struct model_file *model_file(const char *name)
{
	for (uint32_t n = 0; n < FILES; n++) {
		const char *other = model.files[n].name;

		if (other == name || (other && name && !strncmp(name, other, YK_DISK_NAME + 1)))
			return model.files + n;
	}
	return NULL;
}

static uint32_t blocks_of(uint32_t length)
{
	return length / BLOCK + (length % BLOCK != 0);
}

static uint32_t used(void)
{
	uint32_t all = 0;

	for (uint32_t n = 0; n < FILES; n++)
		all += model.files[n].name ? blocks_of(model.files[n].length) : 0;
	return all;
}

static bool is_open(const struct model_file *file)
{
	for (uint32_t n = 0; n < HANDLES; n++)
		if (model.handles[n].file == file)
			return true;
	return false;
}

/* NULL: none that is open. */
static struct model_handle *model_handle(uint32_t number)
{
	for (uint32_t n = 0; n < HANDLES; n++)
		if (model.handles[n].file && model.handles[n].number == number)
			return model.handles + n;
	return NULL;
}

/* Of a handle that is not open. */
static enum yk_disk_answer of_closed(uint32_t number)
{
	return number && number <= model.latest ? YK_DISK_CLOSED : YK_DISK_NO_HANDLE;
}

/* One that is open, or was last in its place, or neither. */
static uint32_t a_handle(void)
{
	uint32_t n = choose(HANDLES + 1);

	if (n < HANDLES)
		return model.handles[n].number;
	if (!IS_RANDOM)
		return model.latest + 1;
	switch (choose(4)) {
	case 0:
		return model.latest + 1;
	case 1:
		return choose(model.latest < 100 ? model.latest + 1 : 100);
	case 2:
		return model.latest - choose(model.latest < 100 ? model.latest + 1 : 100);
	default:
		return choose(UINT32_MAX);
	}
}

static uint32_t a_size(void)
{
	static const uint32_t sizes[] = { 1, BLOCK, MOST };

	if (!IS_RANDOM)
		return sizes[choose(3)];
	return choose(choose(8) ? 3 * BLOCK : MOST + 1);
}

static void answers(enum yk_disk_answer said, enum yk_disk_answer right)
{
	must("K10 a call answers as the model does", said == right);
}

/* The disk is as after many more calls of open: the latest number is another. */
static void turn(void)
{
	uint32_t number = model.handles[choose(HANDLES)].number;

	model.latest = disk.opened = choose(2) ? number - 1 - choose(2) : UINT32_MAX - choose(2);
}

static void open_file(void)
{
	const char *name = a_name();
	/* What is no enum yk_disk_how makes nothing. */
	uint32_t how = choose(IS_RANDOM ? 3 : 2), number = UNTOUCHED;
	struct model_file *file = model_file(name);
	struct model_handle *handle = NULL;
	enum yk_disk_answer right = of_name(name), said;

	if (IS_RANDOM && !choose(20))
		turn();
	for (uint32_t n = 0; n < HANDLES && !handle; n++)
		handle = model.handles[n].file ? NULL : model.handles + n;
	if (!right && !file && how != YK_DISK_MAKE)
		right = YK_DISK_NO_FILE;
	if (!right && !handle)
		right = YK_DISK_NO_MORE_HANDLES;
	if (!right && !file && !model_file(NULL))
		right = YK_DISK_NO_MORE_FILES;
	said = yk_disk_open(&disk, name, (enum yk_disk_how)how, &number);
	answers(said, right);
	if (said) {
		must("K10 a refused open gives no handle", number == UNTOUCHED);
		return;
	}
	if (!file) {
		file = model_file(NULL);
		*file = (struct model_file){ .name = name };
	}
	while (!++model.latest || model_handle(model.latest))
		;
	must("K10 a handle has the next number that is not in use", number == model.latest);
	*handle = (struct model_handle){ .number = number, .file = file };
}

static void read_some(void)
{
	static uint8_t bytes[MOST + 1];
	uint32_t number = a_handle(), size = a_size(), done = UNTOUCHED, right = 0;
	struct model_handle *handle = model_handle(number);

	memset(bytes, UNTOUCHED, sizeof bytes);
	answers(yk_disk_read(&disk, number, bytes, size, &done), handle ? 0 : of_closed(number));
	if (handle)
		right = handle->file->length - handle->position;
	if (right > size)
		right = size;
	must("K10 a read ends at the end of the file", done == right);
	must("K10 a read gives what was written",
	     !handle || !memcmp(bytes, handle->file->bytes + handle->position, right));
	for (uint32_t n = right; n < sizeof bytes; n++)
		must("K10 a read writes no more than it says", bytes[n] == UNTOUCHED);
	if (handle)
		handle->position += right;
}

static void write_some(void)
{
	static uint8_t bytes[MOST];
	uint32_t number = a_handle(), size = a_size(), done = UNTOUCHED, right = 0;
	struct model_handle *handle = model_handle(number);
	enum yk_disk_answer said;

	for (uint32_t n = 0; n < size; n++)
		bytes[n] = next_byte++;
	said = yk_disk_write(&disk, number, bytes, size, &done);
	for (; handle && right < size; right++) {
		struct model_file *file = handle->file;

		if (handle->position == file->length) {
			if (file->length % BLOCK == 0 && used() == BLOCKS)
				break;
			file->length++;
		}
		file->bytes[handle->position++] = bytes[right];
	}
	must("K10 a write ends where the disk is full", done == right);
	answers(said, !handle ? of_closed(number) : right < size ? YK_DISK_FULL : YK_DISK_OK);
}

static void rewind_file(void)
{
	uint32_t number = a_handle();
	struct model_handle *handle = model_handle(number);

	answers(yk_disk_rewind(&disk, number), handle ? 0 : of_closed(number));
	if (handle)
		handle->position = 0;
}

static void close_file(void)
{
	uint32_t number = a_handle();
	struct model_handle *handle = model_handle(number);

	answers(yk_disk_close(&disk, number), handle ? 0 : of_closed(number));
	if (handle)
		handle->file = NULL;
}

static void unlink_file(void)
{
	const char *name = a_name();
	struct model_file *file = model_file(name);
	enum yk_disk_answer right = of_name(name);

	if (!right && !file)
		right = YK_DISK_NO_FILE;
	if (!right && is_open(file))
		right = YK_DISK_IN_USE;
	answers(yk_disk_unlink(&disk, name), right);
	if (!right)
		*file = (struct model_file){ .name = NULL };
}

static void change_name(void)
{
	const char *name = a_name(), *new_name = a_name();
	struct model_file *file = model_file(name);
	enum yk_disk_answer right = of_name(name);

	if (!right && !file)
		right = YK_DISK_NO_FILE;
	if (!right)
		right = of_name(new_name);
	if (!right && model_file(new_name))
		right = YK_DISK_TAKEN;
	answers(yk_disk_chname(&disk, name, new_name), right);
	if (!right)
		file->name = new_name;
}

/* A step of a listing that other calls come between. */
static void list_on(void)
{
	const struct yk_disk_file *told;
	struct model_file *file;

	if (!list_at)
		for (uint32_t n = 0; n < FILES; n++) {
			model.files[n].is_due = model.files[n].name;
			model.files[n].is_told = false;
		}
	told = yk_disk_list(&disk, &list_at);
	if (told) {
		file = model_file(told->name);
		must("K10 a listing tells each file once", file && !file->is_told);
		file->is_told = true;
		file->is_due = false;
		return;
	}
	for (uint32_t n = 0; n < FILES; n++)
		must("K10 a listing tells each file that stays", !model.files[n].is_due);
	list_at = FILES + choose(UINT32_MAX - FILES);
	must("K10 a listing ends", !yk_disk_list(&disk, &list_at));
	list_at = 0;
}

static void begin(void)
{
	memset(blocks, UNTOUCHED, sizeof blocks);
	memset(files, UNTOUCHED, sizeof files);
	memset(handles, UNTOUCHED, sizeof handles);
	memset(&model, 0, sizeof model);
	list_at = 0;
	disk = (struct yk_disk){
		.blocks = blocks,	.files = files,	      .handles = handles,
		.blocks_count = BLOCKS, .files_count = FILES, .handles_count = HANDLES,
		.free = blocks + 1,	.opened = UNTOUCHED,
	};
	yk_disk_begin(&disk);
}

/* A block that belongs to nothing else. */
static void take(const struct yk_disk_block *block, bool *is_taken)
{
	size_t n = (size_t)(block - blocks);

	must("K10 each block is of one file, or free", n < BLOCKS && !is_taken[n]);
	is_taken[n] = true;
}

static void must_be_whole(void)
{
	bool is_taken[BLOCKS] = { false };
	const struct yk_disk_file *file;
	uint32_t at = 0, count = 0, free = 0;

	while ((file = yk_disk_list(&disk, &at))) {
		const struct model_file *right = model_file(file->name);
		const struct yk_disk_block *block = file->first;

		must("K10 the files are those of the model",
		     *file->name && right && file->length == right->length);
		count++;
		for (uint32_t n = 0; n < file->length; n += BLOCK, block = block->next) {
			uint32_t left = file->length - n;

			must("K10 a file has a block for each of its bytes", block);
			take(block, is_taken);
			must("K10 a file holds what was written",
			     !memcmp(block->bytes, right->bytes + n, left < BLOCK ? left : BLOCK));
		}
		must("K10 a file has no block too many", !block);
	}
	for (uint32_t n = 0; n < FILES; n++)
		count -= model.files[n].name != NULL;
	must("K10 no file is lost", count == 0);
	for (const struct yk_disk_block *block = disk.free; block; block = block->next, free++)
		take(block, is_taken);
	must("K10 no block is lost", free == BLOCKS - used() && yk_disk_free(&disk) == free);
}

static void snap(struct memory *to)
{
	memcpy(to->blocks, blocks, sizeof blocks);
	memcpy(to->files, files, sizeof files);
	memcpy(to->handles, handles, sizeof handles);
	memcpy(&to->disk, &disk, sizeof disk);
}

void scenario(void)
{
	static void (*const calls[])(void) = {
		open_file,   read_some,	  write_some, rewind_file, close_file,
		unlink_file, change_name, list_on,    begin,
	};
	static struct memory before, after;
	static struct model model_before;

	begin();
	for (uint32_t n = 0; n < STEPS; n++) {
		/* A disk is begun anew now and then only: it is to become full. */
		uint32_t call = choose(IS_RANDOM && choose(20) ? CALLS - 1 : CALLS);

		snap(&before);
		model_before = model;
		calls[call]();
		snap(&after);
		must_be_whole();
		if (memcmp(&model_before, &model, sizeof model))
			continue;
		must("K10 a call that does nothing changes nothing",
		     !memcmp(&before, &after, sizeof before));
		/* What follows is a case of its own, without this call. */
		if (!IS_RANDOM)
			return;
	}
}
