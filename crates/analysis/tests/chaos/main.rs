// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary input for every public function: nothing may panic, overflow or run away. A seed
//! decides all of it, so that what once failed can be tried again. Without end, and with checks for
//! overflow: `make fuzz`.

mod graphs;
mod numbers;
mod sets;
mod texts;

use numbers::Met;

#[test]
fn no_input_makes_a_parser_a_test_or_a_graph_panic() {
    let mut met = Met::default();
    for seed in 0..5000 {
        sets::once(seed, &mut met);
        graphs::once(seed, &mut met);
        texts::once(seed, &mut met);
    }
    let all = [
        met.schedulable,
        met.refuted,
        met.inapplicable,
        met.unknown,
        met.worked,
        met.graphs,
        met.graphs_refused,
        met.texts,
        met.texts_refused,
    ];
    assert!(all.iter().all(|count| *count > 1000), "every kind of answer is met: {met:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    assert_eq!(sets::bytes(5), sets::bytes(5));
    assert_ne!(sets::bytes(5), sets::bytes(6));
}
