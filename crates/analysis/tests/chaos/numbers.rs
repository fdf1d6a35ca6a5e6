// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that arithmetic trips over, and what a run of the fuzzer has met.

use asmp_analysis::Verdict;
use asmp_analysis::simulate::Random;

/// Small, ordinary, extreme.
pub fn number(random: &mut Random) -> u64 {
    match random.up_to(11) {
        0 => 0,
        1 => 1,
        2 => u64::MAX - random.up_to(2),
        3 => 1 << random.up_to(63),
        4 => (1 << random.up_to(63)) - 1,
        5 => random.next(),
        6 => random.up_to(1 << 60),
        7 | 8 => random.up_to(1_000_000_000),
        _ => 1 + random.up_to(50),
    }
}

/// Mostly 0.
pub fn some(random: &mut Random) -> u64 {
    if random.up_to(2) == 0 { number(random) } else { 0 }
}

/// One in so many.
pub fn one_in(random: &mut Random, many: u64) -> bool {
    random.up_to(many - 1) == 0
}

pub fn index(random: &mut Random, bound: usize) -> usize {
    random.up_to(bound as u64 - 1) as usize
}

/// How often each kind of answer came: a fuzzer whose input is all refused at the door looks at
/// nothing.
#[derive(Debug, Default, Clone)]
pub struct Met {
    pub schedulable: u64,
    pub refuted: u64,
    pub inapplicable: u64,
    pub unknown: u64,
    /// Placements, chains, admissions and simulations that were carried out, not refused.
    pub worked: u64,
    pub graphs: u64,
    pub graphs_refused: u64,
    pub texts: u64,
    pub texts_refused: u64,
}

impl Met {
    pub fn verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Schedulable => self.schedulable += 1,
            Verdict::NotSchedulable { .. } => self.refuted += 1,
            Verdict::DoesNotApply { .. } => self.inapplicable += 1,
            Verdict::Unknown { .. } => self.unknown += 1,
        }
    }

    pub fn worked(&mut self, worked: bool) {
        self.worked += u64::from(worked);
    }

    pub fn text(&mut self, read: bool) {
        self.texts += u64::from(read);
        self.texts_refused += u64::from(!read);
    }
}
