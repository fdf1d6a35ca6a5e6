// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every interleaving of small models of the lock-free algorithms (`make loom`).
//!
//! Ends are attached before their threads part. loom remembers one load per place: a writer that
//! first loads what it stores later would hide interleavings with the reader's loads. So each model
//! counts its executions and fails when there are too few.

mod cancel;
mod descriptor;
mod pair;
mod rendezvous;
mod ring;
mod seqlock;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs `body` in every interleaving. Panics when there are fewer than `at_least`.
fn explore(at_least: usize, body: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    loom::model(move || {
        count.fetch_add(1, Relaxed);
        body();
    });
    let executions = executions.load(Relaxed);
    println!("{executions} executions");
    assert!(executions >= at_least, "only {executions} executions: nothing was explored");
}
