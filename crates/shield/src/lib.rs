//! Partitions of a machine: CPUs, IRQ lines and tasks as one object.
//!
//! request -> plan (pure) -> apply -> journal -> verify -> restore. A [`request`] turns a wish into the
//! partitions that shall be; [`target`] says what every setting must be under them; [`plan`](mod@plan) orders the
//! steps; [`apply`](mod@apply) takes them and knows the way back; [`Shield`] does all that under one lock; [`verify`](mod@verify)
//! reads everything back and names what violates a partition. No paths and no command line here: kernel
//! files are [`asmp_host::Knob`]s.

pub mod apply;
pub mod moving;
pub mod partition;
pub mod plan;
pub mod request;
pub mod shield;
pub mod target;
pub mod verify;

#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod tests;

pub use apply::Refused;
pub use asmp_host::task::Placed;
pub use moving::Leaver;
pub use partition::{Aspect, Partition, Refusal, Served, Service, Smt, State, Tick};
pub use plan::{Action, Base, Plan, Step, plan};
pub use shield::{ChangeError, Outcome, Proof, Recovered, Shield, SystemIrqs, Terms};
