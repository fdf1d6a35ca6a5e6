// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measurement at a time: the kernel's tracers osnoise and timerlat, and the settings of
//! `Request::System`, are there once for the whole machine.

use super::{ChangeError, Shield};
use crate::decide::no_tracer_runs;
use crate::partition::Refusal;
use asmp_host::store::Lock;
use asmp_host::tracefs;
use std::time::Duration;

/// The lock file of measurements, in [`crate::RUN_DIR`].
const MEASURING: &str = "measuring.lock";

impl Shield {
    /// Keeps `Request::System` for one measurement, until the lock is dropped or the process ends.
    /// Does not wait. With `tracer` it also asks that no other program uses osnoise or timerlat.
    /// Errors: `Refused` where another has it.
    pub fn measure_alone(&self, tracer: bool) -> Result<Lock, ChangeError> {
        let lock = self.store.lock_of(MEASURING, Duration::ZERO)?.ok_or(Refusal::Measuring)?;
        if tracer {
            tracefs::remove_stale(self.kernel());
            no_tracer_runs(self.kernel())?;
        }
        Ok(lock)
    }
}
