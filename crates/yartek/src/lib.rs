// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task sets for yartek, a kernel for microcontrollers that runs exactly the schedule that
//! `asmp analyze` has proved. The kernel itself is C, in the directory `yartek` of the repository.

mod clock;
#[cfg(feature = "core-c")]
mod core_c;

/// The times of a task set in ticks of a board.
pub use clock::{Clock, ClockError, Given, MAX_TICKS, Off, Rate, Times};
/// The kernel's choice of jobs, on this machine.
#[cfg(feature = "core-c")]
pub use core_c::{Edf, Job, Late, Next, Stats, Task};
