// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedulers that run inside one thread of a program, on a CPU of their own.
//!
//! [`Executive`] runs periodic jobs without preemption, by deadline, and background jobs between
//! them (Mumolo, Nolich and Lenac, "A Real-Time Embedded Kernel for Nonvisual Robotic Sensors",
//! 2008: Yartek). [`admit()`] proves that no job ends late.
//!
//! [`Reflective`] performs a table of actions at instants. The program reads and changes the table
//! while it runs. The scheduler compensates the systematic wake-up latency (Ruocco, "A Real-Time
//! Programmer's Tour of General-Purpose L4 Microkernels", 2008, section 4.7).
//!
//! Times are nanoseconds of the [`Clock`] of an executive: [`Monotonic`] on a machine, or virtual
//! time (feature `virtual`). Executives allocate when they are created, not when they run.

mod admit;
mod calibration;
mod clock;
mod edf;
mod errors;
mod flags;
mod npedf;
mod pi_mutex;
mod reflective;
mod table;

/// The admission test for [`Executive`].
pub use admit::{AdmissionError, Demand, admit};
/// How [`Reflective`] compensates wake-up latency.
pub use calibration::{Calibration, Programmed, Tuning};
/// The time base of an executive.
pub use clock::{Clock, Monotonic};
/// Which periodic job runs next, without the code of jobs: tasks, activations, statistics,
/// faults.
pub use edf::{Fault, JobSet, Late, Missing, Next, Stats, Task, Tick};
/// How exactly actions met their instants.
pub use errors::{Errors, Exactness};
/// Interrupt lines that wake an executive.
pub use flags::{Flags, NoSuchLine};
/// Non-preemptive earliest deadline first, with background jobs.
pub use npedf::{BackgroundStats, End, Executive, Jobs, Progress, Wake};
/// A mutex that lends the waiter's priority to the holder.
pub use pi_mutex::{Guard, PiMutex};
/// The reflective time-driven scheduler.
pub use reflective::{Moment, Reflective};
/// Its table of actions.
pub use table::{Action, Activity, Agenda, Entry, EntryId, Table, TableError};
