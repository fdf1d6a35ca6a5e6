//! Two schedulers that run inside one thread of a program, on a CPU of its own.
//!
//! [`npedf`] runs periodic jobs without preemption, by deadline, and background jobs between them (Mumolo, Nolich
//! and Lenac, "A Real-Time Embedded Kernel for Nonvisual Robotic Sensors", 2008: Yartek). [`reflective`] performs a
//! table of actions at instants which the program reads and changes while it runs, and takes the systematic
//! wake-up latency out of them (Ruocco, "A Real-Time Programmer's Tour of General-Purpose L4 Microkernels",
//! 2008, section 4.7).
//!
//! Times are nanoseconds of the [`Clock`] an executive is given: [`Monotonic`] on the machine, a
//! [`Caller`](crate::virtual_cpu::Caller) on virtual time. Executives allocate when they are made, not when they run.

pub mod admit;
pub mod calibration;
pub mod clock;
pub mod edf;
pub mod errors;
pub mod flags;
pub mod npedf;
pub mod pi_mutex;
pub mod reflective;
pub mod table;

pub use clock::{Clock, Monotonic};
pub use flags::Flags;
