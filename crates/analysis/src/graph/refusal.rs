// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is no answer, or why the answer is no.

#[cfg(feature = "files")]
use serde::Serialize;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(rename_all = "lowercase"))]
pub enum Verdict {
    /// Proven: this graph cannot run as it stands.
    No,
    /// A bound was reached; more work or smaller numbers may tell.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(tag = "reason", rename_all = "kebab-case"))]
pub enum Refusal {
    /// Rates for which no number of firings leaves each edge as it was (rank of the topology matrix
    /// = tasks).
    #[error("{0}")]
    Inconsistent(Box<Contradiction>),

    #[error(
        "one iteration fires task {task} more than {bound} times: choose similar rates along \
         each path, or raise the bound"
    )]
    TooManyFirings { task: String, bound: u64 },

    #[error("too large for 64 bits: {what}; use smaller rates")]
    TooLarge { what: String },

    #[error(
        "edge {edge}: memory {memory} is too small: every schedule needs at least {needed} tokens"
    )]
    MemoryTooSmall { edge: String, memory: u64, needed: u64 },

    #[error("deadlock: {}", ring(.waits))]
    Deadlock {
        /// A ring: each task waits for the next, the last for the first.
        waits: Vec<Wait>,
    },

    #[error(
        "undecided whether the ring of {task} deadlocks: the search reached its bound of {work} \
         steps; raise it"
    )]
    WorkBound { task: String, work: u64 },
}

impl Refusal {
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Inconsistent(_) | Self::MemoryTooSmall { .. } | Self::Deadlock { .. } => {
                Verdict::No
            }
            Self::TooManyFirings { .. } | Self::TooLarge { .. } | Self::WorkBound { .. } => {
                Verdict::Unknown
            }
        }
    }

    /// Edges at fault, by name.
    pub fn edges(&self) -> Vec<&str> {
        match self {
            Self::Inconsistent(contradiction) => vec![&contradiction.edge],
            Self::MemoryTooSmall { edge, .. } => vec![edge],
            Self::Deadlock { waits } => waits.iter().map(|wait| wait.edge.as_str()).collect(),
            Self::TooManyFirings { .. } | Self::TooLarge { .. } | Self::WorkBound { .. } => {
                Vec::new()
            }
        }
    }

    /// The entry of the file that it names first: `task NAME` or `edge NAME`.
    #[cfg(feature = "files")]
    pub(super) fn entry(&self) -> Option<String> {
        Some(match self {
            Self::TooManyFirings { task, .. } | Self::WorkBound { task, .. } => {
                format!("task {task}")
            }
            // `the tokens of edge NAME`, `the granularity of task NAME`.
            Self::TooLarge { what } => what.split_once(" of ")?.1.to_owned(),
            Self::Inconsistent(_) | Self::MemoryTooSmall { .. } | Self::Deadlock { .. } => {
                format!("edge {}", self.edges().first()?)
            }
        })
    }
}

/// An edge whose rates do not suit those of the edges before it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Contradiction {
    pub edge: String,
    pub from: String,
    pub to: String,
    pub write: u64,
    pub read: u64,
    /// In lowest terms, along the edges before.
    pub from_firings: u128,
    pub to_firings: u128,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { edge, from, to, write, read, from_firings, to_firings } = self;
        write!(
            f,
            "edge {edge} is inconsistent with the edges before it: they imply {from_firings} \
             firings of {from} for {to_firings} of {to}, but write {write} and read {read} need \
             another ratio"
        )
    }
}

/// A task that cannot fire, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Wait {
    pub task: String,
    pub edge: String,
    #[cfg_attr(feature = "files", serde(flatten))]
    pub on: On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(tag = "waits_for", rename_all = "lowercase"))]
pub enum On {
    /// It reads more than there is: initial tokens are missing.
    Tokens { reads: u64, holds: u64 },
    /// It writes more than the memory still takes.
    Room { writes: u64, holds: u64, memory: u64 },
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, edge, on } = self;
        match on {
            On::Tokens { reads, holds } => {
                write!(f, "{task} reads {reads} from {edge}, which holds {holds}")
            }
            On::Room { writes, holds, memory } => {
                write!(
                    f,
                    "{task} writes {writes} to {edge}, which holds {holds} of its memory {memory}"
                )
            }
        }
    }
}

/// The first waits of a ring in words; a ring may be as long as the graph.
fn ring(waits: &[Wait]) -> String {
    const SHOWN: usize = 6;
    let mut words: Vec<String> = waits.iter().take(SHOWN).map(Wait::to_string).collect();
    if waits.len() > SHOWN {
        words.push(format!("and {} more in the ring", waits.len() - SHOWN));
    }
    let room = waits.iter().any(|wait| matches!(wait.on, On::Room { .. }));
    let cure = if room { "a larger memory or more initial tokens" } else { "more initial tokens" };
    format!("{}; use {cure}", words.join("; "))
}
