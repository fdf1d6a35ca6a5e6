// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a table comes to: which kind is best at the worst and by what factor, what a reader must
//! know before believing that, and what is above the limit. The text and the page say it in these
//! words. Pure.
//!
//! Runs of one kind count together. An import's columns do not: rtla's count the same activations
//! three times.

use crate::histogram::Above;
use crate::report::Row;
use crate::told::{above, grouped, instant, short_us, times, us};

/// What is said of the runs of one experiment under one load; each text is a sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Who is best at the worst.
    pub best: String,
    /// How long the others took.
    pub others: Option<String>,
    /// What a reader must know before believing that.
    pub reservations: Vec<String>,
    /// How many took longer than the limit, where one was asked for.
    pub above: Option<String>,
    /// There are several kinds: it says more than a row of the table does.
    pub is_comparison: bool,
}

/// All runs of a kind together, or one column of another tool.
#[derive(Debug)]
struct Together {
    name: String,
    runs: u64,
    /// How many of them ended early.
    partial: u64,
    instants: u64,
    lost: u64,
    /// Of the runs that know it.
    worst_ns: Option<u64>,
    /// A run of it has instants, and does not know how long the longest took.
    is_unknown: bool,
    above: Above,
}

impl Together {
    const fn new(name: String) -> Self {
        Self {
            name,
            runs: 0,
            partial: 0,
            instants: 0,
            lost: 0,
            worst_ns: None,
            is_unknown: false,
            above: Above { at_least: 0, at_most: 0 },
        }
    }

    fn add(&mut self, row: &Row) {
        let summary = &row.summary;
        self.runs += 1;
        self.partial += u64::from(row.partial.is_some());
        self.instants = self.instants.saturating_add(summary.instants);
        self.lost = self.lost.saturating_add(summary.lost);
        self.worst_ns = self.worst_ns.max(summary.max_ns);
        self.is_unknown |= summary.instants > 0 && summary.max_ns.is_none();
        if let Some(above) = row.above {
            self.above.at_least = self.above.at_least.saturating_add(above.instants.at_least);
            self.above.at_most = self.above.at_most.saturating_add(above.instants.at_most);
        }
    }

    /// `None` also where a longer one may be hidden.
    fn known_ns(&self) -> Option<u64> {
        self.worst_ns.filter(|_| !self.is_unknown)
    }
}

/// Of rows of one experiment and load.
pub fn verdict(rows: &[&Row]) -> Verdict {
    let mut all: Vec<Together> = Vec::new();
    for row in rows {
        let column = row.column.as_ref().map_or_else(String::new, |column| format!(" {column}"));
        let name = format!("{}{column}", row.kind);
        let at = all.iter().position(|one| one.name == name).unwrap_or_else(|| {
            all.push(Together::new(name));
            all.len() - 1
        });
        all[at].add(row);
    }
    let what = rows.first().map_or("instant", |row| instant(row.experiment));
    let (best, others) = ranking(&all, what);
    let limit_ns = rows.iter().find_map(|row| Some(row.above?.limit_ns));
    Verdict {
        best,
        others,
        reservations: reservations(&all, what),
        above: limit_ns.map(|limit_ns| over(&all, limit_ns)),
        is_comparison: all.len() > 1,
    }
}

/// The best, and the others.
fn ranking(all: &[Together], what: &str) -> (String, Option<String>) {
    let mut known: Vec<(u64, &Together)> =
        all.iter().filter_map(|one| Some((one.known_ns()?, one))).collect();
    known.sort_by_key(|(worst_ns, _)| *worst_ns);
    let Some(least_ns) = known.first().map(|(worst_ns, _)| *worst_ns) else {
        return ("No worst is known.".to_owned(), None);
    };
    let (best, others) = known.split_at(known.partition_point(|(ns, _)| *ns == least_ns));
    let worst = us(least_ns as f64);
    let told = match (best, others) {
        ([(_, one)], _) => {
            let of = format!("{worst} us of {} {what}s", grouped(one.instants));
            match others {
                [] => format!("The worst of {} is {of}.", one.name),
                _ => format!("At the worst {} is best: {of}.", one.name),
            }
        }
        (several, others) => {
            let names: Vec<&str> = several.iter().map(|(_, one)| one.name.as_str()).collect();
            let are = if others.is_empty() { "alike" } else { "best" };
            format!("At the worst {} are {are}: {worst} us.", names.join(" and "))
        }
    };
    let other = |(worst_ns, one): &(u64, &Together)| {
        let ratio = (least_ns > 0).then(|| times(*worst_ns as f64 / least_ns as f64));
        // What rounds to 1.0 says nothing.
        let ratio = ratio.filter(|ratio| *ratio != times(1.0));
        let factor = ratio.map_or_else(String::new, |ratio| format!(" ({ratio} times as long)"));
        format!("{} {} us{factor}", one.name, us(*worst_ns as f64))
    };
    let longer: Vec<String> = others.iter().map(other).collect();
    let others = match longer.as_slice() {
        [] => None,
        [one] => Some(format!("The other took longer: {one}.")),
        several => Some(format!("The others took longer: {}.", several.join(", "))),
    };
    (told, others)
}

/// What a reader must know before believing the ranking.
fn reservations(all: &[Together], what: &str) -> Vec<String> {
    let mut said = Vec::new();
    for Together { name, runs, partial, instants, lost, is_unknown, .. } in all {
        if *instants == 0 {
            said.push(format!("{name} has no sample, which is worse than any time."));
        } else if *is_unknown {
            said.push(format!("The worst of {name} is not known."));
        }
        let longer = "a whole run may have a longer one";
        let after = grouped(*instants);
        match (*partial, *runs) {
            (0, _) => {}
            (_, 1) => said.push(format!("{name} ended early, after {after} {what}s: {longer}.")),
            _ => said.push(format!("{partial} of {runs} runs of {name} ended early: {longer}.")),
        }
        if *lost > 0 {
            let lost = grouped(*lost);
            said.push(format!("{name} lost {lost} samples: a longer one may be among them."));
        }
    }
    let counts = all.iter().map(|one| one.instants).filter(|instants| *instants > 0);
    let (least, most) = counts.fold((u64::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
    if most > least.saturating_mul(2) {
        said.push(format!("The numbers of {what}s differ: more of them find a longer worst."));
    }
    said
}

fn over(all: &[Together], limit_ns: u64) -> String {
    let count =
        |one: &Together| format!("{} {} of {}", one.name, above(one.above), grouped(one.instants));
    let counts: Vec<String> = all.iter().map(count).collect();
    format!("Above {} us: {}.", short_us(limit_ns), counts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{Beyond, Digits, Latencies};
    use crate::report::rows;
    use crate::run::tests::provenance;
    use crate::run::{Experiment, Kind, Provenance, Run, Times};

    fn run(kind: Kind, latencies: Latencies) -> Run {
        let provenance = Provenance { kind, samples: latencies.samples(), ..provenance() };
        let times = Times::default();
        Run { dir: kind.word().into(), provenance, latencies, times, system_max_ns: None }
    }

    /// A thousand instants, the longest of which took so long.
    fn worst_of(kind: Kind, max_ns: u64) -> Run {
        run(kind, Latencies::of((1..=1000).map(|turn| max_ns - 1000 + turn)))
    }

    fn of(runs: &[Run], limit_ns: Option<u64>) -> Verdict {
        let rows = rows(runs, limit_ns);
        verdict(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_best_at_the_worst_is_named_with_the_ratios_of_the_others() {
        let mut runs = vec![
            worst_of(Kind::Normal, 90_000),
            worst_of(Kind::Fifo, 50_000),
            worst_of(Kind::Partition, 20_000),
        ];
        let said = of(&runs, None);
        assert_eq!(said.best, "At the worst partition is best: 20.000 us of 1,000 instants.");
        assert_eq!(
            said.others.unwrap(),
            "The others took longer: fifo 50.000 us (2.5 times as long), normal 90.000 us (4.5 \
             times as long)."
        );
        assert!(said.is_comparison && said.reservations.is_empty() && said.above.is_none());
        // Runs of one kind count together.
        runs.push(worst_of(Kind::Partition, 60_000));
        let said = of(&runs, None);
        assert_eq!(said.best, "At the worst fifo is best: 50.000 us of 1,000 instants.");
        let alone = of(&runs[3..], None);
        assert_eq!(alone.best, "The worst of partition is 60.000 us of 1,000 instants.");
        assert!(!alone.is_comparison);
        // Turns that nothing disturbed have no ratio.
        let turns = |kind, ns| {
            let mut turns = run(kind, Latencies::of([0, ns]));
            turns.provenance.experiment = Experiment::Overhead;
            turns
        };
        let said = of(&[turns(Kind::Normal, 90_000), turns(Kind::Partition, 0)], None);
        assert_eq!(said.best, "At the worst partition is best: 0.000 us of 2 turns.");
        assert_eq!(said.others.unwrap(), "The other took longer: normal 90.000 us.");
    }

    #[test]
    fn who_is_as_long_at_the_worst_as_the_best_did_not_take_longer() {
        let mut runs = vec![worst_of(Kind::Normal, 41_000), worst_of(Kind::Partition, 41_000)];
        let said = of(&runs, None);
        assert_eq!(said.best, "At the worst normal and partition are alike: 41.000 us.");
        assert_eq!(said.others, None);
        runs.push(worst_of(Kind::Fifo, 82_000));
        let said = of(&runs, None);
        assert_eq!(said.best, "At the worst normal and partition are best: 41.000 us.");
        let other = "The other took longer: fifo 82.000 us (2.0 times as long).";
        assert_eq!(said.others.unwrap(), other);
        // What would be "1.0 times" is no ratio.
        let near = of(&[worst_of(Kind::Normal, 41_001), worst_of(Kind::Fifo, 41_000)], None);
        assert_eq!(near.others.unwrap(), "The other took longer: normal 41.001 us.");
    }

    #[test]
    fn columns_of_one_import_are_not_added_up() {
        let column = |(name, max_ns): (&str, u64)| {
            let mut run = worst_of(Kind::Partition, max_ns);
            run.provenance.column = Some(name.to_owned());
            run
        };
        let runs = [("IRQ-003", 20_000), ("Thr-003", 30_000), ("Usr-003", 500_000)].map(column);
        let said = of(&runs, Some(100_000));
        let best = "At the worst partition IRQ-003 is best: 20.000 us of 1,000 instants.";
        assert_eq!(said.best, best);
        let above = "Above 100 us: partition IRQ-003 0 of 1,000; partition Thr-003 0 of 1,000; \
                     partition Usr-003 1,000 of 1,000.";
        assert_eq!(said.above.unwrap(), above);
    }

    #[test]
    fn what_weakens_the_ranking_is_said_of_each_kind() {
        let mut early = run(Kind::Partition, Latencies::of([1_000, 2_000, 3_000, 9_000, 10_000]));
        early.latencies.lose(3_000);
        early.provenance.partial = Some("interrupted".into());
        let runs =
            [run(Kind::Normal, Latencies::default()), worst_of(Kind::Fifo, 900_000), early.clone()];
        let said = of(&runs, None);
        assert_eq!(said.best, "At the worst partition is best: 10.000 us of 5 instants.");
        assert_eq!(
            said.reservations,
            [
                "normal has no sample, which is worse than any time.",
                "partition ended early, after 5 instants: a whole run may have a longer one.",
                "partition lost 3,000 samples: a longer one may be among them.",
                "The numbers of instants differ: more of them find a longer worst.",
            ]
        );
        let said = of(&[early, worst_of(Kind::Partition, 20_000)], None);
        let early = "1 of 2 runs of partition ended early: a whole run may have a longer one.";
        assert_eq!(said.reservations[0], early);
        // A worst that no one knows is not the best.
        let mut import = Latencies::new(Digits::Imported);
        import.record_many(20_000, 5000);
        import.exceed(Beyond { instants: 9, from_ns: 400_000, max_ns: None, sum_ns: None });
        let said = of(&[run(Kind::Fifo, import)], None);
        assert_eq!(said.best, "No worst is known.");
        assert_eq!(said.reservations, ["The worst of fifo is not known."]);
    }
}
