// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does a task set meet its deadlines, and is its data flow sound? Tests of schedulability,
//! budgets, placement, a simulator that agrees with them, and synchronous data flow ([`graph`]).
//!
//! [`analyse()`] is the front door: a [`Workload`] and a [`Policy`] in, a [`Report`] out.
//! [`schedulability`] alone asks whether tasks on one CPU meet their deadlines.
//!
//! Pure: no clock, no file, no thread. Time is whole ticks of a [`TimeBase`] in `u64`; a tick is a
//! nanosecond, unless a time is a finer fraction. Every test answers with a [`Verdict`], which is
//! never a guess. What a test cannot decide within its [`Effort`] is `Unknown`. What it does not
//! cover is `DoesNotApply`. A `NotSchedulable` has a release pattern that the simulator replayed.
//!
//! | question | module | source |
//! |---|---|---|
//! | non-preemptive EDF, exact | [`np_edf`] | Jeffay, Stanat, Martel 1991; George, Rivierre, Spuri 1996 |
//! | how long may each task be | [`budgets`] | Mumolo, Nolich, Lenac 2008, Proposition 1 |
//! | EDF | [`edf`] | Zhang, Burns 2009; Baker 1991 |
//! | EDF response times, jitter | [`edf_response`] | Spuri 1996; George, Rivierre, Spuri 1996 |
//! | fixed priorities | [`fp`] | Lehoczky 1990; Tindell, Burns, Wellings 1994 |
//! | rate-monotonic by utilisation | [`rm`] | Liu, Layland 1973; Bini, Buttazzo 2003 |
//! | non-preemptive fixed priorities | [`np_fp`] | Davis, Burns, Bril, Lukkien 2007 |
//! | SCHED_DEADLINE | [`deadline`] | kernel/sched/deadline.c; Goossens, Funk, Baruah 2003 |
//! | given offsets, non-preemptive | `abstraction` | Nasri, Brandenburg 2017 |
//! | chains across cores | [`holistic`] | Tindell, Clark 1994; Spuri 1996 |
//! | data age, reaction time | `data_age` | Davare et al. 2007; Dürr et al. 2019 |
//! | how much room is left | [`slack`] | search over the tests above |
//! | which core | [`place`] | bin packing; de Niz, Rajkumar 2006 |
//!
//! Feature `files` (default): reads task sets and graphs from TOML and CSV, and implements serde's
//! `Serialize` for results. Without it no parser is linked.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod abstraction;
mod analyse;
pub mod budgets;
mod chain;
mod check;
mod data_age;
pub mod deadline;
mod decide;
mod demand;
pub mod edf;
pub mod edf_response;
mod explain;
#[cfg(feature = "files")]
pub mod file;
pub mod fp;
pub mod graph;
pub mod holistic;
mod levels;
pub mod np_edf;
pub mod np_fp;
mod numbers;
mod offsets;
mod overload;
pub mod place;
mod policy;
mod report;
pub mod rm;
pub mod sampled;
pub mod simulate;
pub mod slack;
#[cfg(feature = "files")]
pub mod syntax;
mod task;
mod time;
mod utilisation;
mod verdict;
mod workload;
mod worst;

/// Everything about a workload under one policy; budgets; what the kernel admits.
pub use analyse::{
    BudgetReport, analyse, analyse_briefly, analyse_budgets, kernel_admission, schedulability,
};
/// Tasks that release each other.
pub use chain::Chain;
/// Limits of every test.
pub use check::MAX_TASKS;
/// Why a CPU is tight, and what would help.
pub use explain::{Explanation, Help};
/// Who runs next.
pub use policy::Policy;
/// What an analysis answers.
pub use report::{CpuReport, Outcome, Report, Summary, best_outcome};
/// Tasks that sample each other's data.
pub use sampled::{SampledBound, SampledChain};
/// One task.
pub use task::{Arrival, Class, Cost, Late, MAX_TICKS, Task, is_c_name};
/// How long a tick is.
pub use time::TimeBase;
/// The share of a CPU that tasks ask for.
pub use utilisation::Utilisation;
/// What a test proved, refuted or left open.
pub use verdict::{
    About, Counterexample, Doubt, Effort, Inapplicable, Missed, Start, Stop, Verdict,
};
/// What is analysed as a whole.
pub use workload::Workload;
/// Releases that miss or come closest, and pictures of them.
pub use worst::{Mismatch, schedule_svg, worst_releases, worst_schedule_svg};
