// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of CUSE: a character device that a program serves through /dev/cuse (linux/fuse.h,
//! version 7.31). Only what such a device needs; bytes in, bytes out.

use std::ffi::c_int;

/// Bytes of the largest read or write; the kernel cuts larger ones.
pub const LARGEST: usize = 64 << 10;
/// Bytes that hold any request.
pub const REQUEST: usize = LARGEST + 4096;

const VERSION: (u32, u32) = (7, 31);
const HEADER: usize = 40;

/// What the kernel wants done for a program that uses the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask<'a> {
    /// The first of all; the answer says what the device is.
    Init,
    Open {
        flags: c_int,
    },
    Read {
        bytes: usize,
        blocks: bool,
    },
    Write {
        bytes: &'a [u8],
        blocks: bool,
    },
    /// `wake`: who asked sleeps, and `handle` is to be told when there is more.
    Poll {
        handle: u64,
        wake: bool,
    },
    /// `room`: bytes for the result; 0 until they were asked for.
    Ioctl {
        command: u32,
        argument: u64,
        room: usize,
    },
    /// Who asked the question of this number does not want to wait any longer.
    Interrupt {
        question: u64,
    },
    Release,
    /// Nothing to be done: flush, fsync.
    Nothing,
    Unknown,
}

/// A question and its number, which the answer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    pub number: u64,
    pub ask: Ask<'a>,
}

impl<'a> Request<'a> {
    /// `None`: shorter than its own words say.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let body = bytes.get(HEADER..)?;
        let word = |at| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
        let long = |at| Some(u64::from_ne_bytes(*body.get(at..)?.first_chunk()?));
        let blocks = |flags: u32| flags as c_int & libc::O_NONBLOCK == 0;
        let ask = match u32::from_ne_bytes(*bytes[4..].first_chunk()?) {
            4096 => Ask::Init,
            14 => Ask::Open { flags: word(0)? as c_int },
            15 => Ask::Read { bytes: (word(16)? as usize).min(LARGEST), blocks: blocks(word(32)?) },
            16 => {
                let bytes = body.get(40..)?.get(..word(16)? as usize)?;
                Ask::Write { bytes, blocks: blocks(word(32)?) }
            }
            18 => Ask::Release,
            20 | 25 => Ask::Nothing,
            36 => Ask::Interrupt { question: long(0)? },
            39 => Ask::Ioctl { command: word(12)?, argument: long(16)?, room: word(28)? as usize },
            40 => Ask::Poll { handle: long(8)?, wake: word(16)? & 1 == 1 },
            _ => Ask::Unknown,
        };
        Some(Self { number: u64::from_ne_bytes(*bytes[8..].first_chunk()?), ask })
    }
}

/// An answer: the result in pieces, or an error number.
pub fn answer(number: u64, result: Result<&[&[u8]], c_int>) -> Vec<u8> {
    match result {
        Ok(pieces) => message(number, 0, pieces),
        Err(error) => message(number, -error, &[]),
    }
}

fn message(number: u64, code: c_int, pieces: &[&[u8]]) -> Vec<u8> {
    let length = 16 + pieces.iter().map(|piece| piece.len()).sum::<usize>();
    let head = [&(length as u32).to_ne_bytes()[..], &code.to_ne_bytes(), &number.to_ne_bytes()];
    [head.concat(), pieces.concat()].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The answer to `Init`: a device of this name, whose ioctls say themselves where their result
/// goes.
pub fn is_device(number: u64, name: &str) -> Vec<u8> {
    let mut init = [0; 18];
    init[..6].copy_from_slice(&[VERSION.0, VERSION.1, 0, 1, LARGEST as u32, LARGEST as u32]);
    answer(number, Ok(&[&words(&init), b"DEVNAME=", name.as_bytes(), b"\0"]))
}

pub fn opened(number: u64) -> Vec<u8> {
    answer(number, Ok(&[&words(&[0; 4])]))
}

pub fn written(number: u64, bytes: usize) -> Vec<u8> {
    answer(number, Ok(&[&words(&[bytes as u32, 0])]))
}

pub fn ready(number: u64, events: u32) -> Vec<u8> {
    answer(number, Ok(&[&words(&[events, 0])]))
}

/// The result of an ioctl that gives an int.
pub fn int(number: u64, value: c_int) -> Vec<u8> {
    answer(number, Ok(&[&words(&[0; 4]), &value.to_ne_bytes()]))
}

/// The ioctl is to be asked again, with room for an int where its argument points.
pub fn ask_again_for_int(number: u64, argument: u64) -> Vec<u8> {
    const RETRY: u32 = 1 << 2;
    answer(number, Ok(&[&words(&[0, RETRY, 0, 1]), &argument.to_ne_bytes(), &4u64.to_ne_bytes()]))
}

/// Not an answer: who polls `handle` is to look again.
pub fn wake(handle: u64) -> Vec<u8> {
    const NOTIFY_POLL: c_int = 1;
    message(0, NOTIFY_POLL, &[&handle.to_ne_bytes()])
}
