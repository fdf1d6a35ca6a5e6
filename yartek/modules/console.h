/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Words and numbers for the console. Each call waits until the console has taken it. */
#ifndef YK_CONSOLE_H
#define YK_CONSOLE_H

#include "yartek.h"

void yk_console_byte(char byte);
void yk_console_text(const char *text);
void yk_console_decimal(uint32_t number);
/* Without zeros in front. */
void yk_console_hex(uint64_t number);

#endif
