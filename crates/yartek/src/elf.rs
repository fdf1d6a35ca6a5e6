// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an image says of itself: its processor, its sizes, and the addresses of its names. ELF,
//! 32 bits, either order of bytes.

/// Of an ELF image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elf<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
}

const SYMBOL_TABLE: u32 = 2;
/// Types and flags of sections.
const NOTHING_IN_THE_FILE: u32 = 8;
const WRITABLE: u32 = 1;
const IN_MEMORY: u32 = 2;

/// `yartek/modules/trace.h`.
const END_OF_A_TRACE: &str = "yk_trace_until";
/// `yartek/port/*/link.ld`: the stack grows from here towards what is below.
const TOP_OF_THE_STACK: &str = "yk_port_stack";

/// Part of an image that is in the board's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed<'a> {
    pub address: u32,
    pub size: u32,
    /// `None`: zeros, which the file does not have.
    pub bytes: Option<&'a [u8]>,
}

/// What an image needs of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Code, constants, and what variables begin with.
    pub flash_bytes: u64,
    /// Variables.
    pub ram_bytes: u64,
    /// All RAM above the variables.
    pub stack_bytes: u64,
}

/// Sizes and places of fields, as the ELF specification has them.
const SECTION_BYTES: usize = 40;
const SYMBOL_BYTES: usize = 16;

impl<'a> Elf<'a> {
    /// `None`: no ELF image of 32 bits.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        match bytes.get(..6)? {
            [0x7f, b'E', b'L', b'F', 1, order @ (1 | 2)] => {
                Some(Self { bytes, is_big_endian: *order == 2 })
            }
            _ => None,
        }
    }

    pub const fn is_big_endian(&self) -> bool {
        self.is_big_endian
    }

    /// A number of two or four bytes.
    fn number<const N: usize>(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(N)?)?.iter();
        let add = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        Some(if self.is_big_endian { bytes.fold(0, add) } else { bytes.rev().fold(0, add) })
    }

    fn word(&self, at: usize) -> Option<usize> {
        self.number::<4>(at).map(|number| number as usize)
    }

    /// `e_machine`: the processor that this image is for.
    pub fn machine(&self) -> Option<u32> {
        self.number::<2>(18)
    }

    fn section(&self, index: usize) -> Option<usize> {
        self.word(32)?.checked_add(index.checked_mul(SECTION_BYTES)?)
    }

    /// Where the image reads when it ends. `None`: it has no trace, and does not end then.
    pub fn end_of_trace(&self) -> Option<u32> {
        self.address(END_OF_A_TRACE)
    }

    /// `None`: it is no image of a board.
    pub fn sizes(&self) -> Option<Sizes> {
        let mut sizes = Sizes { flash_bytes: 0, ram_bytes: 0, stack_bytes: 0 };
        let top = u64::from(self.address(TOP_OF_THE_STACK)?);
        let mut end_of_variables = 0;
        for index in 0..self.number::<2>(48)? as usize {
            let at = self.section(index)?;
            let field = |offset| self.number::<4>(at.checked_add(offset)?);
            let (kind, flags, bytes) = (field(4)?, field(8)?, field(20)?);
            if flags & IN_MEMORY == 0 || bytes == 0 {
                continue;
            }
            if kind != NOTHING_IN_THE_FILE {
                sizes.flash_bytes += u64::from(bytes);
            }
            if flags & WRITABLE != 0 {
                sizes.ram_bytes += u64::from(bytes);
                // What a loader writes lies above the stack.
                let from = u64::from(field(12)?);
                if from < top {
                    end_of_variables = end_of_variables.max(from + u64::from(bytes));
                }
            }
        }
        sizes.stack_bytes = top.checked_sub(end_of_variables)?;
        Some(sizes)
    }

    /// The sections that are in memory.
    pub(crate) fn placed(&self) -> impl Iterator<Item = Placed<'a>> {
        let count = self.number::<2>(48).unwrap_or(0) as usize;
        (0..count).filter_map(|index| {
            let at = self.section(index)?;
            let field = |offset| self.number::<4>(at.checked_add(offset)?);
            let (kind, flags, address, size) = (field(4)?, field(8)?, field(12)?, field(20)?);
            let from = field(16)? as usize;
            let bytes = || self.bytes.get(from..from.checked_add(size as usize)?);
            let bytes = if kind == NOTHING_IN_THE_FILE { None } else { Some(bytes()?) };
            (flags & IN_MEMORY != 0 && size > 0).then_some(Placed { address, size, bytes })
        })
    }

    /// What the image puts into memory from an address up to another.
    pub(crate) fn memory(&self, from: u32, to: u32) -> Option<&'a [u8]> {
        self.placed().find_map(|part| {
            let offset = |address: u32| address.checked_sub(part.address).map(|at| at as usize);
            part.bytes?.get(offset(from)?..offset(to)?)
        })
    }

    /// The word that a variable begins with.
    pub(crate) fn begin_of(&self, address: u32) -> Option<u32> {
        let bytes: [u8; 4] = self.memory(address, address.checked_add(4)?)?.try_into().ok()?;
        Some(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// The address of a variable or a function.
    pub fn address(&self, name: &str) -> Option<u32> {
        let sections = 0..self.number::<2>(48)? as usize;
        let mut tables = sections.filter_map(|index| self.section(index));
        let table = tables.find(|at| self.number::<4>(at + 4) == Some(SYMBOL_TABLE))?;
        let (from, bytes) = (self.word(table + 16)?, self.word(table + 20)?);
        let texts = self.word(self.section(self.word(table + 24)?)?.checked_add(16)?)?;
        let symbols = (0..bytes / SYMBOL_BYTES).map(|index| from + index * SYMBOL_BYTES);
        let is_it = |symbol: &usize| {
            let text = self.word(*symbol).and_then(|at| self.bytes.get(texts.checked_add(at)?..));
            text.and_then(|text| text.strip_prefix(name.as_bytes()))
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        symbols
            .take_while(|symbol| *symbol < self.bytes.len())
            .find(is_it)
            .and_then(|symbol| self.number::<4>(symbol + 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header, a section of symbols, one of texts, a symbol `there` at 0x1234.
    fn image(is_big_endian: bool) -> Vec<u8> {
        let mut image = vec![0; 52 + 2 * SECTION_BYTES + SYMBOL_BYTES + 8];
        image[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 1, 1 + u8::from(is_big_endian)]);
        let (symbols, texts) = (52 + 2 * SECTION_BYTES, 52 + 2 * SECTION_BYTES + SYMBOL_BYTES);
        let mut put = |at: usize, bytes: usize, number: usize| {
            let number = (number as u32).to_be_bytes();
            for (place, byte) in number[4 - bytes..].iter().enumerate() {
                image[if is_big_endian { at + place } else { at + bytes - 1 - place }] = *byte;
            }
        };
        put(18, 2, 40);
        put(32, 4, 52);
        put(48, 2, 2);
        put(52 + 4, 4, SYMBOL_TABLE as usize);
        put(52 + 16, 4, symbols);
        put(52 + 20, 4, SYMBOL_BYTES);
        put(52 + 24, 4, 1);
        put(52 + SECTION_BYTES + 16, 4, texts);
        put(symbols, 4, 1);
        put(symbols + 4, 4, 0x1234);
        image[texts + 1..texts + 7].copy_from_slice(b"there\0");
        image
    }

    #[test]
    fn names_have_addresses_in_either_order_of_bytes() {
        for is_big_endian in [false, true] {
            let image = image(is_big_endian);
            let elf = Elf::of(&image).expect("an image");
            assert_eq!(elf.machine(), Some(40));
            assert_eq!(crate::Board::of_image(&elf).expect("a board").name, "mps2-an385");
            assert_eq!(elf.address("there"), Some(0x1234));
            assert_eq!(elf.address("the"), None);
            assert_eq!(elf.address("theree"), None);
        }
    }

    #[test]
    fn an_image_that_is_cut_has_no_names() {
        let image = image(false);
        for bytes in 0..image.len() {
            let address = Elf::of(&image[..bytes]).and_then(|elf| elf.address("there"));
            assert!(address.is_none() || bytes + 2 > image.len() - 1, "{bytes}");
        }
        assert_eq!(Elf::of(b"#!/bin/sh"), None);
    }
}
