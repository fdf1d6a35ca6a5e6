// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A helper process that changes partitions for one that enters them.
//!
//! Problem:  who moves itself below a busy real-time task may never run again, and must not hold
//!           the lock of all changes then. And it becomes another program, which must find no child
//!           that it did not start.
//! Approach: before the move, fork a helper that stays where it is and makes the changes when
//!           asked, one byte each way. The helper's parent is process 1. It ends when this process
//!           has become the command, since that closes the socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// The helper, as this process sees it.
pub struct Helper(UnixStream);

impl Helper {
    /// Forks. The helper calls `serve` with the number of each request, from 0, and answers with
    /// what that returns. Call with one thread only. Errors: those of socketpair(2), fork(2).
    pub fn start(mut serve: impl FnMut(u8) -> u8) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: the process has one thread, so the child may go on as any program.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                // SAFETY: as above. The first child ends at once, without anything of its parent's.
                match unsafe { libc::fork() } {
                    0 => answer(theirs, &mut serve),
                    // SAFETY: ends the process; no destructor or buffer of the parent runs here.
                    second => unsafe { libc::_exit(i32::from(second < 0)) },
                }
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` is an int that outlives the call.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                if status != 0 {
                    return Err(io::Error::from_raw_os_error(libc::EAGAIN));
                }
            }
        }
        Ok(Self(ours))
    }

    /// Has the helper serve a request. Errors: the helper was killed.
    pub fn ask(&mut self, request: u8) -> io::Result<u8> {
        let mut byte = [request];
        self.0.write_all(&byte)?;
        self.0.read_exact(&mut byte)?;
        Ok(byte[0])
    }
}

/// The helper's life.
fn answer(mut asks: UnixStream, serve: &mut dyn FnMut(u8) -> u8) -> ! {
    // A ^C at the terminal ends the process that asks, not the change half way.
    // SAFETY: takes nothing. It cannot fail: a forked child leads no process group.
    unsafe { libc::setsid() };
    let mut byte = [0];
    while asks.read_exact(&mut byte).is_ok() {
        byte[0] = serve(byte[0]);
        if asks.write_all(&byte).is_err() {
            break;
        }
    }
    // SAFETY: ends the process; no destructor or buffer of the parent runs here.
    unsafe { libc::_exit(0) }
}
