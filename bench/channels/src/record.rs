// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two records of 64 bytes that go through every channel. Their kind decides what a compiler
//! makes of a queue that takes them by value.

/// A record that can be told from the one before it.
pub trait Record: asmp_channel::Plain + PartialEq + Send + std::fmt::Debug {
    fn of(number: u64) -> Self;
    /// Panics if this is not what [`Record::of`] made. It looks at every byte: where a receiver
    /// ignores some, the compiler may leave out their loads.
    fn check(&self, number: u64) {
        assert!(*self == Self::of(number), "{self:?} is not record {number}");
    }
}

/// One byte, 64 times.
pub type Bytes = [u8; 64];

impl Record for Bytes {
    fn of(number: u64) -> Self {
        [number as u8; 64]
    }
}

/// Eight numbers.
pub type Numbers = [u64; 8];

impl Record for Numbers {
    fn of(number: u64) -> Self {
        std::array::from_fn(|place| number + place as u64)
    }
}
