// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Large, huge and arbitrary graphs: bounded work, an answer or a refusal, no panic. Times are
//! printed, not judged.

use crate::{Random, analyzed, bounded, graph};
use asmp_analysis::graph::{Graph, Limits, Proof, Refusal, analyze, dot, svg};
use std::time::Instant;

#[test]
fn huge_counts_end_in_a_refusal() {
    let chain = |length: usize, write: u64, read: u64| {
        graph(length, &(0..length - 1).map(|n| (n, n + 1, write, read, 0)).collect::<Vec<_>>())
    };
    for (graph, says) in [
        (chain(60, 2, 3), "more than"),
        (chain(100_000, 2, 3), "more than"),
        (chain(2, u64::MAX, u64::MAX - 1), "more than"),
        (chain(3, 1, u64::MAX), "more than"),
        (graph(2, &[(0, 1, u64::MAX, u64::MAX, 1)]), "tokens of edge e0"),
    ] {
        let start = Instant::now();
        let refusal = analyzed(&graph).unwrap_err();
        println!("{} edges: {:?}", graph.edges().len(), start.elapsed());
        assert!(refusal.to_string().contains(says), "{refusal}");
    }
    let limits = Limits { firings: u64::MAX, ..Limits::default() };
    let graph = graph(2, &[(0, 1, u64::MAX, u64::MAX - 1, 0)]);
    assert!(matches!(analyze(&graph, &limits), Err(Refusal::TooLarge { .. })));
}

#[test]
fn a_ring_with_more_firings_than_work_is_unknown_and_never_guessed() {
    // Each firing of t1 needs one of t0: 10^9 turns, one at a time.
    let ring = |tokens| {
        graph(
            3,
            &[
                (0, 1, 1, 1, 0),
                (1, 0, 1, 1, tokens),
                (1, 2, 1, 1_000_000_007, 0),
                (2, 1, 1_000_000_007, 1, 2_000_000_014),
            ],
        )
    };
    let start = Instant::now();
    let refusal = analyzed(&ring(1)).unwrap_err();
    println!("{:?}", start.elapsed());
    assert!(matches!(&refusal, Refusal::WorkBound { .. }), "{refusal}");
    assert!(
        matches!(analyzed(&ring(0)), Err(Refusal::Deadlock { .. })),
        "this one is seen at once"
    );
}

#[test]
fn a_long_chain_of_memories_is_proven_without_running_it() {
    let chain: Vec<_> = (0..24).map(|n| (n, n + 1, 2, 3, 0, Some(4))).collect();
    let graph = bounded(25, &chain);
    let report = analyzed(&graph).unwrap();
    assert_eq!(report.tasks[0].firings, 282_429_536_481, "3^24");
    assert!(report.is_least());
    assert_eq!(report.schedule.phases[0].runs, None, "proven to go on, too long to list");
    assert!(report.schedule.text(&graph, 3).contains("whichever of t0, t1, t2"));
}

/// 10,000 edges, half of them a tree, in layers or with rings.
fn large(random: &mut Random, rings: bool) -> Graph {
    const TASKS: usize = 5_000;
    let count: Vec<u64> = (0..TASKS).map(|_| [1, 2, 3, 4, 6, 12][random.index(6)]).collect();
    let edges: Vec<_> = (1..=10_000)
        .map(|n| {
            let to = if n < TASKS { n } else { 1 + random.index(TASKS - 1) };
            let from = random.index(to);
            let (from, to, initial) = match rings && n % 50 == 0 {
                true => (to, from, 1_000),
                false => (from, to, 0),
            };
            (from, to, count[to], count[from], initial)
        })
        .collect();
    graph(TASKS, &edges)
}

#[test]
fn ten_thousand_edges_have_all_their_numbers() {
    let mut random = Random(6);
    for rings in [false, true] {
        let graph = large(&mut random, rings);
        let start = Instant::now();
        let result = analyzed(&graph);
        let analyzed_after = start.elapsed();
        let drawn = svg(&graph, &result).len() + dot(&graph, &result).len();
        let report = result.unwrap();
        let proven = |proof| {
            report
                .edges
                .iter()
                .filter(|edge| edge.size.is_some_and(|size| size.proof == proof))
                .count()
        };
        println!(
            "10000 edges, rings {rings}: {analyzed_after:?}, with drawings {:?} ({drawn} bytes); \
             sizes: {} least, {} irreducible, {} enough",
            start.elapsed(),
            proven(Proof::Least),
            proven(Proof::Irreducible),
            proven(Proof::Enough)
        );
        assert!(report.edges.iter().all(|edge| edge.size.is_some()));
    }
}

#[test]
fn a_chain_of_200000_tasks_needs_no_deep_stack() {
    let chain: Vec<_> = (0..200_000).map(|n| (n, n + 1, 1, 1, 0, Some(1))).collect();
    let graph = bounded(200_001, &chain);
    let start = Instant::now();
    let report = analyzed(&graph).unwrap();
    println!("200000 edges: {:?}", start.elapsed());
    assert!(report.is_least());
}
