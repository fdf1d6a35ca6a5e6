// SPDX-License-Identifier: Apache-2.0 OR MIT
//! After how much data a task may take a new configuration (Eustache, Diguet 2008, section 3.3;
//! their symbols).
//!
//! Gc0 = Cy W for each output, Cy the firings of one iteration; K the smallest factor that makes
//! each constrained output of the cluster a whole multiple of its Gc_appli; Gc = K Gc0.
//!
//! Where we differ: rule 3 of the paper takes the largest K of a cluster, with which a task of
//! another constraint stops inside an image; the smallest K that suits all is their least common
//! multiple. (K Gc0 is a multiple of Gc_appli exactly if K is one of lcm(Gc0, Gc_appli) / Gc0.)
//! Rules 1 and 2 have formula and prose exchanged; rule 3 makes both hold.

use super::balance::Balance;
use super::model::{Case, Graph};
use super::refusal::Refusal;
use crate::numbers::{gcd, lcm};

/// One output of a task.
pub(super) struct Granule {
    /// Index of the edge; `None`: to the outside.
    pub edge: Option<usize>,
    pub gc0: u64,
    pub gc: u64,
}

/// Of one task.
pub(super) struct Granularity {
    /// K for this task's constraints alone.
    pub own_factor: u64,
    /// Firings from one moment at which it may change to the next: K Cy; 1 where it may after any
    /// firing.
    pub firings: u64,
    pub outputs: Vec<Granule>,
}

/// Of each task, and K of each cluster. Errors: [`Refusal::TooLarge`]. Linear.
pub(super) fn granularity(
    graph: &Graph,
    balance: &Balance,
) -> Result<(Vec<Granularity>, Vec<u64>), Refusal> {
    let mut factors = vec![1; balance.clusters];
    let mut all = Vec::with_capacity(graph.tasks().len());
    for (index, task) in graph.tasks().iter().enumerate() {
        let too_large =
            || Refusal::TooLarge { what: format!("the granularity of task {}", task.name) };
        let mut outputs = Vec::new();
        let mut own_factor = 1;
        for (edge, write) in writes(graph, index) {
            if task.case != Case::Configuration {
                outputs.push(Granule { edge, gc0: 1, gc: 1 });
                continue;
            }
            let gc0 = balance.firings[index].checked_mul(write).ok_or_else(too_large)?;
            let of_edge = edge.and_then(|edge| graph.edges()[edge].multiple_of);
            for multiple in [task.multiple_of, of_edge].into_iter().flatten() {
                own_factor =
                    lcm(own_factor, multiple / gcd(gc0, multiple)).ok_or_else(too_large)?;
            }
            outputs.push(Granule { edge, gc0, gc: gc0 });
        }
        let factor = &mut factors[balance.cluster[index]];
        *factor = lcm(*factor, own_factor).ok_or_else(too_large)?;
        all.push(Granularity { own_factor, firings: 1, outputs });
    }
    for (index, granularity) in all.iter_mut().enumerate() {
        let task = &graph.tasks()[index];
        if task.case != Case::Configuration {
            continue;
        }
        let too_large =
            || Refusal::TooLarge { what: format!("the granularity of task {}", task.name) };
        let factor = factors[balance.cluster[index]];
        granularity.firings = balance.firings[index].checked_mul(factor).ok_or_else(too_large)?;
        for output in &mut granularity.outputs {
            output.gc = output.gc0.checked_mul(factor).ok_or_else(too_large)?;
        }
    }
    Ok((all, factors))
}

/// What a firing writes: to each edge, and outside. A task that writes nowhere counts its firings:
/// one data set each.
fn writes(graph: &Graph, task: usize) -> impl Iterator<Item = (Option<usize>, u64)> {
    let edges = graph.outputs(task);
    let outside = match graph.tasks()[task].output {
        None if edges.is_empty() => Some(1),
        given => given,
    };
    edges
        .iter()
        .map(|&edge| (Some(edge), graph.edges()[edge].write))
        .chain(outside.map(|write| (None, write)))
}
