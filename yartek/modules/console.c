/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "console.h"

#include "port.h"

void yk_console_byte(char byte)
{
	while (!yk_port_put((uint8_t)byte))
		;
}

void yk_console_text(const char *text)
{
	while (*text)
		yk_console_byte(*text++);
}

void yk_console_decimal(uint32_t number)
{
	char digits[10];
	uint32_t count = 0;

	do {
		digits[count++] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	while (count)
		yk_console_byte(digits[--count]);
}

void yk_console_hex(uint64_t number)
{
	uint32_t halves[] = { (uint32_t)(number >> 32), (uint32_t)number };
	bool has_begun = false;

	for (uint32_t n = 0; n < 16; n++) {
		uint32_t digit = halves[n / 8] >> (28 - n % 8 * 4) & 15;

		has_begun |= digit || n == 15;
		if (has_begun)
			yk_console_byte("0123456789abcdef"[digit]);
	}
}
