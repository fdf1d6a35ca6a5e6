/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  files grow and go, in memory that is given once and does not move.
 * Approach: blocks of one size, each with a pointer to the next; the free ones as well. A handle
 *           remembers its block, so that only names and handles are searched. A place in these
 *           tables is free if its name is empty, or its number is 0.
 */
#include "ramdisk.h"

#include <stdbool.h>
#include <stddef.h>

_Static_assert((YK_DISK_BLOCK & (YK_DISK_BLOCK - 1)) == 0, "a power of 2");

void yk_disk_begin(struct yk_disk *disk)
{
	disk->free = NULL;
	disk->opened = 0;
	for (uint32_t n = disk->blocks_count; n-- > 0; disk->free = disk->blocks + n)
		disk->blocks[n].next = disk->free;
	for (uint32_t n = 0; n < disk->files_count; n++)
		disk->files[n].name[0] = 0;
	for (uint32_t n = 0; n < disk->handles_count; n++)
		disk->handles[n].number = 0;
}

/* The file of that name. The empty name: a place without a file. */
static struct yk_disk_file *file_of(const struct yk_disk *disk, const char *name)
{
	for (uint32_t n = 0; n < disk->files_count; n++)
		for (uint32_t at = 0; name[at] == disk->files[n].name[at]; at++)
			if (!name[at])
				return disk->files + n;
	return NULL;
}

static enum yk_disk_answer find(const struct yk_disk *disk, const char *name,
				struct yk_disk_file **file)
{
	uint32_t length = 0;

	while (name[length])
		if (++length > YK_DISK_NAME)
			return YK_DISK_LONG_NAME;
	if (!length)
		return YK_DISK_NO_NAME;
	*file = file_of(disk, name);
	return *file ? YK_DISK_OK : YK_DISK_NO_FILE;
}

static void give_name(struct yk_disk_file *file, const char *name)
{
	for (uint32_t at = 0; at == 0 || name[at - 1]; at++)
		file->name[at] = name[at];
}

/* The handle with that number. 0: one that is not open. */
static struct yk_disk_handle *handle_of(const struct yk_disk *disk, uint32_t number)
{
	for (uint32_t n = 0; n < disk->handles_count; n++)
		if (disk->handles[n].number == number)
			return disk->handles + n;
	return NULL;
}

static enum yk_disk_answer find_open(const struct yk_disk *disk, uint32_t number,
				     struct yk_disk_handle **handle)
{
	*handle = handle_of(disk, number);
	if (!number || (!*handle && number > disk->opened))
		return YK_DISK_NO_HANDLE;
	return *handle ? YK_DISK_OK : YK_DISK_CLOSED;
}

enum yk_disk_answer yk_disk_open(struct yk_disk *disk, const char *name, enum yk_disk_how how,
				 uint32_t *handle)
{
	struct yk_disk_handle *opened = handle_of(disk, 0);
	struct yk_disk_file *file;
	enum yk_disk_answer answer = find(disk, name, &file);

	if (answer && (answer != YK_DISK_NO_FILE || how != YK_DISK_MAKE))
		return answer;
	if (!opened)
		return YK_DISK_NO_MORE_HANDLES;
	if (!file) {
		file = file_of(disk, "");
		if (!file)
			return YK_DISK_NO_MORE_FILES;
		*file = (struct yk_disk_file){ .length = 0 };
		give_name(file, name);
	}
	file->handles++;
	/* Neither 0, that of a free handle, nor one in use. */
	do
		disk->opened++;
	while (handle_of(disk, disk->opened));
	*opened = (struct yk_disk_handle){ .number = disk->opened, .file = file };
	*handle = disk->opened;
	return YK_DISK_OK;
}

enum yk_disk_answer yk_disk_read(struct yk_disk *disk, uint32_t handle, void *bytes, uint32_t count,
				 uint32_t *done)
{
	uint8_t *to = bytes;
	struct yk_disk_handle *at;
	enum yk_disk_answer answer = find_open(disk, handle, &at);

	*done = 0;
	if (answer)
		return answer;
	for (; *done < count && at->position < at->file->length; at->position++) {
		uint32_t within = at->position % YK_DISK_BLOCK;

		if (!within)
			at->block = at->position ? at->block->next : at->file->first;
		to[(*done)++] = at->block->bytes[within];
	}
	return YK_DISK_OK;
}

enum yk_disk_answer yk_disk_write(struct yk_disk *disk, uint32_t handle, const void *bytes,
				  uint32_t count, uint32_t *done)
{
	const uint8_t *from = bytes;
	struct yk_disk_handle *at;
	enum yk_disk_answer answer = find_open(disk, handle, &at);

	*done = 0;
	if (answer)
		return answer;
	while (*done < count) {
		uint32_t within = at->position % YK_DISK_BLOCK;

		if (!within) {
			struct yk_disk_block **link =
				at->position ? &at->block->next : &at->file->first;

			if (!*link) {
				if (!disk->free)
					return YK_DISK_FULL;
				*link = disk->free;
				disk->free = disk->free->next;
				(*link)->next = NULL;
			}
			at->block = *link;
		}
		at->block->bytes[within] = from[(*done)++];
		if (++at->position > at->file->length)
			at->file->length = at->position;
	}
	return YK_DISK_OK;
}

enum yk_disk_answer yk_disk_rewind(struct yk_disk *disk, uint32_t handle)
{
	struct yk_disk_handle *at;
	enum yk_disk_answer answer = find_open(disk, handle, &at);

	if (!answer)
		at->position = 0;
	return answer;
}

enum yk_disk_answer yk_disk_close(struct yk_disk *disk, uint32_t handle)
{
	struct yk_disk_handle *at;
	enum yk_disk_answer answer = find_open(disk, handle, &at);

	if (!answer) {
		at->file->handles--;
		at->number = 0;
	}
	return answer;
}

enum yk_disk_answer yk_disk_unlink(struct yk_disk *disk, const char *name)
{
	struct yk_disk_file *file;
	enum yk_disk_answer answer = find(disk, name, &file);
	struct yk_disk_block **end;

	if (answer)
		return answer;
	if (file->handles)
		return YK_DISK_IN_USE;
	end = &file->first;
	while (*end)
		end = &(*end)->next;
	*end = disk->free;
	disk->free = file->first;
	file->name[0] = 0;
	return YK_DISK_OK;
}

enum yk_disk_answer yk_disk_chname(struct yk_disk *disk, const char *name, const char *new_name)
{
	struct yk_disk_file *file, *other;
	enum yk_disk_answer answer = find(disk, name, &file);

	if (answer)
		return answer;
	answer = find(disk, new_name, &other);
	if (answer != YK_DISK_NO_FILE)
		return answer ? answer : YK_DISK_TAKEN;
	give_name(file, new_name);
	return YK_DISK_OK;
}

const struct yk_disk_file *yk_disk_list(const struct yk_disk *disk, uint32_t *at)
{
	while (*at < disk->files_count) {
		const struct yk_disk_file *file = disk->files + (*at)++;

		if (file->name[0])
			return file;
	}
	return NULL;
}

uint32_t yk_disk_free(const struct yk_disk *disk)
{
	uint32_t count = 0;

	for (const struct yk_disk_block *at = disk->free; at; at = at->next)
		count++;
	return count;
}
