// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests, oracles and the simulator agree on random sets. The whole million: `examples/bench.rs`.

mod files;
mod oracle;
mod sets;

use files::{Seen, check_file};
use sets::{Runs, Shape, Tally, check, curve};

fn many(shape: Shape, sets: u64) {
    let mut tally = Tally::default();
    for seed in 0..sets {
        check(seed, shape, Runs { random: 2, lengths: 8 }, &mut tally);
    }
    assert!(
        tally.accepted > sets / 2 && tally.refused > sets / 2,
        "the sets are lopsided: {tally:?}"
    );
    println!("{shape:?}: {tally:?}");
}

#[test]
fn on_sets_with_the_period_as_deadline_tests_and_simulator_agree() {
    many(Shape::Plain, 400);
}

#[test]
fn on_sets_with_any_deadlines_tests_and_simulator_agree() {
    many(Shape::Deadlines, 400);
}

#[test]
fn on_sets_with_jitter_and_blocking_nothing_accepted_misses_and_every_refusal_replays() {
    many(Shape::Everything, 400);
}

#[test]
fn on_files_with_every_key_no_two_answers_contradict_each_other() {
    let mut seen = Seen::default();
    for seed in 0..3000 {
        check_file(seed, &mut seen);
    }
    println!("{seen:?}");
    let Seen { accepted, refuted, placed, budgets, admitted, held_up, .. } = seen;
    // Few files have no section and no jitter, which these two ask for.
    let least = [accepted, refuted, placed, held_up, budgets * 2, admitted * 10];
    assert!(least.iter().all(|count| *count > 100) && seen.wrong < seen.files / 5, "{seen:?}");
}

#[test]
fn proposition_1_accepts_less_the_higher_the_load() {
    let share = |total| {
        let (accepted, exact) = curve(total, 500, 7);
        assert!(exact > 0);
        accepted * 1000 / exact
    };
    let (low, middle, high) = (share(0.4), share(0.7), share(0.9));
    println!(
        "Proposition 1 of exactly schedulable: {low}, {middle}, {high} per mille at U = 0.4, \
         0.7, 0.9"
    );
    assert!(low > middle && middle > high, "{low} {middle} {high}");
}
