// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partitions of a machine: CPUs, IRQ lines and tasks as one object.
//!
//! [`Request`] + [`Caller`] -> decide -> plan (pure) -> apply -> journal -> verify -> restore.
//! [`Shield`] does all that under one lock; `decide` says what a request makes of the partitions,
//! within the `rules`; `target` says what every setting must be under them; [`plan`](mod@plan)
//! orders the steps; `apply` takes them and knows the way back; [`verify`](mod@verify) reads
//! everything back and names what violates a partition; [`doctor`] looks at the machine. No paths
//! and no command line here: kernel files are [`asmp_host::Knob`]s.

mod apart;
mod apply;
mod aspect;
mod choose;
pub mod code;
mod decide;
pub mod declaration;
mod declare;
pub mod doctor;
mod grant;
mod granted;
mod guard;
mod kworkers;
mod left;
mod lines;
mod masks;
pub mod membership;
mod mend;
mod mode;
mod moving;
mod need;
mod neighbours;
mod orphans;
mod outcome;
pub mod partition;
pub mod plan;
mod policies;
mod prove;
mod refusal;
pub mod request;
mod rules;
mod shield;
mod state;
mod target;
pub mod text;
pub mod verify;

#[cfg(test)]
mod again_tests;
#[cfg(test)]
mod apart_tests;
#[cfg(test)]
mod choose_tests;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod given_back_tests;
#[cfg(test)]
mod governor_tests;
#[cfg(test)]
mod grant_tests;
#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod lost_tests;
#[cfg(test)]
mod masks_tests;
#[cfg(test)]
mod mode_tests;
#[cfg(test)]
mod need_tests;
#[cfg(test)]
mod neighbours_tests;
#[cfg(test)]
mod others_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod system_tests;
#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod undo_tests;

/// What the kernel refused, and what is not given back yet, in words.
pub use apply::Refused;
/// A task in a partition, and where it came from.
pub use asmp_host::task::Member;
/// CPUs by number: what is needed, what was chosen, and why.
pub use choose::{Choice, Chosen, Need, Next, Reason};
/// Partitions as a file declares them.
pub use declaration::Declaration;
/// What users who are not root may do.
pub use grant::Grant;
pub use left::{Elsewhere, Left};
/// Who may use the CPUs of a partition.
pub use mode::Mode;
/// A thread that loses its real-time policy on the way out.
pub use moving::Demotion;
/// Groups and tasks of others that lose CPUs to a partition.
pub use neighbours::Affected;
/// The one way to change partitions.
pub use outcome::Outcome;
/// The nouns: a partition and its settings; all partitions; why a request is refused.
pub use partition::{Aspect, BoostedThread, Partition, Refusal, Service, Smt, State, System, Tick};
/// The steps of a change, in order.
pub use plan::{Action, Base, Plan, Step, plan};
/// What may be asked, and who asks.
pub use request::{Caller, Cpus, Members, Request, Spec};
/// Whether a machine can be partitioned at all, and whether it has certain CPUs.
pub use rules::{check_machine, check_tree, online_cpus, possible_cpus};
pub use shield::{ChangeError, Patience, Recovered, Shield, Watched};
/// Where the state lies, and its layout's version.
pub use state::{RUN_DIR, STATE_SCHEMA, StateError};
