// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What the programs of this directory check by: the first failure is said and ends them. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, \
				asmp_why()); \
			exit(1); \
		} \
	} while (0)

/* What went wrong is in errno and, in words, in asmp_why(). */
#define REFUSED(call, number, words) \
	CHECK((errno = 0, (call) == NULL) && errno == (number) && strstr(asmp_why(), words))

#endif
