/* SPDX-License-Identifier: Apache-2.0 OR MIT */
	.text
	.global reset
reset:
	move.l #yk_port_stack, %sp
	/* Each exception is a trap; port.c puts the interrupts in. */
	lea yk_port_vectors, %a0
	move.l %a0, %d0
	movec %d0, %vbr
	move.l #trap, %d1
	move.l #256, %d0
1:	move.l %d1, (%a0)+
	subq.l #1, %d0
	bne.s 1b
	lea yk_port_bss, %a0
	lea yk_port_bss_end, %a1
2:	cmp.l %a1, %a0
	bcc.s 3f
	clr.l (%a0)+
	bra.s 2b
	/* Hears every interrupt from here on. None is asked for yet. */
3:	move.w #0x2000, %sr
	jsr main
4:	bra.s 4b

	/* What interrupted: format and status, then the address of the refused instruction. */
trap:
	move.l 4(%sp), -(%sp)
	jsr yk_trap
5:	bra.s 5b

	/*
	 * From the first move on, yk_port_wake() sends us to the end: no instruction lies between
	 * the look and the sleep that a handler could miss.
	 */
	.global yk_port_sleep
	.global yk_port_slept
yk_port_sleep:
	move.l %sp, yk_port_sleeper
	tst.l yk_woken
	bne.s yk_port_slept
	stop #0x2000
yk_port_slept:
	clr.l yk_port_sleeper
	rts

	/* By semihosting. */
	.global yk_port_exit
yk_port_exit:
	move.l 4(%sp), %d1
	clr.l %d0
	bra.s 6f
	.balign 4
6:	nop
	halt
	.long 0x4e7bf000
7:	bra.s 7b

	.global yk_port_switch
yk_port_switch:
	move.l 4(%sp), %a0
	move.l 8(%sp), %a1
	lea -44(%sp), %sp
	movem.l %d2-%d7/%a2-%a6, (%sp)
	move.l %sp, (%a0)
	move.l %a1, %sp
	movem.l (%sp), %d2-%d7/%a2-%a6
	lea 44(%sp), %sp
	rts
