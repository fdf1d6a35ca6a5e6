// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a table comes to: which kind has the best worst case and by what factor, what a reader must
//! know before believing that, and what is above the limit. The text and the page say it in these
//! words. Pure.
//!
//! Runs of the same settings count together. Kinds are ranked where they differ in nothing else, as
//! `compare` has it: columns of an import, such as rtla's three of the same activations, are not.

use crate::compare::{are_of_one_length, fewest_rounds};
use crate::doubts::doubts;
use crate::histogram::Above;
use crate::noise::shown;
use crate::report::Row;
use crate::run::{Provenance, Source};
use crate::settings::Setting;
use crate::told::{above, counted, grouped, instant, short_us, times, us};
use std::collections::BTreeSet;

/// What is said of the runs of one experiment under one load; each text is a sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Who has the best worst case, or why no one has. `None` where there is one kind, whose runs
    /// differ in something else: no one asked for a ranking.
    pub best: Option<String>,
    /// How long the others took.
    pub others: Option<String>,
    /// What a reader must know before believing that.
    pub reservations: Vec<String>,
    /// How many took longer than the limit, where one was asked for.
    pub above: Option<String>,
    /// There are several kinds: it says more than a row of the table does.
    pub is_comparison: bool,
}

/// All runs of the same settings.
#[derive(Debug)]
struct Together<'a> {
    name: String,
    /// Of the first.
    settings: &'a Provenance,
    /// Of all.
    provenances: Vec<&'a Provenance>,
    runs: usize,
    /// Why those that are not whole are not.
    partial: Vec<&'a str>,
    instants: u64,
    lost: u64,
    /// Of the runs that know it.
    worst_ns: Option<u64>,
    /// A run of it has instants, and does not know how long the longest took.
    is_unknown: bool,
    above: Above,
}

impl<'a> Together<'a> {
    fn new(row: &'a Row) -> Self {
        Self {
            name: row.column.as_ref().map_or_else(
                || row.kind.clone(),
                |column| format!("{} {}", row.kind, shown(column)),
            ),
            settings: row.provenance,
            provenances: Vec::new(),
            runs: 0,
            partial: Vec::new(),
            instants: 0,
            lost: 0,
            worst_ns: None,
            is_unknown: false,
            above: Above { at_least: 0, at_most: 0 },
        }
    }

    fn takes(&self, row: &Row) -> bool {
        Setting::refused(self.settings, row.provenance, &[Setting::Completeness]).is_empty()
    }

    fn add(&mut self, row: &'a Row) {
        let summary = &row.summary;
        self.runs += 1;
        self.provenances.push(row.provenance);
        self.partial.extend(row.partial.as_deref());
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
    let all = together(rows);
    let what = rows.first().map_or("instant", |row| instant(row.experiment));
    let differing = differing(&all);
    let is_of_one_kind = all.iter().all(|one| one.settings.kind == all[0].settings.kind);
    let (best, others) = match differing.as_slice() {
        [] => {
            let (best, others) = ranking(&all, what);
            (Some(best), others)
        }
        _ if is_of_one_kind => (None, None),
        differing => {
            let names: Vec<String> = differing.iter().map(Setting::to_string).collect();
            let names = names.join(", ");
            (Some(format!("Worst cases are not ranked: the runs differ in {names}.")), None)
        }
    };
    let limit_ns = rows.iter().find_map(|row| Some(row.above?.limit_ns));
    let mut reservations = reservations(&all, what);
    if differing.is_empty() {
        reservations.extend(of_ranking(&all, what));
    }
    Verdict {
        best,
        others,
        reservations,
        above: limit_ns.map(|limit_ns| over(&all, limit_ns)),
        is_comparison: all.len() > 1,
    }
}

/// Runs by their settings, with names that tell those apart.
fn together<'a>(rows: &[&'a Row]) -> Vec<Together<'a>> {
    let mut all: Vec<(Together, &str)> = Vec::new();
    for row in rows {
        let at = all.iter().position(|(one, _)| one.takes(row)).unwrap_or_else(|| {
            all.push((Together::new(row), &row.name));
            all.len() - 1
        });
        all[at].0.add(row);
    }
    let names: Vec<String> = all.iter().map(|(one, _)| one.name.clone()).collect();
    let is_unique = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let named = |(mut one, first): (Together<'a>, &str)| {
        if !is_unique(&one.name) {
            let more = one.runs - 1;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            one.name = format!("{first}{more}");
        }
        one
    };
    all.into_iter().map(named).collect()
}

/// What any two of them differ in, but for the kind. That one is partial is a reservation.
fn differing(all: &[Together]) -> Vec<Setting> {
    let but_for = [Setting::Kind, Setting::Completeness];
    let mut found = BTreeSet::new();
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            found.extend(Setting::refused(one.settings, other.settings, &but_for));
        }
    }
    found.into_iter().collect()
}

/// The best, and the others.
fn ranking(all: &[Together], what: &str) -> (String, Option<String>) {
    let mut known: Vec<(u64, &Together)> =
        all.iter().filter_map(|one| Some((one.known_ns()?, one))).collect();
    known.sort_by_key(|(worst_ns, _)| *worst_ns);
    let Some(least_ns) = known.first().map(|(worst_ns, _)| *worst_ns) else {
        return ("No worst case is known.".to_owned(), None);
    };
    let (best, others) = known.split_at(known.partition_point(|(ns, _)| *ns == least_ns));
    let worst = us(least_ns as f64);
    let told = match (best, others) {
        ([(_, one)], _) => {
            let of = format!("{worst} us of {}", counted(one.instants, what));
            match others {
                [] => format!("The worst case of {} is {of}.", one.name),
                _ => format!("{} has the best worst case: {of}{}.", one.name, chance(all)),
            }
        }
        (several, others) => {
            let names: Vec<&str> = several.iter().map(|(_, one)| one.name.as_str()).collect();
            let which = if others.is_empty() { "same" } else { "best" };
            format!("{} have the {which} worst case: {worst} us.", names.join(" and "))
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

/// That so few runs do not tell whether the one is best by more than chance.
fn chance(all: &[Together]) -> &'static str {
    match all.iter().map(|one| one.runs).min() {
        Some(1) if all.iter().all(|one| one.runs == 1) => " (one run each: may be chance)",
        Some(runs) if runs < fewest_rounds(1) => " (few runs: may be chance)",
        _ => "",
    }
}

/// Why a run is partial that a signal ended.
const INTERRUPTED: &str = "interrupted";

/// What a reader must know of each kind.
fn reservations(all: &[Together], what: &str) -> Vec<String> {
    let mut said = Vec::new();
    for one in all {
        let Together { name, runs, partial, instants, lost, is_unknown, .. } = one;
        if *instants == 0 {
            said.push(match partial.first() {
                None => format!("{name} has no sample, which is worse than any time."),
                Some(&INTERRUPTED) => format!("{name} was interrupted before its first sample."),
                Some(reason) => format!("{name} has no sample: {}.", shown(reason)),
            });
        } else if *is_unknown {
            said.push(format!("The worst case of {name} is not known."));
        }
        if let Some(reason) = partial.first().filter(|_| *instants > 0) {
            let others = if partial.iter().any(|one| one != reason) { " and others" } else { "" };
            let why = format!("({}{others})", shown(reason));
            let which = match (partial.len(), runs) {
                (_, 1) => format!("{name} is partial {why}, {}", counted(*instants, what)),
                (partial, runs) => format!("{partial} of {runs} runs of {name} are partial {why}"),
            };
            said.push(format!("{which}: a whole run may have a longer one."));
        }
        if *lost > 0 {
            let lost = counted(*lost, "sample");
            said.push(format!("{name} lost {lost}: a longer one may be among them."));
        }
        said.extend(doubts(name, &one.provenances));
    }
    said
}

/// What a reader must know before believing a ranking.
fn of_ranking(all: &[Together], what: &str) -> Vec<String> {
    let mut said = Vec::new();
    let counts = all.iter().map(|one| one.instants).filter(|instants| *instants > 0);
    if let (Some(least), Some(most)) = (counts.clone().min(), counts.max())
        && !are_of_one_length(least, most)
    {
        said.push(format!("The numbers of {what}s differ: more of them find a longer worst."));
    }
    if all.len() > 1 && all.iter().any(|one| one.settings.source == Source::Import) {
        said.push("Machine, period and priority of imports are not known.".to_owned());
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
    use crate::run::{Experiment, Kind, Run, Step, Times};

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
        let best = |kind: &str, of: &str| {
            Some(format!("{kind} has the best worst case: {of} (one run each: may be chance)."))
        };
        assert_eq!(said.best, best("partition", "20.000 us of 1,000 instants"));
        assert_eq!(
            said.others.unwrap(),
            "The others took longer: fifo 50.000 us (2.5 times as long), normal 90.000 us (4.5 \
             times as long)."
        );
        assert!(said.is_comparison && said.reservations.is_empty() && said.above.is_none());
        // Runs of one kind count together.
        runs.push(worst_of(Kind::Partition, 60_000));
        let said = of(&runs, None);
        let fifo =
            "fifo has the best worst case: 50.000 us of 1,000 instants (few runs: may be chance).";
        assert_eq!(said.best.unwrap(), fifo);
        let alone = of(&runs[3..], None);
        let worst = "The worst case of partition is 60.000 us of 1,000 instants.";
        assert_eq!(alone.best.unwrap(), worst);
        assert!(!alone.is_comparison);
        // Turns that nothing disturbed have no ratio.
        let turns = |kind, ns| {
            let mut turns = run(kind, Latencies::of([0, ns]));
            turns.provenance.experiment = Experiment::Overhead;
            turns
        };
        let said = of(&[turns(Kind::Normal, 90_000), turns(Kind::Partition, 0)], None);
        assert_eq!(said.best, best("partition", "0.000 us of 2 turns"));
        assert_eq!(said.others.unwrap(), "The other took longer: normal 90.000 us.");
    }

    #[test]
    fn who_is_as_long_at_the_worst_as_the_best_did_not_take_longer() {
        let mut runs = vec![worst_of(Kind::Normal, 41_000), worst_of(Kind::Partition, 41_000)];
        let said = of(&runs, None);
        let same = "normal and partition have the same worst case: 41.000 us.";
        assert_eq!(said.best.unwrap(), same);
        assert_eq!(said.others, None);
        runs.push(worst_of(Kind::Fifo, 82_000));
        let said = of(&runs, None);
        let best = "normal and partition have the best worst case: 41.000 us.";
        assert_eq!(said.best.unwrap(), best);
        let other = "The other took longer: fifo 82.000 us (2.0 times as long).";
        assert_eq!(said.others.unwrap(), other);
        // What would be "1.0 times" is no ratio.
        let near = of(&[worst_of(Kind::Normal, 41_001), worst_of(Kind::Fifo, 41_000)], None);
        assert_eq!(near.others.unwrap(), "The other took longer: normal 41.001 us.");
    }

    #[test]
    fn columns_of_one_import_are_not_added_up_and_not_ranked() {
        let column = |(name, max_ns): (&str, u64)| {
            let mut run = worst_of(Kind::Partition, max_ns);
            run.provenance.column = Some(name.to_owned());
            run
        };
        let runs = [("IRQ-003", 20_000), ("Thr-003", 30_000), ("Usr-003", 500_000)].map(column);
        let said = of(&runs, Some(100_000));
        assert_eq!(said.best, None, "of one kind");
        assert!(said.is_comparison && said.others.is_none() && said.reservations.is_empty());
        let above = "Above 100 us: partition IRQ-003 0 of 1,000; partition Thr-003 0 of 1,000; \
                     partition Usr-003 1,000 of 1,000.";
        assert_eq!(said.above.unwrap(), above);
    }

    #[test]
    fn what_differs_in_more_than_its_kind_is_not_ranked_and_not_added_up() {
        let mut fifo = worst_of(Kind::Fifo, 18_000);
        fifo.provenance.source = Source::Timerlat;
        fifo.provenance.period_ns = Some(100_000);
        fifo.provenance.load_size.per_cpu = 8;
        fifo.provenance.machine.cpu_model = "Xeon".into();
        let said = of(&[fifo, worst_of(Kind::Partition, 9_000)], None);
        let expected = "Worst cases are not ranked: the runs differ in source, load-size, period, \
                        machine.";
        assert_eq!((said.best.as_deref(), said.others), (Some(expected), None));
        // With and without a step, of one kind.
        let step = |with: bool, round: usize| {
            let mut run = worst_of(Kind::Partition, 20_000);
            let step = Step { name: "irqs".into(), with };
            run.dir = format!("ab/{step}-{round}").into();
            run.provenance.step = Some(step);
            run
        };
        let ab = [step(true, 0), step(false, 0), step(true, 1), step(false, 1)];
        let said = of(&ab, Some(100_000));
        assert_eq!(said.best, None, "there are no kinds to rank");
        let above = "Above 100 us: partition irqs-with-0 and 1 more 0 of 2,000; partition \
                     irqs-without-0 and 1 more 0 of 2,000.";
        assert_eq!(said.above.unwrap(), above);
        // What goes with kind normal is no other difference.
        let mut normal = worst_of(Kind::Normal, 90_000);
        (normal.provenance.cpu, normal.provenance.schedule) = (None, None);
        normal.provenance.not_recorded = Some("free".into());
        let runs = [normal, worst_of(Kind::Fifo, 50_000), worst_of(Kind::Partition, 9_000)];
        let best = of(&runs, None).best.unwrap();
        assert!(best.starts_with("partition has the best worst case"), "{best}");
    }

    #[test]
    fn the_ranking_says_what_compare_would() {
        let rounds = |kind: Kind, count: usize| vec![worst_of(kind, 50_000); count];
        let both = |normal: usize| {
            let mut runs = rounds(Kind::Partition, 4);
            runs.extend(vec![worst_of(Kind::Normal, 90_000); normal]);
            of(&runs, None)
        };
        let best = |normal: usize| both(normal).best.unwrap();
        assert!(best(4).ends_with("of 4,000 instants.") && both(4).reservations.is_empty());
        assert!(best(3).ends_with("(few runs: may be chance)."));
        // As many instants, to one in a hundred.
        let of_length = |instants: u64| {
            let longer = run(Kind::Normal, Latencies::of((0..instants).map(|turn| 90_000 + turn)));
            of(&[worst_of(Kind::Partition, 50_000), longer], None).reservations
        };
        assert!(of_length(1010).is_empty());
        assert_eq!(
            of_length(1100),
            ["The numbers of instants differ: more of them find a longer worst."]
        );
        let import = |kind: Kind| {
            let mut run = worst_of(kind, 50_000);
            run.provenance.source = Source::Import;
            run
        };
        let imports = [import(Kind::Normal), import(Kind::Partition)];
        let unknown = ["Machine, period and priority of imports are not known."];
        assert_eq!(of(&imports, None).reservations, unknown);
        assert!(of(&imports[..1], None).reservations.is_empty());
    }

    #[test]
    fn what_weakens_the_ranking_is_said_of_each_kind() {
        let mut early = run(Kind::Partition, Latencies::of([1_000, 2_000, 3_000, 9_000, 10_000]));
        early.latencies.lose(3_000);
        early.provenance.partial = Some("interrupted".into());
        let runs =
            [run(Kind::Normal, Latencies::default()), worst_of(Kind::Fifo, 900_000), early.clone()];
        let said = of(&runs, None);
        let best = "partition has the best worst case: 10.000 us of 5 instants (one run each: may \
                    be chance).";
        assert_eq!(said.best.unwrap(), best);
        assert_eq!(
            said.reservations,
            [
                "normal has no sample, which is worse than any time.",
                "partition is partial (interrupted), 5 instants: a whole run may have a longer \
                 one.",
                "partition lost 3,000 samples: a longer one may be among them.",
                "The numbers of instants differ: more of them find a longer worst.",
            ]
        );
        let said = of(&[early, worst_of(Kind::Partition, 20_000)], None);
        let early = "1 of 2 runs of partition are partial (interrupted): a whole run may have a \
                     longer one.";
        assert_eq!(said.reservations[0], early);
        // A worst that no one knows is not the best.
        let mut import = Latencies::new(Digits::Imported);
        import.record_many(20_000, 5000);
        import.exceed(Beyond { instants: 9, from_ns: 400_000, max_ns: None, sum_ns: None });
        let said = of(&[run(Kind::Fifo, import)], None);
        assert_eq!(said.best.unwrap(), "No worst case is known.");
        assert_eq!(said.reservations, ["The worst case of fifo is not known."]);
    }

    #[test]
    fn a_run_that_was_ended_before_its_first_sample_is_not_called_bad() {
        let ended = |reason: &str| {
            let mut early = run(Kind::Normal, Latencies::default());
            early.provenance.partial = Some(reason.into());
            of(&[early], None).reservations
        };
        let interrupted = ["normal was interrupted before its first sample."];
        assert_eq!(ended("interrupted"), interrupted);
        assert_eq!(ended("CPU 3 went offline"), ["normal has no sample: CPU 3 went offline."]);
    }

    #[test]
    fn what_the_totals_count_weakens_a_ranking_and_other_work_forbids_it() {
        let mut partition = worst_of(Kind::Partition, 9_000);
        partition.provenance.totals.ticks = Some(50_000);
        let said = of(&[worst_of(Kind::Fifo, 20_000), partition], None);
        assert!(said.best.unwrap().starts_with("partition has the best worst case"));
        let [ticks] = said.reservations.as_slice() else { panic!("{:?}", said.reservations) };
        assert!(ticks.starts_with("The timer interrupted partition 50,000 times"), "{ticks}");
        let loop_of = |kind: Kind, work_ns: u64| {
            let mut run = worst_of(kind, 9_000);
            run.provenance.experiment = Experiment::Overhead;
            run.provenance.work_ns = Some(work_ns);
            run
        };
        let said =
            of(&[loop_of(Kind::Fifo, 1_000_000), loop_of(Kind::Partition, 50_000_000)], None);
        let expected = "Worst cases are not ranked: the runs differ in work.";
        assert_eq!(said.best.unwrap(), expected);
    }
}
