// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Discrete-event simulation of partitioned CPUs: what the tests are checked against, and what a
//! counterexample runs in.
//!
//! Deterministic: the same set, setting and seed give the same bytes, on every machine. No clock is
//! read. A run costs well under a microsecond a job and as much memory as jobs wait.

mod data;
pub(crate) mod engine;
pub(crate) mod gantt;
pub(crate) mod model;
pub(crate) mod pattern;
mod perfetto;
mod random;
pub(crate) mod record;
mod release;
pub(crate) mod replay;
pub(crate) mod run;
mod statistics;

pub use data::{DataRow, DataTimes};
pub use engine::{End, Job, Observe};
pub use gantt::{Schedule, gantt_svg, gantts_svg};
pub use model::{Background, Interrupt, Owner, Releases, Simulation};
pub use pattern::worst_pattern;
pub use perfetto::perfetto_trace;
pub use random::Random;
pub use record::{Instant, Record, Segment};
pub use release::Execution;
pub use replay::{first_miss, replay};
pub use run::Run;
pub use statistics::{Distribution, OfStream, Row, Statistics};
