// SPDX-License-Identifier: Apache-2.0 OR MIT
/* open, read, write, close and ioctl of RTLinux's real-time side: "/dev/rtf0" is FIFO 0 if this
 * process has created it. Other paths and descriptors go to the system's calls. C++ keeps the names
 * for those; RTLinux's have rtl_ before them there. */
#ifndef ASMP_RTLINUX_RTL_POSIXIO_H
#define ASMP_RTLINUX_RTL_POSIXIO_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../asmp_rt.h"

/* ioctls of a FIFO: its size, and throw away what is in it. */
#define RTF_SETSIZE 1
#define RTF_FLUSH 2

/* What O_CREAT makes. */
#define RTF_DEFAULT_SIZE 8192

/* 0, or -1 and errno. */
static inline int rtl_result_np(int result)
{
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

static inline int rtl_open(const char *path, int flags, ...)
{
	va_list more;
	int mode;

	if (strncmp(path, "/dev/rtf", 8) == 0 && path[8] >= '0' && path[8] <= '9') {
		unsigned int fifo = (unsigned int)atoi(path + 8);
		int fd = rtl_fifo_open_np(fifo);

		if (fd == -ENODEV && flags & O_CREAT) {
			fd = rtf_create(fifo, RTF_DEFAULT_SIZE);
			return rtl_result_np(fd < 0 ? fd : rtl_fifo_open_np(fifo));
		}
		if (fd != -ENODEV)
			return rtl_result_np(fd);
	}
	va_start(more, flags);
	mode = flags & O_CREAT ? va_arg(more, int) : 0;
	va_end(more);
	return (open)(path, flags, mode);
}

static inline ssize_t rtl_read(int fd, void *buffer, size_t count)
{
	int fifo = rtl_fifo_of_np(fd);

	return fifo < 0 ? (read)(fd, buffer, count) :
			  rtl_result_np(rtf_get((unsigned int)fifo, buffer, (int)count));
}

static inline ssize_t rtl_write(int fd, const void *buffer, size_t count)
{
	int fifo = rtl_fifo_of_np(fd);

	return fifo < 0 ? (write)(fd, buffer, count) :
			  rtl_result_np(rtf_put((unsigned int)fifo, buffer, (int)count));
}

static inline int rtl_close(int fd)
{
	return rtl_fifo_of_np(fd) < 0 ? (close)(fd) : rtl_result_np(rtl_fifo_close_np(fd));
}

static inline int rtl_ioctl(int fd, unsigned long request, ...)
{
	int fifo = rtl_fifo_of_np(fd);
	va_list more;
	long argument;

	va_start(more, request);
	argument = va_arg(more, long);
	va_end(more);
	if (fifo < 0)
		return (ioctl)(fd, request, argument);
	switch (request) {
	case RTF_SETSIZE:
		return rtl_result_np(rtf_resize((unsigned int)fifo, (int)argument));
	case RTF_FLUSH:
		return rtl_result_np(rtf_flush((unsigned int)fifo));
	default:
		return rtl_result_np(-ENOTTY);
	}
}

#ifndef __cplusplus
#define open(...) rtl_open(__VA_ARGS__)
#define read(fd, buffer, count) rtl_read(fd, buffer, count)
#define write(fd, buffer, count) rtl_write(fd, buffer, count)
#define close(fd) rtl_close(fd)
#define ioctl(...) rtl_ioctl(__VA_ARGS__)
#endif

#endif
