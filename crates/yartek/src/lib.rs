// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task sets for yartek, a kernel for microcontrollers that runs exactly the schedule that
//! `asmp analyze` has proved. The kernel itself is C, in the directory `yartek` of the repository.

mod core_c;

/// The kernel's choice of jobs, on this machine.
pub use core_c::{Edf, Job, Late, Next, Stats, Task};
