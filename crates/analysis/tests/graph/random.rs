// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random graphs against the oracle.

use crate::oracle::{Edge, fire, null_vector};
use crate::{Random, analyzed, bounded, firings, graph};
use asmp_analysis::graph::{Limits, Proof, Refusal, Schedule, analyze};

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A connected graph whose tasks fire `0..largest` times and a bit; `back`: of all edges, how many
/// in ten may go back.
fn consistent(random: &mut Random, largest: u64, back: u64) -> (usize, Vec<Edge>) {
    let tasks = 2 + random.index(6);
    let count: Vec<u64> = (0..tasks).map(|_| 1 + random.below(largest)).collect();
    let mut edges = Vec::new();
    let mut join = |random: &mut Random, from: usize, to: usize| {
        let shared = gcd(count[from], count[to]);
        let factor = 1 + random.below(3);
        let initial = if random.below(3) == 0 { random.below(20) } else { 0 };
        edges.push((from, to, count[to] / shared * factor, count[from] / shared * factor, initial));
    };
    for to in 1..tasks {
        let from = random.index(to);
        join(random, from, to);
    }
    for _ in 0..random.index(5) {
        let (a, b) = (random.index(tasks), random.index(tasks));
        let backwards = random.below(10) < back;
        match a.cmp(&b) {
            std::cmp::Ordering::Equal if backwards => join(random, a, a),
            std::cmp::Ordering::Equal => {}
            _ if backwards => join(random, a.max(b), a.min(b)),
            _ => join(random, a.min(b), a.max(b)),
        }
    }
    (tasks, edges)
}

#[test]
fn firings_of_400_consistent_graphs_equal_elimination() {
    let mut random = Random(1);
    for round in 0..400 {
        let (tasks, edges) = consistent(&mut random, 12, 0);
        let report = analyzed(&graph(tasks, &edges))
            .unwrap_or_else(|refusal| panic!("{edges:?}: {refusal}"));
        assert_eq!(Some(firings(&report)), null_vector(tasks, &edges), "{round}: {edges:?}");
    }
}

#[test]
fn a_graph_is_refused_as_inconsistent_exactly_if_elimination_finds_nothing() {
    let mut random = Random(2);
    let mut refused = 0;
    for round in 0..400 {
        let (tasks, mut edges) = consistent(&mut random, 6, 0);
        let broken = random.index(edges.len());
        edges[broken].2 = 1 + random.below(6);
        let inconsistent = matches!(analyzed(&graph(tasks, &edges)), Err(Refusal::Inconsistent(_)));
        assert_eq!(inconsistent, null_vector(tasks, &edges).is_none(), "{round}: {edges:?}");
        refused += u32::from(inconsistent);
        if inconsistent {
            // The named edge, and none before it.
            let Err(Refusal::Inconsistent(found)) = analyzed(&graph(tasks, &edges)) else {
                unreachable!()
            };
            let index: usize = found.edge[1..].parse().unwrap();
            let contradicts = |count: usize| {
                matches!(analyzed(&graph(tasks, &edges[..count])), Err(Refusal::Inconsistent(_)))
            };
            assert!(contradicts(index + 1) && !contradicts(index), "{round}: {edges:?}: {found}");
        }
    }
    assert!((50..350).contains(&refused), "both kinds are met: {refused}");
}

#[test]
fn a_graph_deadlocks_exactly_if_firing_one_by_one_gets_stuck() {
    let mut random = Random(3);
    let mut refused = 0;
    for round in 0..600 {
        let (tasks, edges) = consistent(&mut random, 6, 5);
        let memories: Vec<Option<u64>> = edges
            .iter()
            .map(|edge| (random.below(3) == 0).then(|| edge.2 + edge.3 + edge.4 + random.below(8)))
            .collect();
        let given: Vec<_> = edges
            .iter()
            .zip(&memories)
            .map(|(&(a, b, c, d, e), memory)| (a, b, c, d, e, *memory))
            .collect();
        let count = null_vector(tasks, &edges).unwrap();
        let oracle = fire(&count, &edges, &memories);
        match analyzed(&bounded(tasks, &given)) {
            Ok(report) => {
                assert!(oracle.is_some(), "{round}: {given:?}");
                for (edge, memory) in report.edges.iter().zip(&memories) {
                    let within = |tokens: u64| memory.is_none_or(|memory| tokens <= memory);
                    assert!(
                        within(edge.peak.unwrap()) && within(edge.size.unwrap().tokens),
                        "{round}: {edge:?}"
                    );
                }
            }
            Err(Refusal::Deadlock { waits }) => {
                assert!(oracle.is_none() && !waits.is_empty(), "{round}: {given:?}");
                refused += 1;
            }
            Err(refusal) => panic!("{round}: {given:?}: {refusal}"),
        }
    }
    assert!((100..500).contains(&refused), "both kinds are met: {refused}");
}

#[test]
fn with_little_work_the_answer_is_the_same_or_unknown() {
    let mut random = Random(6);
    let (mut yes, mut unlisted, mut no, mut unknown) = (0, 0, 0, 0);
    for round in 0..1000 {
        let (tasks, edges) = consistent(&mut random, 6, 3);
        let given: Vec<_> = edges
            .iter()
            .map(|&(a, b, c, d, e)| {
                (a, b, c, d, e, (random.below(2) == 0).then(|| c + d + e + random.below(4)))
            })
            .collect();
        let memories: Vec<Option<u64>> = given.iter().map(|given| given.5).collect();
        let count = null_vector(tasks, &edges).unwrap();
        let lives = |capacity: &[Option<u64>]| fire(&count, &edges, capacity).is_some();
        let limits = Limits { work: 10 + random.below(100), ..Limits::default() };
        match analyze(&bounded(tasks, &given), &limits) {
            Ok(report) => {
                assert!(lives(&memories), "{round}: {given:?}");
                yes += 1;
                unlisted +=
                    u32::from(report.schedule.phases.iter().any(|phase| phase.runs.is_none()));
                let sizes: Option<Vec<_>> =
                    report.edges.iter().map(|edge| Some(edge.size?.tokens)).collect();
                if let Some(sizes) = sizes {
                    let sizes: Vec<_> = sizes.into_iter().map(Some).collect();
                    assert!(lives(&sizes), "{round}: {given:?} {sizes:?}");
                }
            }
            Err(Refusal::Deadlock { .. }) => {
                assert!(!lives(&memories), "{round}: {given:?}");
                no += 1;
            }
            Err(Refusal::WorkBound { .. }) => unknown += 1,
            Err(refusal) => panic!("{round}: {refusal}"),
        }
    }
    assert!(
        yes > 100 && unlisted > 10 && no > 50 && unknown > 20,
        "{yes} {unlisted} {no} {unknown}"
    );
}

#[test]
fn sizes_never_block_and_less_does_where_that_is_claimed() {
    let mut random = Random(4);
    let (mut least, mut irreducible, mut done, mut below) = (0, 0, 0, 0);
    for round in 0..300 {
        let (tasks, edges) = consistent(&mut random, 6, 2);
        let Ok(report) = analyzed(&graph(tasks, &edges)) else { continue };
        done += 1;
        let sizes: Vec<Option<u64>> =
            report.edges.iter().map(|edge| Some(edge.size.unwrap().tokens)).collect();
        let count = firings(&report);
        assert!(fire(&count, &edges, &sizes).is_some(), "{round}: {edges:?} {sizes:?}");
        for (index, edge) in report.edges.iter().enumerate() {
            let size = edge.size.unwrap();
            let mut others = match size.proof {
                Proof::Least => vec![None; edges.len()],
                Proof::Irreducible => sizes.clone(),
                Proof::Enough => panic!("{round}: the work suffices for small graphs"),
            };
            least += u32::from(size.proof == Proof::Least);
            irreducible += u32::from(size.proof == Proof::Irreducible);
            others[index] = size.tokens.checked_sub(1);
            let too_small = size.tokens == 0 || size.tokens - 1 < edge.initial;
            assert!(
                too_small || fire(&count, &edges, &others).is_none(),
                "{round}: {edge:?} {edges:?}"
            );
            // What every schedule needs: with less, no room on the others helps.
            let mut alone = vec![None; edges.len()];
            alone[index] = Some(edge.least - 1);
            if edge.least > edge.initial {
                assert!(fire(&count, &edges, &alone).is_none(), "{round}: {edge:?} {edges:?}");
                below += u32::from(size.proof != Proof::Least);
            }
            assert!(edge.least <= size.tokens, "{round}: {edge:?} {edges:?}");
        }
    }
    assert!(least > 300 && irreducible > 50 && done > 200, "{least} {irreducible} {done}");
    assert!(below > 20, "bounds that are no sizes: {below}");
}

/// Plays a schedule: how often each task fired, and the peak of each edge. Panics where a firing
/// lacks tokens, or where the iteration does not end as it began.
fn played(schedule: &Schedule, tasks: usize, edges: &[Edge]) -> (Vec<u64>, Vec<u64>) {
    let mut tokens: Vec<u64> = edges.iter().map(|edge| edge.4).collect();
    let mut peaks = tokens.clone();
    let mut fired = vec![0; tasks];
    let runs = schedule.phases.iter().flat_map(|phase| {
        let runs = phase.runs.as_ref().unwrap();
        (0..phase.times).flat_map(move |_| runs.iter())
    });
    for run in runs {
        for _ in 0..run.firings {
            fired[run.task] += 1;
            for (at, &(_, to, _, read, _)) in edges.iter().enumerate() {
                let reads = if to == run.task { read } else { 0 };
                tokens[at] = tokens[at].checked_sub(reads).unwrap_or_else(|| panic!("{edges:?}"));
            }
            for (at, &(from, _, write, _, _)) in edges.iter().enumerate() {
                tokens[at] += if from == run.task { write } else { 0 };
                peaks[at] = peaks[at].max(tokens[at]);
            }
        }
    }
    let is_as_before = tokens.iter().zip(edges).all(|(tokens, edge)| *tokens == edge.4);
    assert!(is_as_before, "{edges:?}");
    (fired, peaks)
}

#[test]
fn the_schedules_complete_an_iteration_with_the_peaks_they_say_and_within_the_sizes() {
    let mut random = Random(5);
    let mut smaller = 0;
    for round in 0..300 {
        let (tasks, edges) = consistent(&mut random, 6, 3);
        let Ok(report) = analyzed(&graph(tasks, &edges)) else { continue };
        let (fired, peaks) = played(&report.schedule, tasks, &edges);
        assert_eq!(fired, firings(&report), "{round}");
        let said: Vec<u64> = report.edges.iter().map(|edge| edge.peak.unwrap()).collect();
        assert_eq!(said, peaks, "{round}");
        let within = report.schedule_within_sizes.as_ref().unwrap();
        let (fired, peaks_within) = played(within, tasks, &edges);
        assert_eq!(fired, firings(&report), "{round}");
        for (edge, peak) in report.edges.iter().zip(&peaks_within) {
            assert!(*peak <= edge.size.unwrap().tokens, "{round}: {edge:?} has {peak}: {edges:?}");
        }
        smaller += u32::from(peaks_within.iter().sum::<u64>() < peaks.iter().sum());
    }
    assert!(smaller > 50, "only {smaller} need less than the short schedule");
}

/// The rates from a CD (44.1 kHz) to a digital tape (48 kHz).
#[test]
fn a_cd_is_resampled_within_32_tokens() {
    let edges =
        [(0, 1, 1, 1, 0), (1, 2, 2, 3, 0), (2, 3, 2, 7, 0), (3, 4, 8, 7, 0), (4, 5, 5, 1, 0)];
    let report = analyzed(&graph(6, &edges)).unwrap();
    assert_eq!(firings(&report), [147, 147, 98, 28, 32, 160]);
    let sum = |all: &[u64]| all.iter().sum::<u64>();
    let sizes: Vec<u64> = report.edges.iter().map(|edge| edge.size.unwrap().tokens).collect();
    assert_eq!((sum(&sizes), report.is_least()), (32, true));
    assert_eq!(sum(&played(&report.schedule, 6, &edges).1), 1021);
    let (_, peaks) = played(report.schedule_within_sizes.as_ref().unwrap(), 6, &edges);
    assert_eq!(peaks, sizes);
}
