// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupts of mps2-an385 that the program uses, as RTIC wants to know them.

use cortex_m::interrupt::InterruptNumber;

pub const NVIC_PRIO_BITS: u8 = 3;

#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Interrupt {
    /// The dual timer's.
    Dual = 10,
    /// It is made pending only.
    Watched = 20,
    /// RTIC's, for its tasks.
    Free1 = 21,
    Free2 = 22,
}
pub use Interrupt as interrupt;

// SAFETY: the numbers are those of the board.
unsafe impl InterruptNumber for Interrupt {
    fn number(self) -> u16 {
        self as u16
    }
}

// SAFETY: RTIC makes them, or device.x gives them the default.
unsafe extern "C" {
    fn Dual();
    fn Watched();
    fn Free1();
    fn Free2();
}

unsafe extern "C" fn unused() {}

// SAFETY: the linker puts it behind the vectors of the processor.
#[used]
#[unsafe(link_section = ".vector_table.interrupts")]
static VECTORS: [unsafe extern "C" fn(); 32] = {
    let mut vectors: [unsafe extern "C" fn(); 32] = [unused; 32];
    vectors[Interrupt::Dual as usize] = Dual;
    vectors[Interrupt::Watched as usize] = Watched;
    vectors[Interrupt::Free1 as usize] = Free1;
    vectors[Interrupt::Free2 as usize] = Free2;
    vectors
};
