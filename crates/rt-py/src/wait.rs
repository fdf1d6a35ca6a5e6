// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the other end of a FIFO, by watching its position ([`asmp_channel::Fifo::watch`]):
//! without the GIL and without a lock. It checks for signals every 100 ms.

use crate::errors::{Cancelled, PeerGone, TimedOut};
use asmp_channel::{Canceller, Fifo, Role};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};
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

/// The other end, and who ends waits for it.
pub struct Peer {
    role: Role,
    /// It can be gone only once it was there: before that we wait for it.
    other: Arc<asmp_channel::OtherEnd>,
    pub canceller: Canceller,
}

enum Seen {
    Ready,
    Nothing,
    TimedOut,
    Gone,
    Cancelled,
}

impl Peer {
    pub const fn new(role: Role, other: Arc<asmp_channel::OtherEnd>, canceller: Canceller) -> Self {
        Self { role, other, canceller }
    }

    /// Errors: Cancelled.
    pub fn check(&self, name: &str) -> PyResult<()> {
        match self.canceller.is_cancelled() {
            true => Err(Cancelled::new_err(format!("fifo {name}: cancelled by another thread"))),
            false => Ok(()),
        }
    }

    /// Waits until `ready` returns a value. Errors: TimedOut, PeerGone, Cancelled, and errors that
    /// `ready` or a signal handler raises.
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
                Seen::Cancelled => self.check(name)?,
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
        let gone = self.other.has_ended(fifo);
        let slice_end = Instant::now() + SLICE;
        loop {
            let position = fifo.position(self.role);
            // Acquire pairs with the Release of that position: `ready` sees the changes before it
            // moved.
            fence(Acquire);
            let ready = ready()?;
            if self.canceller.is_cancelled() {
                return Ok(Seen::Cancelled);
            }
            if ready || gone {
                return Ok(if ready { Seen::Ready } else { Seen::Gone });
            }
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(Seen::TimedOut);
            }
            if now >= slice_end {
                return Ok(Seen::Nothing);
            }
            let until = end.map_or(slice_end, |end| end.min(slice_end));
            let changed = || fifo.position(self.role) != position || self.canceller.is_cancelled();
            fifo.watch(self.role, until - now, changed);
        }
    }
}
