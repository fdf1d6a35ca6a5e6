// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Ports. A program may bring its own functions of these names, such as a fake port; <sys/io.h> has
 * the real ones, after ioperm(2). */
#ifndef ASMP_RTLINUX_ASM_IO_H
#define ASMP_RTLINUX_ASM_IO_H

#ifdef __cplusplus
extern "C" {
#endif
void outb(unsigned char value, unsigned short port);
unsigned char inb(unsigned short port);
#ifdef __cplusplus
}
#endif

#endif
