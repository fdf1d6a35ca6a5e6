// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synchronous data flow (Lee, Messerschmitt 1987) and configuration granularity (Eustache, Diguet
//! 2008).
//!
//! A task fires: it reads `read` tokens from each edge into it, then writes `write` tokens to each
//! edge out of it. From the rates alone follow how often each task fires in one iteration
//! (`balance.rs`), whether the tasks ever wait for each other in a ring (`fire.rs`, on the pieces
//! that `piece.rs` cuts out), how large the memories must be (`buffer.rs`), an order of firings
//! (`schedule.rs`), and after how much data a task may take a new configuration (`granularity.rs`).
//! `report.rs` puts it together.
//!
//! Units: tokens and firings. Everything is bounded: linear in tasks and edges, but for firing
//! itself, which ends at [`Limits::work`]. A number that does not fit is a [`Refusal`], never a
//! wrong answer.

mod balance;
mod buffer;
mod dot;
#[cfg(feature = "files")]
mod file;
mod fire;
mod granularity;
mod model;
mod piece;
mod refusal;
mod report;
mod schedule;
mod svg;

pub use buffer::{Proof, Size, least_capacity};
pub use dot::dot;
#[cfg(feature = "files")]
pub use file::line_of;
pub use fire::Run;
pub use model::{Case, Edge, Graph, GraphError, Limits, Task};
pub use refusal::{Contradiction, On, Refusal, Verdict, Wait};
pub use report::{Cluster, EdgeReport, Output, Report, TaskReport, analyze};
pub use schedule::{Phase, Schedule};
pub use svg::svg;
