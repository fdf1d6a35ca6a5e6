// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `Offer`: a channel for programs of other users, over a Unix socket.

use crate::errors;
use crate::slot::{Slot, handle};
use crate::wait::deadline;
use asmp_channel::{Access, Kind, OfferError, SharedMemory};
use pyo3::prelude::*;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a wait checks for signals and for `close`.
const SLICE: Duration = Duration::from_millis(100);

/// A channel on a Unix socket, for programs of other users: the method `offer` of an end, a record
/// or an mbuff returns it. Leaving `with` closes it.
#[pyclass(frozen, module = "asmp_rt")]
pub struct Offer {
    slot: Slot<Arc<asmp_channel::Offer>>,
}

impl Offer {
    /// Offers the memory. Raises BadName, NameTaken, ForeignDirectory, Mismatch, ChannelIO.
    pub fn of(
        channel: &SharedMemory,
        path: PathBuf,
        users: Option<Vec<u32>>,
        writable: bool,
    ) -> PyResult<Self> {
        let access = if writable { Access::Write } else { Access::Read };
        let made = asmp_channel::Offer::new(&path, channel, access, &users.unwrap_or_default());
        let offer = made.map_err(errors::offer)?;
        Ok(Self { slot: Slot::new("the offer of channel", channel.name(), Arc::new(offer)) })
    }
}

#[pymethods]
impl Offer {
    /// Wait up to `timeout` seconds (None: without limit) for one client that may have the channel,
    /// and hand it over. Returns the client's user ID and process ID (0: in another PID namespace).
    /// Other users are refused. Never waits for what a client does.
    ///
    /// Raises TimedOut, Closed (by another thread, within 100 ms), ChannelIO (call it again),
    /// ValueError.
    #[pyo3(signature = (timeout = None))]
    fn serve(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(u32, u32)> {
        let end = deadline(timeout)?;
        loop {
            let offer = self.slot.with(py, |offer| Arc::clone(offer))?;
            let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
            let served = py.detach(|| offer.serve_one(Some(left.min(SLICE))));
            py.check_signals()?;
            match served {
                Ok(peer) => return Ok((peer.user, peer.process)),
                Err(OfferError::TimedOut { .. }) if end.is_none() || left > SLICE => {}
                Err(error) => return Err(errors::offer(error)),
            }
        }
    }

    /// A descriptor for select and the like, readable while a client waits: then serve(0).
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.slot.with(py, |offer| offer.as_fd().as_raw_fd())
    }

    /// How many clients were refused, because the channel is not for their user.
    #[getter]
    fn refused(&self, py: Python<'_>) -> PyResult<u64> {
        self.slot.with(py, |offer| offer.refused())
    }

    /// Remove the socket. Who has received the channel keeps it.
    fn close(&self, py: Python<'_>) {
        let _ = self.slot.with(py, |offer| offer.end());
        self.slot.close(py);
    }
}

handle!(Offer, close);

/// Receives memory of this kind. Raises as `Fifo.receive`.
pub fn receive(
    py: Python<'_>,
    path: &Path,
    owner: Option<u32>,
    kind: Kind,
    timeout_s: Option<f64>,
) -> PyResult<SharedMemory> {
    let end = deadline(timeout_s)?;
    loop {
        let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
        let received =
            py.detach(|| asmp_channel::receive(path, owner, kind, Some(left.min(SLICE))));
        py.check_signals()?;
        match received {
            Err(OfferError::TimedOut { .. }) if end.is_none() || left > SLICE => {}
            other => return other.map_err(errors::offer),
        }
    }
}
