// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rounds planted from known distributions, and how often a comparison of them is sure. The same
//! seed gives the same rounds.

use asmp_measure::compare::{self, Difference, Figure};
use asmp_measure::histogram::Latencies;

/// How the latencies of a round come about; each round has what differs from round to round of its
/// own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Independent, lognormal around 20 us.
    Independent,
    /// The same values, each depending on the one before (AR(1), 0.95).
    Dependent,
    /// Independent, and the level of each round moves by 3 %.
    Moving,
    /// Independent, and each 500th meets a stall of 25 times its length; the phase is the round's.
    Stalling,
}

impl Family {
    pub const ALL: [Self; 4] = [Self::Independent, Self::Dependent, Self::Moving, Self::Stalling];
}

/// splitmix64, and normal numbers by Box and Muller.
pub struct Random {
    state: u64,
    spare: Option<f64>,
}

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, spare: None }
    }

    const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Above 0, at most 1.
    fn part(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let length = (-2.0 * self.part().ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.part()).sin_cos();
        self.spare = Some(length * sine);
        length * cosine
    }
}

/// Deviation of the logarithm of a latency.
const SPREAD: f64 = 0.2;

/// A round as it is, and the same with all latencies 10 % longer.
pub fn round(family: Family, samples: u64, random: &mut Random) -> [Latencies; 2] {
    let mut both = [Latencies::default(), Latencies::default()];
    let level = if family == Family::Moving { 1.0 + 0.03 * random.normal() } else { 1.0 };
    let phase = random.next() % 500;
    let mut before = random.normal();
    for turn in 0..samples {
        let fresh = random.normal();
        before = match family {
            Family::Dependent => 0.95 * before + (1.0f64 - 0.95 * 0.95).sqrt() * fresh,
            _ => fresh,
        };
        let stalls = family == Family::Stalling && (turn + phase).is_multiple_of(500);
        let length = if stalls { 25.0 } else { 1.0 };
        let ns = 20_000.0 * level * length * (SPREAD * before).exp();
        both[0].record(ns as u64);
        both[1].record((ns * 1.1) as u64);
    }
    both
}

/// Of so many pairs with so many rounds on each side, how often each figure was called sure: where
/// both sides are alike, and where one is 10 % longer.
pub fn sure(family: Family, pairs: u64, rounds: u64, samples: u64) -> Vec<(Figure, [u64; 2])> {
    let mut counts: Vec<(Figure, [u64; 2])> =
        Figure::ALL.into_iter().map(|figure| (figure, [0; 2])).collect();
    for pair in 0..pairs {
        let mut random = Random::new(pair << 8 | family as u64);
        let side = |random: &mut Random| -> Vec<[Latencies; 2]> {
            (0..rounds).map(|_| round(family, samples, random)).collect()
        };
        let (a, b) = (side(&mut random), side(&mut random));
        let plain: Vec<&Latencies> = a.iter().map(|[plain, _]| plain).collect();
        for longer in 0..2 {
            let b: Vec<&Latencies> = b.iter().map(|both| &both[longer]).collect();
            let mut all: Vec<Difference> = compare::differences(&plain, &b, &Figure::ALL);
            compare::judge(&mut all);
            for one in all.iter().filter(|one| one.is_sure) {
                let of = counts.iter_mut().find(|(figure, _)| *figure == one.figure);
                of.expect("a figure").1[longer] += 1;
            }
        }
    }
    counts
}
