// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `make bench-measure`: 1000 pairs of each family of rounds, 6 against 6 of 10^4 samples; as
//! arguments `[PAIRS [SAMPLES [ROUNDS]]]`. Prints how often each figure is called sure where both
//! sides are alike (at most 5 %, and 1.5 % for so few pairs) and where one side is 10 % longer.
//! Exits with 1 where a limit is missed.

#[path = "../tests/rounds/mod.rs"]
mod rounds;

use asmp_measure::compare::Figure;
use rounds::{Family, sure};

fn main() {
    let number = |at: usize, otherwise: u64| -> u64 {
        std::env::args().nth(at).map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let (pairs, samples, rounds) = (number(1, 1000), number(2, 10_000), number(3, 6));
    println!(
        "{pairs} pairs, {rounds} rounds against {rounds}, {samples} samples each; sure, in percent"
    );
    println!("{:<13}{:<8}{:>7}{:>14}", "rounds", "figure", "alike", "10 % longer");
    let mut missed = false;
    for family in Family::ALL {
        for (figure, [falsely, truly]) in sure(family, pairs, rounds, samples) {
            let percent = |count: u64| count as f64 * 100.0 / pairs as f64;
            // How sharply a round knows its p99.9 and its worst depends on the latencies.
            let limited = [Figure::Median, Figure::P99].contains(&figure);
            let bad = percent(falsely) > 6.5 || (limited && percent(truly) < 80.0);
            missed |= bad;
            println!(
                "{:<13}{:<8}{:>7.1}{:>14.1}{}",
                format!("{family:?}").to_lowercase(),
                figure.name(),
                percent(falsely),
                percent(truly),
                if bad { "  limit missed" } else { "" }
            );
        }
    }
    std::process::exit(i32::from(missed));
}
