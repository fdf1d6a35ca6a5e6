// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole runs as one JSON document: what was measured, the figures, and each bucket.

use crate::histogram::{Beyond, Bucket};
use crate::run::{Provenance, Run};
use crate::summary::Summary;
use serde::Serialize;

/// Version of the layout.
const SCHEMA: u32 = 1;

/// All runs. Times are integers in nanoseconds, but the average and the deviation.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    schema: u32,
    runs: Vec<One<'a>>,
}

#[derive(Debug, Serialize)]
struct One<'a> {
    /// Its directory.
    run: String,
    /// As `run.json` has it.
    provenance: &'a Provenance,
    summary: Summary,
    /// Those with an instant, the missed ones included.
    buckets: Vec<Bucket>,
    /// What an import counts beyond its last bucket.
    beyond: Option<Beyond>,
}

impl<'a> Document<'a> {
    pub fn of(runs: &'a [Run]) -> Self {
        let one = |run: &'a Run| One {
            run: run.dir.display().to_string(),
            provenance: &run.provenance,
            summary: run.summary(),
            buckets: run.latencies.buckets().collect(),
            beyond: run.latencies.beyond(),
        };
        Self { schema: SCHEMA, runs: runs.iter().map(one).collect() }
    }
}
