/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Runs the table, and prints each job. */
#include "yartek.h"

#include "console.h"
#include "traced.h"

#include <stddef.h>

/* What is known of the table, if it says so. */
extern const char yk_banner[] __attribute__((weak));

int main(void)
{
	const char *banner = yk_banner;

	if (banner != NULL) {
		yk_console_text(banner);
		yk_console_byte('\n');
	}
	yk_run();
}
