// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ../../measure.h in Rust: what it says holds here.

use core::ptr::{read_volatile, write_volatile};

const DUAL_LOAD: *mut u32 = 0x4000_2000 as *mut u32;
const DUAL_VALUE: *mut u32 = 0x4000_2004 as *mut u32;
const DUAL_CONTROL: *mut u32 = 0x4000_2008 as *mut u32;
const DUAL_CLEAR: *mut u32 = 0x4000_200c as *mut u32;
const SYSTICK_VALUE: *mut u32 = 0xe000_e018 as *mut u32;

const DUAL_INTERRUPTS: u32 = 0xe2;
const SPAN: u32 = 300_000;
pub const ROUND_MS: u32 = 20;

fn read(register: *mut u32) -> u32 {
    // SAFETY: the board has a register of 32 bits there.
    unsafe { read_volatile(register) }
}

fn write(register: *mut u32, value: u32) {
    // SAFETY: the board has a register of 32 bits there, and no memory of the program.
    unsafe { write_volatile(register, value) }
}

/// The dual timer's value.
#[inline(always)]
pub fn dual_value() -> u32 {
    read(DUAL_VALUE)
}

/// SysTick's value.
#[inline(always)]
pub fn systick_value() -> u32 {
    read(SYSTICK_VALUE)
}

/// The dual timer no longer interrupts.
#[inline(always)]
pub fn acknowledge() {
    write(DUAL_CLEAR, 1);
}

/// How long ago the trigger came, in ticks, if the timer says `value`.
pub fn since(value: u32) -> u32 {
    SPAN - value
}

#[cfg(feature = "small")]
mod kept {
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

    static LAST: AtomicU32 = AtomicU32::new(0);

    pub fn keep(ticks: u32) {
        LAST.store(ticks, Relaxed);
    }

    pub fn begin_round(ticks: u32) {
        LAST.store(ticks, Relaxed);
    }

    pub fn trigger() -> bool {
        false
    }

    pub fn start() {
        super::write(super::DUAL_LOAD, super::SPAN);
        super::write(super::DUAL_CONTROL, super::DUAL_INTERRUPTS);
    }
}

#[cfg(not(feature = "small"))]
mod kept {
    use super::{DUAL_CONTROL, DUAL_INTERRUPTS, DUAL_LOAD, SPAN, read, write};
    use core::arch::asm;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

    const UART_DATA: *mut u32 = 0x4000_4000 as *mut u32;
    const UART_STATE: *mut u32 = 0x4000_4004 as *mut u32;
    const UART_CONTROL: *mut u32 = 0x4000_4008 as *mut u32;
    const UART_DIVIDER: *mut u32 = 0x4000_4010 as *mut u32;
    const NVIC_PEND: *mut u32 = 0xe000_e200 as *mut u32;

    const DUAL_COUNTS: u32 = 0xc2;
    const DUAL_IRQ: u32 = 10;
    const WATCHED_IRQ: u32 = 20;

    const SAMPLES: u32 = 1024;
    const NAMES: [&str; 4] = ["periodic", "asleep", "pending", "handler"];
    const PERIODIC: u32 = 0;
    const ASLEEP: u32 = 1;
    const PENDING: u32 = 2;
    const HANDLER: u32 = 3;

    struct Measured {
        samples: AtomicU32,
        least: AtomicU32,
        sum: AtomicU32,
        most: AtomicU32,
    }

    static MEASURED: [Measured; NAMES.len()] = [const {
        Measured {
            samples: AtomicU32::new(0),
            least: AtomicU32::new(u32::MAX),
            sum: AtomicU32::new(0),
            most: AtomicU32::new(0),
        }
    }; NAMES.len()];
    static PHASE: AtomicU32 = AtomicU32::new(PERIODIC);
    static IS_DUE: AtomicBool = AtomicBool::new(false);

    pub fn start() {}

    pub fn keep(ticks: u32) {
        let phase = PHASE.load(Relaxed);
        let triggered = u32::from(phase == PENDING || phase == HANDLER);
        let taken = (ticks * 5 + 64) / 128 - triggered;
        let Some(of) = MEASURED.get(phase as usize) else { return };
        of.least.fetch_min(taken, Relaxed);
        of.most.fetch_max(taken, Relaxed);
        of.sum.fetch_add(taken, Relaxed);
        if of.samples.fetch_add(1, Relaxed) + 1 == SAMPLES {
            PHASE.store(phase + 1, Relaxed);
        }
    }

    fn put(byte: u8) {
        while read(UART_STATE) & 1 != 0 {}
        write(UART_DATA, u32::from(byte));
    }

    fn put_number(number: u32) {
        if number >= 10 {
            put_number(number / 10);
        }
        put(b'0' + (number % 10) as u8);
    }

    fn end() {
        write(UART_DIVIDER, 16);
        write(UART_CONTROL, 1);
        for (name, of) in NAMES.iter().zip(&MEASURED) {
            b"m ".iter().copied().chain(name.bytes()).for_each(put);
            for number in [&of.samples, &of.least, &of.sum, &of.most] {
                put(b' ');
                put_number(number.load(Relaxed));
            }
            put(b'\n');
        }
        // SAFETY: a call of the emulator, which ends it.
        unsafe { asm!("bkpt 0xab", in("r0") 0x18, in("r1") 0x20026) }
    }

    pub fn begin_round(ticks: u32) {
        match PHASE.load(Relaxed) {
            PERIODIC => keep(ticks),
            ASLEEP => {
                write(DUAL_LOAD, SPAN);
                write(DUAL_CONTROL, DUAL_INTERRUPTS);
            }
            PENDING | HANDLER => {
                write(DUAL_CONTROL, DUAL_COUNTS);
                IS_DUE.store(true, Relaxed);
            }
            _ => end(),
        }
    }

    pub fn trigger() -> bool {
        let irq = if PHASE.load(Relaxed) == HANDLER { WATCHED_IRQ } else { DUAL_IRQ };
        let bit: u32 = 1 << irq;
        if !IS_DUE.load(Relaxed) {
            return false;
        }
        IS_DUE.store(false, Relaxed);
        // SAFETY: both are registers of the board.
        unsafe {
            asm!(
                "str {span}, [{load}]",
                "str {bit}, [{pend}]",
                span = in(reg) SPAN,
                load = in(reg) DUAL_LOAD,
                bit = in(reg) bit,
                pend = in(reg) NVIC_PEND,
            );
        }
        true
    }
}

pub use kept::{begin_round, keep, start, trigger};
