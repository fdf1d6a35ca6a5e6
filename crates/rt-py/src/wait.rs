// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the other end of a FIFO, by watching its position
//! ([`asmp_channel::Fifo::watch_for`]): without the GIL and without a lock. It checks for signals
//! and for `close` every 100 ms.

use crate::errors::{PeerGone, TimedOut};
use asmp_channel::{Fifo, Role};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);

/// The end of a wait of `seconds` seconds. `None`: without limit. Errors: ValueError.
pub fn deadline(timeout_s: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout_s else { return Ok(None) };
    let refused = || {
        let line = format!(
            "invalid timeout {seconds}: use seconds, 0 or more, or None to wait without limit"
        );
        PyValueError::new_err(line)
    };
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| refused())?;
    Instant::now().checked_add(time).map(Some).ok_or_else(refused)
}

/// The state of the other end, as far as we know.
pub struct Peer {
    role: Role,
    /// Whether it has been attached. Only then can it be gone: before that we wait for it.
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

    /// Notes a sign of life.
    pub fn is_met(&self) {
        self.met.store(true, Relaxed);
    }

    /// Waits until `ready` returns a value. Errors: TimedOut, PeerGone, and errors that `ready` or
    /// a signal handler raises.
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
                Seen::TimedOut => return Err(TimedOut::new_err(format!("fifo {name}: timed out"))),
                Seen::Gone => {
                    let noun = if self.role == Role::Writer { "writer" } else { "reader" };
                    return Err(PeerGone::new_err(format!("fifo {name}: the {noun} has ended")));
                }
            }
        }
    }

    /// Waits for one slice of at most 100 ms.
    fn look(
        &self,
        fifo: &Fifo,
        end: Option<Instant>,
        ready: &(impl Fn() -> PyResult<bool> + Sync),
    ) -> PyResult<Seen> {
        // First check that it is alive, then what it did: so its last change is not missed.
        let there = fifo.shared().is_held(self.role);
        let slice_end = Instant::now() + SLICE;
        loop {
            let position = fifo.position(self.role);
            // Acquire pairs with the Release of that position: `ready` sees the changes before it
            // moved.
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
