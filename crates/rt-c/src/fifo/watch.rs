// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handler of time-sharing accesses: a thread that watches the position of the other side. It
//! adds nothing to a put or get of the real-time side.

use crate::fifo::name_of;
use crate::fifo::table::Halves;
use crate::why::number;
use asmp_channel::{Canceller, Fifo, Kind, Role, SharedMemory};
use std::ffi::{c_int, c_uint};
use std::thread::{self, JoinHandle};
use std::time::Duration;

type Handler = unsafe extern "C" fn(c_uint) -> c_int;

/// A thread that calls a handler. Dropping it ends it and waits for that (its handler's time),
/// unless it is dropped by the handler itself.
pub struct Watcher {
    handler: Handler,
    canceller: Canceller,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Errors: EAGAIN, no thread; EMFILE; EINVAL, no FIFO.
    pub fn start(fifo: c_uint, halves: &'static Halves, handler: Handler) -> Result<Self, c_int> {
        // The descriptor again, without a name of its own: the thread does not keep the channel
        // alive.
        let io = |error: std::io::Error| -error.raw_os_error().unwrap_or(libc::EIO);
        let fd = halves
            .with_get(|half| half.channel()?.shared().as_fd().try_clone_to_owned().map_err(io))?;
        let channel =
            SharedMemory::from_fd(fd, &name_of(fifo), Kind::Fifo).and_then(Fifo::from_shared);
        let channel = channel.map_err(|error| number(&error))?;
        let canceller = channel.canceller();
        // From here on nothing is overlooked.
        let seen = positions(&channel);
        let watch = move || {
            ordinary();
            watch(&channel, halves, seen, || {
                // SAFETY: the program's own handler, by its word callable until the FIFO is
                // destroyed.
                unsafe { handler(fifo) };
            });
        };
        let thread =
            thread::Builder::new().name(name_of(fifo)).spawn(watch).map_err(|_| -libc::EAGAIN)?;
        Ok(Self { handler, canceller, thread: Some(thread) })
    }

    pub fn handler(&self) -> Handler {
        self.handler
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.canceller.cancel();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A thread inherits the policy of the thread that creates it. This work runs as SCHED_OTHER.
fn ordinary() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the caller's own thread; the parameters outlive the call. To SCHED_OTHER one may
    // always go.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) };
}

/// How far the writer and the reader have come.
fn positions(channel: &Fifo) -> [u64; 2] {
    [Role::Writer, Role::Reader].map(|role| channel.position(role))
}

fn watch(channel: &Fifo, halves: &Halves, mut seen: [u64; 2], mut handler: impl FnMut()) {
    const SLICE: Duration = Duration::from_millis(100);
    let ends = channel.canceller();
    while !ends.is_cancelled() {
        // Where this process writes, the other side reads.
        let (of, at) = match halves.is_ours(Role::Writer) {
            true => (Role::Reader, 1),
            false => (Role::Writer, 0),
        };
        channel.watch(of, SLICE, || channel.position(of) != seen[at]);
        let now = positions(channel);
        // A role is taken before its position moves, so what is not ours now was the other side's.
        let theirs = |at: usize, role| now[at] != seen[at] && !halves.is_ours(role);
        let accessed = theirs(0, Role::Writer) || theirs(1, Role::Reader);
        seen = now;
        if accessed && !ends.is_cancelled() {
            handler();
        }
    }
}
