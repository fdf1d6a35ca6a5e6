//! Waiting for the other end of a FIFO, as one that watches it ([`asmp_channel::Fifo::watch_for`]): without the
//! interpreter, without a lock, in slices of 100 ms between which signals and `close` are noticed.

use crate::errors::{PeerGone, TimedOut};
use asmp_channel::{Fifo, Role};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);

/// The end of a wait of so many seconds; `None`: never. Errors: ValueError.
pub fn deadline(timeout_s: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout_s else { return Ok(None) };
    let refused = || {
        let line = format!("timeout={seconds}: give seconds, 0 or more, or None to wait for ever");
        PyValueError::new_err(line)
    };
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| refused())?;
    Instant::now().checked_add(time).map(Some).ok_or_else(refused)
}

/// The other end, as this one knows it.
pub struct Peer {
    role: Role,
    /// It has been there: only then can it be gone. One that has not come yet is waited for.
    met: AtomicBool,
}

enum Seen {
    Ready,
    Nothing,
    TimedOut,
    Gone,
}

impl Peer {
    pub const fn new(role: Role) -> Self {
        Self { role, met: AtomicBool::new(false) }
    }

    /// Something came from it.
    pub fn is_met(&self) {
        self.met.store(true, Relaxed);
    }

    /// Waits for `ready`, which may also find that there is nothing to wait for any more. Errors: TimedOut, PeerGone,
    /// what `ready` or a signal raises.
    pub fn wait(
        &self,
        py: Python<'_>,
        fifo: &Fifo,
        end: Option<Instant>,
        ready: impl Fn() -> PyResult<bool> + Sync,
    ) -> PyResult<()> {
        loop {
            let seen = py.detach(|| self.look(fifo, end, &ready))?;
            py.check_signals()?;
            let name = fifo.shared().name();
            match seen {
                Seen::Ready => return Ok(()),
                Seen::Nothing => (),
                Seen::TimedOut => return Err(TimedOut::new_err(format!("fifo {name}: the time is over"))),
                Seen::Gone => {
                    let noun = if self.role == Role::Writer { "writer" } else { "reader" };
                    return Err(PeerGone::new_err(format!("fifo {name}: its {noun} is gone")));
                }
            }
        }
    }

    /// One slice of it.
    fn look(
        &self,
        fifo: &Fifo,
        end: Option<Instant>,
        ready: &(impl Fn() -> PyResult<bool> + Sync),
    ) -> PyResult<Seen> {
        // First asked for, then looked for what it did: so what it did before it went is found.
        let there = fifo.shared().is_held(self.role);
        let slice_end = Instant::now() + SLICE;
        loop {
            let position = fifo.position(self.role);
            // Acquire pairs with the Release of that position: what was done before it moved is seen by `ready`.
            fence(Acquire);
            if ready()? {
                return Ok(Seen::Ready);
            }
            match there {
                true => self.met.store(true, Relaxed),
                false if self.met.load(Relaxed) => return Ok(Seen::Gone),
                false => (),
            }
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(Seen::TimedOut);
            }
            if now >= slice_end {
                return Ok(Seen::Nothing);
            }
            let until = end.map_or(slice_end, |end| end.min(slice_end));
            fifo.watch_for(self.role, position, until - now);
        }
    }
}
