// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How large memories must be.
//!
//! Three figures for each edge, and no more is claimed than is proven:
//! - [`least_capacity`]: every schedule needs at least this on the edge, for any sizes of the
//!   others;
//! - [`Size`]: all sizes together let every order of firings that respects them go on for ever, and
//!   [`Proof`] says how tight each is. The smallest *sum* is NP-hard to find (Murthy) and claimed
//!   only where each size is `Least`;
//! - `peak` of the report: what the one schedule that is printed needs.
//!
//! A size counts tokens between firings: a firing reads, then writes. Where writer and reader run
//! at the same time and a firing holds its room from its start and its inputs to its end, these
//! sizes still do (each just waits longer), but for a self-loop, which then needs `write` more.

use super::fire::{End, Piece, Work};
use super::model::{Edge, Graph};
use super::piece::{Pieces, blocks, rings};
use crate::numbers::gcd;
#[cfg(feature = "files")]
use serde::Serialize;

/// How tight a size is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(rename_all = "lowercase"))]
pub enum Proof {
    /// No schedule does with less on this edge.
    Least,
    /// With the other sizes as they are, less on this edge ends in a deadlock.
    Irreducible,
    /// Enough; the work was used up before less was tried.
    Enough,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Size {
    pub tokens: u64,
    pub proof: Proof,
}

/// max(d, a + b - g + d mod g) for write a, read b, initial tokens d, g = gcd(a, b): the least
/// memory with which any schedule goes on for ever, and enough for the two tasks alone. `None`: it
/// does not fit 64 bits.
///
/// The count of tokens stays d modulo g. With a capacity c below a + b the next step of the count
/// is forced (write up to c - a, else read), and is a turn by a modulo a + b: it comes through
/// every value that is d modulo g, also through b - g + d mod g, where there is too little to read,
/// and too little room to write unless c is at least the figure above. From that figure on the
/// reader or the writer of the edge can always go on. (Bhattacharyya, Murthy, Lee, "Software
/// Synthesis from Dataflow Graphs", Kluwer 1996, state it for d <= a + b - g.)
pub fn least_capacity(write: u64, read: u64, initial: u64) -> Option<u64> {
    let shared = gcd(write, read).max(1);
    let needed = (write - shared.min(write)).checked_add(read)?.checked_add(initial % shared)?;
    Some(needed.max(initial))
}

/// Sizes with which the graph never blocks; `peaks` stand in where the work was used up. `None`:
/// neither is known.
///
/// A bridge needs its least capacity only (`piece.rs`). Within a block each edge starts there, and
/// the stalled task that needs least grows its outputs until an iteration is complete; then each
/// size is cut as far as it goes. Memory is never exceeded; the graph must be live with it.
pub(super) fn sizes(
    graph: &Graph,
    firings: &[u64],
    least: &[u64],
    peaks: &[Option<u64>],
    max_work: u64,
) -> Vec<Option<Size>> {
    let mut tokens: Vec<Option<u64>> = least.iter().copied().map(Some).collect();
    let mut proofs = vec![Proof::Enough; least.len()];
    let mut work = Work::new(max_work);
    let pieces = blocks(graph, &rings(graph, |_| true));
    let memory = |edge: usize| graph.edges()[edge].memory;
    let mut grown = Vec::new();
    for group in (0..pieces.groups.len()).filter(|group| pieces.groups[*group].len() > 1) {
        let mut piece = Piece::new(graph, &pieces, group, firings, |edge| Some(least[edge]), 0);
        let done = loop {
            match piece.run(&mut work) {
                End::Done => break true,
                End::Stuck if piece.grow(&mut work, memory) => {}
                End::Stuck | End::OutOfWork => break false,
            }
        };
        for (edge, capacity, _) in piece.sizes() {
            tokens[edge] = if done { capacity } else { peaks[edge] };
        }
        if done {
            grown.push(group);
        }
    }
    for group in grown {
        cut(graph, &pieces, group, firings, least, &mut tokens, &mut proofs, &mut work);
    }
    let size = |(edge, tokens): (usize, Option<u64>)| {
        let tokens = tokens?;
        let proof = if tokens == least[edge] { Proof::Least } else { proofs[edge] };
        Some(Size { tokens, proof })
    };
    tokens.into_iter().enumerate().map(size).collect()
}

/// Makes each size of a block as small as the others let it be: sizes that were cut before stay
/// irreducible, for smaller others never help.
#[expect(clippy::too_many_arguments, reason = "one step of `sizes`, with its state")]
fn cut(
    graph: &Graph,
    pieces: &Pieces,
    group: usize,
    firings: &[u64],
    least: &[u64],
    tokens: &mut [Option<u64>],
    proofs: &mut [Proof],
    work: &mut Work,
) {
    let edges: Vec<usize> = Piece::new(graph, pieces, group, firings, |edge| tokens[edge], 0)
        .sizes()
        .map(|(edge, ..)| edge)
        .collect();
    for edge in edges {
        let Some(mut enough) = tokens[edge] else { continue };
        let Edge { write, read, .. } = graph.edges()[edge];
        let step = gcd(write, read).max(1);
        // Only counts that are d modulo g ever occur: sizes between them hold no more.
        let mut blocked_below = least[edge];
        while blocked_below < enough {
            let middle = blocked_below + (enough - blocked_below) / step / 2 * step;
            let capacity = |of: usize| if of == edge { Some(middle) } else { tokens[of] };
            match Piece::new(graph, pieces, group, firings, capacity, 0).run(work) {
                End::Done => enough = middle,
                End::Stuck => blocked_below = middle + step,
                End::OutOfWork => return,
            }
            tokens[edge] = Some(enough);
        }
        proofs[edge] = Proof::Irreducible;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Whether two tasks on one edge can go on for ever within a capacity, by looking at all
    /// reachable counts.
    fn goes_on(write: u64, read: u64, initial: u64, capacity: u64) -> bool {
        if initial > capacity {
            return false;
        }
        let (mut seen, mut next) = (BTreeSet::new(), vec![initial]);
        while let Some(count) = next.pop() {
            if !seen.insert(count) {
                continue;
            }
            let moves = [
                (count + write <= capacity).then_some(count + write),
                (count >= read).then(|| count - read),
            ];
            if moves == [None, None] {
                return false;
            }
            next.extend(moves.into_iter().flatten());
        }
        true
    }

    #[test]
    fn the_least_capacity_is_the_least_that_goes_on() {
        for (write, read, initial) in
            (1..=8).flat_map(|a| (1..=8).flat_map(move |b| (0..=20).map(move |d| (a, b, d))))
        {
            let least = least_capacity(write, read, initial).unwrap();
            let found = (0..).find(|capacity| goes_on(write, read, initial, *capacity)).unwrap();
            assert_eq!(least, found, "write {write} read {read} initial {initial}");
        }
    }

    #[test]
    fn a_least_capacity_beyond_64_bits_is_none() {
        assert_eq!(least_capacity(u64::MAX, u64::MAX - 1, 0), None);
        assert_eq!(least_capacity(u64::MAX, u64::MAX, 0), Some(u64::MAX));
        assert_eq!(least_capacity(1, 1, u64::MAX), Some(u64::MAX));
    }
}
