// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's `link.c`, compiled for this machine. `yartek/modules/link.h` describes it.

use crate::link::{Counts, MAX_FRAME_BYTES};
use std::cell::RefCell;

/// `struct yk_link`: the same fields in the same order.
#[repr(C)]
#[derive(Debug)]
struct State {
    bytes: [u8; MAX_FRAME_BYTES],
    length: u32,
    came: u32,
    missed: u32,
    wrong: u32,
    cut: u32,
    doubled: u32,
    late: u32,
    head: [u8; 2],
    taken: u32,
    crc: u16,
    is_escaped: bool,
    has_begun: bool,
    last: u8,
    next: u8,
}

unsafe extern "C" {
    fn yk_link_take(link: *mut State, byte: u8) -> bool;
    fn yk_link_send(
        link: *mut State,
        bytes: *const u8,
        length: u32,
        put: extern "C" fn(u8) -> bool,
    );
}

thread_local! {
    static SENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn put(byte: u8) -> bool {
    SENT.with_borrow_mut(|sent| sent.push(byte));
    true
}

/// A board's end of a link.
#[derive(Debug)]
pub struct BoardLink(State);

impl Default for BoardLink {
    fn default() -> Self {
        // SAFETY: all fields are numbers, or `false`.
        Self(unsafe { std::mem::zeroed() })
    }
}

impl BoardLink {
    /// As [`Receiver::take`](crate::Receiver::take).
    pub fn take(&mut self, byte: u8) -> Option<Vec<u8>> {
        // SAFETY: the state is that of a link, and no other call uses it.
        let is_whole = unsafe { yk_link_take(&raw mut self.0, byte) };
        is_whole.then(|| self.0.bytes[..self.0.length as usize].to_vec())
    }

    /// As [`Sender::frame`](crate::Sender::frame).
    ///
    /// # Panics
    /// With more than [`MAX_FRAME_BYTES`].
    pub fn frame(&mut self, bytes: &[u8]) -> Vec<u8> {
        assert!(bytes.len() <= MAX_FRAME_BYTES, "{} bytes in a frame", bytes.len());
        // SAFETY: as in take(), and there are so many bytes.
        unsafe { yk_link_send(&raw mut self.0, bytes.as_ptr(), bytes.len() as u32, put) };
        SENT.take()
    }

    pub const fn counts(&self) -> Counts {
        let State { came, missed, wrong, cut, doubled, late, .. } = self.0;
        Counts { came, missed, wrong, cut, doubled, late }
    }
}
