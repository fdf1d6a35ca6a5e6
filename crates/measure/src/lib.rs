// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What really happens on CPUs: counts of what disturbs them, and experiments (latency, overhead)
//! with their loads, run directories, summaries and plots. Changes no setting of the machine: what
//! an experiment needs, its [`experiment::Conductor`] sets and restores. Only the trace instances
//! that it reads are its own.
//!
//! Start at [`noise::Watch`] for counts and [`experiment::Session`] for experiments; [`run::Run`]
//! reads what a session has written.

mod collect;
pub mod compare;
mod doubts;
pub mod exchange;
pub mod experiment;
mod explain;
pub mod histogram;
pub mod hlog;
mod kind;
pub mod load;
pub mod noise;
pub mod page;
pub mod pairs;
mod probe;
mod ranks;
pub mod report;
pub mod run;
pub mod sample;
mod scratch;
pub mod settings;
pub mod spaces;
mod summary;
mod text;
mod timerlat;
mod times;
mod told;
mod turn;
mod verdict;

/// A late sample with its cause, as a run keeps it.
pub use explain::Outlier;
/// The figures of a run.
pub use summary::{PercentileValue, Summary};
