/* SPDX-License-Identifier: Apache-2.0 OR MIT */
	.syntax unified
	.cpu cortex-m3
	.thumb

	/* The processor begins with these; port.c copies them, and adds those of interrupts. */
	.section .vectors, "a"
	.global yk_port_rom_vectors
yk_port_rom_vectors:
	.word yk_port_stack
	.word reset
	.rept 14
	.word trap
	.endr

	.text
	.thumb_func
	.global reset
reset:
	ldr r0, =yk_port_data
	ldr r1, =yk_port_data_end
	ldr r2, =yk_port_data_load
1:	cmp r0, r1
	ittt lo
	ldrlo r3, [r2], #4
	strlo r3, [r0], #4
	blo 1b
	ldr r1, =yk_port_bss_end
	movs r3, #0
2:	cmp r0, r1
	itt lo
	strlo r3, [r0], #4
	blo 2b
	bl main
	b .

	/* What interrupted: the address of the refused instruction is the seventh word. */
	.thumb_func
trap:
	ldr r0, [sp, #24]
	bl yk_trap
	b .

	/*
	 * From the first store on, yk_port_wake() sends us to the end: no instruction lies between
	 * the look and the sleep that a handler could miss.
	 */
	.thumb_func
	.global yk_port_sleep
	.global yk_port_slept
yk_port_sleep:
	ldr r0, =yk_port_sleeper
	ldr r1, =yk_woken
	mov r2, sp
	str r2, [r0]
	ldr r2, [r1]
	cbnz r2, 3f
	dsb
	wfi
yk_port_slept:
3:
	movs r2, #0
	str r2, [r0]
	bx lr

	/* By semihosting: SYS_EXIT_EXTENDED with ADP_Stopped_ApplicationExit and the code. */
	.thumb_func
	.global yk_port_exit
yk_port_exit:
	mov r2, r0
	ldr r1, =0x20026
	push {r1, r2}
	mov r1, sp
	movs r0, #0x20
	bkpt 0xab
	b .

	/* r3 keeps the stack on a boundary of 8. */
	.thumb_func
	.global yk_port_switch
yk_port_switch:
	push {r3-r11, lr}
	mov r2, sp
	str r2, [r0]
	mov sp, r1
	pop {r3-r11, pc}
