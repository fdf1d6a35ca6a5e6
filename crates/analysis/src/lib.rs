//! Will it meet its deadlines, and is its data flow sound? Tests of schedulability, budgets, placement, a simulator that
//! agrees with them, and synchronous data flow ([`graph`]).
//!
//! Pure: no clock, no file, no thread; time is whole nanoseconds in `u64`. Every test answers with a [`Verdict`], which
//! is never a guess: what a test cannot decide within its [`Effort`] is `Unknown`, what it does not cover is
//! `DoesNotApply`, and a `NotSchedulable` carries a release pattern that the simulator has been through.
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
//! | chains across cores | [`chain`] | Tindell, Clark 1994; Spuri 1996 |
//! | how much room is left | [`slack`] | search over the tests above |
//! | which core | [`place`] | bin packing; de Niz, Rajkumar 2006 |

pub mod budgets;
pub mod chain;
pub mod check;
pub mod deadline;
mod demand;
pub mod edf;
pub mod edf_response;
pub mod file;
pub mod fp;
pub mod graph;
pub mod np_edf;
pub mod np_fp;
mod offsets;
pub mod place;
pub mod policy;
pub mod rm;
pub mod simulate;
pub mod slack;
pub mod task;
pub mod units;
mod utilisation;
pub mod verdict;

pub use policy::Policy;
pub use task::{Arrival, Class, Cost, Task};
pub use utilisation::Utilisation;
pub use verdict::{Counterexample, Doubt, Effort, Inapplicable, Missed, Start, Verdict};
