// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report: the tables of any runs, as text or JSON. `page.rs` makes the page of figures.

use crate::explain::{NOT_RECORDED, Outlier};
use crate::histogram::Above;
use crate::load::LoadDir;
use crate::noise::shown;
use crate::run::{Experiment, Provenance, Run, Source};
use crate::spaces;
use crate::summary::Summary;
pub use crate::text::{beside_paper, text};
use asmp_host::{Cpu, Schedule};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Version of the layout of the report in JSON.
pub const REPORT_SCHEMA: u32 = 3;

/// One line of a table.
#[derive(Debug, Clone, Serialize)]
pub struct Row<'a> {
    #[serde(skip)]
    pub provenance: &'a Provenance,
    pub experiment: Experiment,
    pub load: String,
    pub kind: String,
    /// The kind, and what tells runs of one kind apart: column, thread, directory.
    pub name: String,
    /// Of an import: what the tool's column counted.
    pub column: Option<String>,
    pub dir: String,
    pub kernel: String,
    /// Times of a virtual machine are not those of real hardware.
    pub hypervisor: Option<bool>,
    pub source: Source,
    /// `None` where instants are random or there are none.
    pub period_ns: Option<u64>,
    /// `None` where the task was free to move.
    pub cpu: Option<Cpu>,
    /// `None` where it is not known (an import).
    pub schedule: Option<Schedule>,
    /// The papers' k, of which the load's processes follow. `None` without a load, and of `artis`,
    /// which has none.
    pub load_factor: Option<u32>,
    /// How many processes the load has on all CPUs; `None` where that is not known (an import).
    pub load_processes: Option<u32>,
    /// What a load that writes wrote to, where that is known.
    pub load_dir: Option<LoadDir>,
    pub summary: Summary,
    /// The same of samples alone, as other tools count, where instants were missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_alone: Option<Summary>,
    /// Instants above the limit that was asked for.
    pub above: Option<AboveLimit>,
    /// Overhead: what handlers and other tasks took, the largest of a turn; the rest of the excess
    /// is the hypervisor's or the hardware's. `None` where that was not recorded, or of a latency.
    pub system_max_ns: Option<u64>,
    pub partial: Option<String>,
}

/// Instants above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AboveLimit {
    pub limit_ns: u64,
    #[serde(flatten)]
    pub instants: Above,
}

/// Rows in the papers' order: experiment, load, kind. What belongs to the table of `spaces` is left
/// out. A run without samples has its row: there is no worse one.
pub fn rows<'a>(runs: &'a [Run], limit_ns: Option<u64>) -> Vec<Row<'a>> {
    let mut runs = spaces::others(runs);
    runs.sort_by_key(|run| (run.provenance.experiment, run.provenance.load, run.provenance.kind));
    let names = names(&runs);
    let row = |(run, name): (&'a Run, String)| {
        let provenance = &run.provenance;
        let recorded = provenance.not_recorded.is_none() && provenance.lost_records == 0;
        Row {
            provenance,
            experiment: provenance.experiment,
            load: provenance.load.to_string(),
            kind: provenance.kind.to_string(),
            name,
            column: provenance.column.clone(),
            dir: run.dir.display().to_string(),
            kernel: provenance.machine.kernel.clone(),
            hypervisor: provenance.machine.hypervisor,
            source: provenance.source,
            period_ns: provenance.period_ns,
            cpu: provenance.cpu,
            schedule: provenance.schedule,
            load_factor: provenance.load_size.factor(provenance.load),
            load_processes: provenance.load_size.processes(provenance.load),
            load_dir: provenance.load_dir.clone(),
            summary: run.summary(),
            samples_alone: (run.latencies.missed() > 0)
                .then(|| Summary::of(&run.latencies.of_samples())),
            above: limit_ns
                .map(|limit_ns| AboveLimit { limit_ns, instants: run.latencies.above(limit_ns) }),
            system_max_ns: run.system_max_ns.filter(|_| recorded),
            partial: provenance.partial.clone(),
        }
    };
    runs.into_iter().zip(names).map(row).collect()
}

/// The rows of each table: of one experiment and load.
pub(crate) fn tables<'a>(rows: &'a [Row<'a>]) -> Vec<Vec<&'a Row<'a>>> {
    let mut tables: BTreeMap<(Experiment, usize), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let first = rows.iter().position(|one| one.load == row.load).unwrap_or(0);
        tables.entry((row.experiment, first)).or_default().push(row);
    }
    tables.into_values().collect()
}

/// Names that tell the runs of one experiment and load apart: `partition`, `partition Usr-003`, and
/// where that does not, the directory too. None begins a line of its own.
fn names(runs: &[&Run]) -> Vec<String> {
    let short =
        |run: &Run| run.name().split_once('/').map_or_else(String::new, |name| name.1.into());
    let last = |run: &Run| {
        let dir = run.dir.file_name().unwrap_or_default().to_string_lossy();
        let mut name = short(run);
        // What a directory of `ab` says of its step is not said twice.
        if let Some(step) = &run.provenance.step
            && dir.starts_with(&step.to_string())
        {
            name.truncate(name.len() - step.to_string().len() - 1);
        }
        format!("{name} {dir}")
    };
    let whole = |run: &Run| format!("{} {}", short(run), run.dir.display());
    let heading = |run: &Run| (run.provenance.experiment, run.provenance.load);
    // How many runs of a heading have each name.
    let counts = |name: &dyn Fn(&Run) -> String| {
        let mut counts = BTreeMap::new();
        for run in runs {
            *counts.entry((heading(run), name(run))).or_insert(0) += 1;
        }
        counts
    };
    let (shorts, lasts) = (counts(&short), counts(&last));
    let name = |run: &&Run| {
        let (of_short, of_last) = ((heading(run), short(run)), (heading(run), last(run)));
        match (shorts[&of_short], lasts[&of_last]) {
            (1, _) => of_short.1,
            (_, 1) => of_last.1,
            _ => whole(run),
        }
    };
    runs.iter().map(|run| shown(&name(run))).collect()
}

/// The cause of a sample; `None` where its run says why it recorded none.
pub(crate) fn cause<'a>(outlier: &'a Outlier, run: &Provenance) -> Option<&'a str> {
    let is_none = run.not_recorded.is_some() && outlier.cause == NOT_RECORDED;
    (!is_none).then_some(outlier.cause.as_str())
}

/// The worst samples of a run with their causes; of turns, what they took beyond the base time.
pub fn explain(run: &Run, count: usize) -> String {
    let mut text = String::new();
    if let Some(reason) = &run.provenance.not_recorded {
        let _ = writeln!(text, "causes were not recorded: {reason}");
    }
    if run.provenance.lost_records > 0 {
        let _ = writeln!(
            text,
            "{} records of the kernel were lost: causes are incomplete",
            run.provenance.lost_records
        );
    }
    let what = match run.provenance.experiment {
        Experiment::Latency => "sample",
        Experiment::Overhead => "turn",
    };
    for outlier in run.provenance.worst.iter().take(count) {
        let us = outlier.value_ns.saturating_sub(run.base_ns()) as f64 / 1e3;
        // Its number is worth something only where the samples are kept.
        let number = run.has_samples().then(|| format!("{what} {}", outlier.index));
        let at = outlier.at_ns.map(|ns| format!("at {:.6} s", ns as f64 / 1e9));
        let mut place = number.into_iter().chain(at).collect::<Vec<_>>().join(" ");
        place.push_str(if place.is_empty() { "" } else { ": " });
        // Why there is none is said above, once.
        let cause = cause(outlier, &run.provenance).map(|cause| format!(": {}", shown(cause)));
        let sentence = format!("{place}{us:.1} us{}", cause.unwrap_or_default());
        let _ = writeln!(text, "{}", crate::explain::wrapped(&sentence));
        outlier.records.iter().for_each(|record| _ = writeln!(text, "    {}", shown(record)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::run::tests::provenance;
    use crate::run::{BaseTime, Kind, Step, Times};

    fn run(dir: &str, kind: Kind, latencies: Latencies) -> Run {
        let provenance = Provenance { kind, samples: latencies.samples(), ..provenance() };
        let times = Times::default();
        Run { dir: dir.into(), provenance, latencies, times, system_max_ns: None }
    }

    #[test]
    fn a_worst_sample_has_its_number_only_where_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let mut run = run(&path, Kind::Partition, Latencies::of([1]));
        run.provenance.worst = vec![Outlier {
            index: 7,
            at_ns: None,
            value_ns: 12_300,
            handler_ns: None,
            cause: "x took 9 us".to_owned(),
            records: vec![],
        }];
        assert_eq!(explain(&run, 1), "12.3 us: x took 9 us\n");
        std::fs::write(dir.path().join("samples.bin"), "").unwrap();
        assert_eq!(explain(&run, 1), "sample 7: 12.3 us: x took 9 us\n");
    }

    #[test]
    fn runs_of_one_kind_are_told_apart() {
        let of = |dir: &str| run(dir, Kind::Partition, Latencies::of([1]));
        let names = |runs: &[Run]| -> Vec<String> {
            rows(runs, None).into_iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&[of("a/mixed-partition")]), ["partition"]);
        assert_eq!(
            names(&[of("ab/tick-with-0"), of("ab/tick-without-0")]),
            ["partition tick-with-0", "partition tick-without-0"]
        );
        assert_eq!(
            names(&[of("a/mixed-partition"), of("b/mixed-partition")]),
            ["partition a/mixed-partition", "partition b/mixed-partition"]
        );
        let step = |dir: &str, with: bool| {
            let mut run = of(dir);
            run.provenance.step = Some(Step { name: "tick".into(), with });
            run
        };
        assert_eq!(
            names(&[step("ab/tick-with-0", true), step("ab/tick-without-0", false)]),
            ["partition tick-with", "partition tick-without"]
        );
        assert_eq!(
            names(&[step("ab/tick-with-0", true), step("ab/tick-with-1", true)]),
            ["partition tick-with-0", "partition tick-with-1"]
        );
        assert_eq!(
            names(&[step("x", true), step("y", true)]),
            ["partition tick-with x", "partition tick-with y"]
        );
        let mut columns = [of("i/irq"), of("i/thr")];
        columns[0].provenance.column = Some("IRQ-003".into());
        columns[1].provenance.column = Some("Thr-003".into());
        assert_eq!(names(&columns), ["partition IRQ-003", "partition Thr-003"]);
    }

    #[test]
    fn a_late_sample_is_found_by_its_time_and_a_turn_is_told_beyond_the_base_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut late = run(&dir.path().display().to_string(), Kind::Partition, Latencies::of([1]));
        std::fs::write(dir.path().join("samples.bin"), "").unwrap();
        late.provenance.worst = vec![Outlier {
            index: 7,
            at_ns: Some(1_234_567_000),
            value_ns: 41_000,
            handler_ns: None,
            cause: "hog/99 took 40.0 us".into(),
            records: vec!["+1.0 us local timer".into()],
        }];
        let says = explain(&late, 1);
        let sample =
            "sample 7 at 1.234567 s: 41.0 us: hog/99 took 40.0 us\n    +1.0 us local timer\n";
        assert_eq!(says, sample);
        late.provenance.worst[0].at_ns = None;
        assert!(explain(&late, 1).starts_with("sample 7: 41.0 us: hog"));
        late.provenance.experiment = Experiment::Overhead;
        late.provenance.base_ns = Some(BaseTime { before_ns: 12_000, after_ns: 11_000, rounds: 1 });
        assert!(explain(&late, 1).starts_with("turn 7: 30.0 us: hog"));
        assert_eq!(explain(&late, 0), "");
    }

    #[test]
    fn that_no_cause_was_recorded_is_said_once() {
        let mut free = run("x", Kind::Normal, Latencies::of([1]));
        free.provenance.not_recorded = Some("the task may move between CPUs".into());
        let one = |value_ns| Outlier {
            index: 7,
            at_ns: Some(1_000_000_000),
            value_ns,
            handler_ns: None,
            cause: NOT_RECORDED.to_owned(),
            records: vec![],
        };
        free.provenance.worst = vec![one(9_000), one(8_000)];
        let says = "causes were not recorded: the task may move between CPUs\nat 1.000000 s: 9.0 \
                    us\nat 1.000000 s: 8.0 us\n";
        assert_eq!(explain(&free, 2), says);
    }
}
