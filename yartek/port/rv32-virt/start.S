/* SPDX-License-Identifier: Apache-2.0 OR MIT */
	/* Of mie. */
	.equ SOFTWARE, 0x8
	.equ EXTERNAL, 0x800
	/* Of mstatus: hears interrupts. After mret it shall, and be in this mode. */
	.equ HEARS, 0x8
	.equ HEARS_AFTER, 0x1880

	.section .reset, "ax"
	.global reset
reset:
	la sp, yk_port_stack
	la a0, yk_port_bss
	li a1, 0
	la a2, yk_port_bss_end
	sub a2, a2, a0
	call memset
	la t0, yk_port_trap
	csrw mtvec, t0
	csrsi mstatus, HEARS
	j main

	/*
	 * mie keeps the levels: jobs let handlers through, and both the timer, which is above all. The
	 * processor comes here deaf. It hears those above again once the registers are kept, which other
	 * processors do by themselves, and is deaf for the last seven instructions.
	 */
	.macro all, verb
	.irp n, 1, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
	\verb x\n, \n * 4(sp)
	.endr
	.endm
	/* In the frame. yk_port_wake() writes the second. */
	.equ MIE, 128
	.equ MEPC, 132
	.text
	.balign 4
	.global yk_port_trap
yk_port_trap:
	addi sp, sp, -144
	sw t0, 20(sp)
	csrr t0, mepc
	sw t0, MEPC(sp)
	csrr t0, mie
	sw t0, MIE(sp)
	all sw
	csrr t0, mcause
	bgez t0, 8f
	/* 3: software, 7: timer, 11: external. */
	andi t1, t0, 8
	bnez t1, 6f
	andi t1, t0, 4
	beqz t1, 5f
	call yk_port_tick
	/* That has made the alarm pending. Where it may interrupt, it does so right here. */
	lw t0, MIE(sp)
	andi t0, t0, SOFTWARE
	beqz t0, 7f
5:	csrci mie, SOFTWARE
	csrsi mstatus, HEARS
	li t0, 0x02000000
	sw zero, 0(t0)
	call yk_alarm
	j 7f
6:	li t0, EXTERNAL | SOFTWARE
	csrc mie, t0
	csrsi mstatus, HEARS
	call yk_port_external
7:	all lw
	li t0, HEARS_AFTER
	csrw mstatus, t0
	lw t0, MIE(sp)
	csrw mie, t0
	lw t0, MEPC(sp)
	csrw mepc, t0
	lw t0, 20(sp)
	addi sp, sp, 144
	mret
	/* The processor refuses an instruction. */
8:	csrr a0, mepc
	j yk_trap

	/* From the first store on, yk_port_wake() sends us to the end: no handler is missed. */
	.global yk_port_sleep, yk_port_slept
yk_port_sleep:
	la t0, yk_port_sleeper
	la t1, yk_woken
	sw sp, 0(t0)
	lw t1, 0(t1)
	bnez t1, yk_port_slept
	wfi
yk_port_slept:
	sw zero, 0(t0)
	ret

	.macro kept, verb
	.irp n, 1, 8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27
	\verb x\n, \n * 4(sp)
	.endr
	.endm
	.global yk_port_switch
yk_port_switch:
	addi sp, sp, -112
	kept sw
	sw sp, 0(a0)
	mv sp, a1
	kept lw
	addi sp, sp, 112
	ret
