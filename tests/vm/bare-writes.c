// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The bare kernel writes of a plan: reads lines `w PATH TEXT`, `d PATH`, `r PATH` (tab-separated)
 * and does one open-write-close, mkdir or rmdir each. What asmp create is compared with. Refusals
 * are expected. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char line[4096];
	FILE *plan = fopen(argc > 1 ? argv[1] : "/dev/stdin", "r");

	if (!plan)
		return 1;
	while (fgets(line, sizeof(line), plan)) {
		char *kind = strtok(line, "\t"), *path = strtok(NULL, "\t"), *text = strtok(NULL, "");
		int fd;

		if (*kind == 'd') {
			mkdir(path, 0755);
		} else if (*kind == 'r') {
			rmdir(path);
		} else if ((fd = open(path, O_WRONLY)) >= 0) {
			if (text && write(fd, text, strlen(text)) < 0)
				; /* managed lines refuse */
			close(fd);
		}
	}
	return 0;
}
