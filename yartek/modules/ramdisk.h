/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Files in memory, for the background. Neither handlers nor jobs may call it: a call that
 * interrupts another would find the disk half changed. No call waits or allocates: the application
 * gives the memory. What the time of a call grows with stands at each.
 *
 * A file may be open several times. Each handle has a position of its own, and sees at once what
 * another writes. A handle goes forward, or back to the begin.
 */
#ifndef YK_RAMDISK_H
#define YK_RAMDISK_H

#include <stdint.h>

/* Bytes of a block, a power of 2. A file takes whole blocks; an empty one takes none. */
#ifndef YK_DISK_BLOCK
#define YK_DISK_BLOCK 64
#endif
/* The longest name, in bytes, any but 0. Of one without end only one byte more is read. */
enum { YK_DISK_NAME = 15 };

struct yk_disk_block {
	/* Of the same file, or of what is free. NULL: this is the last. */
	struct yk_disk_block *next;
	uint8_t bytes[YK_DISK_BLOCK];
};

struct yk_disk_file {
	/* Empty: no file is here. */
	char name[YK_DISK_NAME + 1];
	uint32_t length;
	/* How many handles have it open. */
	uint32_t handles;
	struct yk_disk_block *first;
};

struct yk_disk_handle {
	/* 0: it is not open. */
	uint32_t number;
	/* How many bytes of the file come before. */
	uint32_t position;
	struct yk_disk_file *file;
	/* The block with the last of these bytes, if there are any. */
	struct yk_disk_block *block;
};

struct yk_disk {
	/* Of the application: the memory. */
	struct yk_disk_block *blocks;
	struct yk_disk_file *files;
	struct yk_disk_handle *handles;
	uint32_t blocks_count;
	uint32_t files_count;
	uint32_t handles_count;
	/* Of the disk: the first free block, and the number of the latest handle. */
	struct yk_disk_block *free;
	uint32_t opened;
};

/* With each but YK_DISK_OK and YK_DISK_FULL nothing is done. */
enum yk_disk_answer {
	YK_DISK_OK,
	/* No block is free: not all is written. */
	YK_DISK_FULL,
	/* A name without a byte, or with more than YK_DISK_NAME. */
	YK_DISK_NO_NAME,
	YK_DISK_LONG_NAME,
	/* No file has the name. */
	YK_DISK_NO_FILE,
	/* A file has the new name. */
	YK_DISK_TAKEN,
	/* A handle has the file open. */
	YK_DISK_IN_USE,
	/* There are no more files, or handles, than the application gave. */
	YK_DISK_NO_MORE_FILES,
	YK_DISK_NO_MORE_HANDLES,
	/* No handle has had this number yet. */
	YK_DISK_NO_HANDLE,
	/* The handle with this number is closed. */
	YK_DISK_CLOSED
};

enum yk_disk_how {
	/* The file must be there. */
	YK_DISK_OLD,
	/* If it is not, it is made, empty. */
	YK_DISK_MAKE
};

/*
 * Makes a disk without files of what the application gave. If it was one before, its files and
 * handles are gone. Time: by blocks, files and handles.
 */
void yk_disk_begin(struct yk_disk *disk);
/*
 * The new handle is at the begin of the file. Handles are numbered as they are opened, from 1 on,
 * so one that is closed stays closed when another takes its place. After 2^32 numbers they begin
 * anew, without those in use. Time: by files and handles.
 */
enum yk_disk_answer yk_disk_open(struct yk_disk *disk, const char *name, enum yk_disk_how how,
				 uint32_t *handle);
/*
 * Up to `count` bytes from the handle's position on, which moves behind them. `done` says how many:
 * fewer only where the file ends, 0 behind its end. Time: by handles and bytes.
 */
enum yk_disk_answer yk_disk_read(struct yk_disk *disk, uint32_t handle, void *bytes, uint32_t count,
				 uint32_t *done);
/*
 * The same, into the file: over what is there, then behind its end. To append, read to the end
 * first. If no block is left, the first `done` bytes are written. Time: by handles and bytes.
 */
enum yk_disk_answer yk_disk_write(struct yk_disk *disk, uint32_t handle, const void *bytes,
				  uint32_t count, uint32_t *done);
/* Back to the begin of the file. Time: by handles. */
enum yk_disk_answer yk_disk_rewind(struct yk_disk *disk, uint32_t handle);
/* Time: by handles. */
enum yk_disk_answer yk_disk_close(struct yk_disk *disk, uint32_t handle);
/* Ends a file that no handle has open. Time: by files, and blocks of the file. */
enum yk_disk_answer yk_disk_unlink(struct yk_disk *disk, const char *name);
/* A new name, which no file has, not even this one. It may be open. Time: by files. */
enum yk_disk_answer yk_disk_chname(struct yk_disk *disk, const char *name, const char *new_name);
/*
 * The next file, to read its name and length. Begin with `at` 0; it becomes the place behind the
 * file. NULL: there is no more. A file that stays is told once, while others come and go. Time: by
 * files.
 */
const struct yk_disk_file *yk_disk_list(const struct yk_disk *disk, uint32_t *at);
/* How many blocks no file has. Time: by these. */
uint32_t yk_disk_free(const struct yk_disk *disk);

#endif
