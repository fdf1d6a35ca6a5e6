// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies over time: of a run's samples where it keeps them, else of the seconds of its log. A
//! few hundred columns, however long the run.

use crate::explain::Outlier;
use crate::histogram::missed_by;
use crate::hlog;
use crate::run::{Experiment, Run, RunError, Source};
use asmp_host::limited::open_regular;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufReader;

/// The most columns, and the most groups of seconds; there are more than half as many, where there
/// are so many samples or seconds.
const COLUMNS: usize = 240;
/// Of the first column, before columns are joined.
const COLUMN_NS: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;
/// Seconds that one stall fills, at most: a day.
const MOST_SECONDS: u64 = 86_400;
/// How many of a run's worst samples have a mark and their cause.
pub const WORST: usize = 5;

/// What a column of time shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub low_ns: u64,
    pub high_ns: u64,
}

/// Times from the run's first instant on.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    pub columns: BTreeMap<u64, Column>,
    pub column_ns: u64,
    /// The largest of each group of seconds by its number, missed instants included.
    largest_ns: BTreeMap<u64, u64>,
    /// So many seconds are a group: 1, or as many times 2 as keep the groups few.
    pub group_s: u64,
    /// When the worst samples were due, by their index; those whose place is known.
    pub worst_ns: HashMap<u64, u64>,
    pub length_ns: u64,
    /// Where the period of the last instant ends, as far as it is known; else the second of it.
    pub end_ns: u64,
    pub has_samples: bool,
    /// Why the samples, which are there, cannot be read; the seconds are shown then.
    pub unread: Option<String>,
}

/// Sees samples as they come.
struct Samples {
    timeline: Timeline,
    period_ns: u64,
    /// Indices of the worst.
    worst: HashSet<u64>,
    index: u64,
    origin_ns: Option<u64>,
}

impl Samples {
    fn new(period_ns: Option<u64>, worst: impl Iterator<Item = u64>) -> Self {
        let timeline = Timeline { has_samples: true, ..Timeline::new(COLUMN_NS) };
        let (worst, period_ns) = (worst.collect(), period_ns.unwrap_or(0));
        Self { timeline, worst, period_ns, index: 0, origin_ns: None }
    }

    fn push(&mut self, due_ns: u64, value_ns: u64) {
        let at_ns = due_ns.saturating_sub(*self.origin_ns.get_or_insert(due_ns));
        let timeline = &mut self.timeline;
        if self.worst.contains(&self.index) {
            timeline.worst_ns.insert(self.index, at_ns);
        }
        self.index += 1;
        timeline.column(at_ns, value_ns);
        let most = MOST_SECONDS * SECOND_NS / self.period_ns.max(1);
        let missed = missed_by(value_ns, self.period_ns).min(most);
        // `missed` periods are shorter than the value; an instant that a file tells may be any.
        let last_ns = at_ns.saturating_add(missed * self.period_ns);
        timeline.length_ns = timeline.length_ns.max(last_ns);
        timeline.end_ns = timeline.length_ns.saturating_add(self.period_ns);
        // Of the instants that it missed, the first one of each second waited longest.
        let mut turn = 0;
        while turn <= missed {
            let instant_ns = at_ns.saturating_add(turn * self.period_ns);
            let second = instant_ns / SECOND_NS;
            timeline.second(second, value_ns - turn * self.period_ns);
            let left_ns = SECOND_NS - instant_ns % SECOND_NS;
            turn += left_ns.div_ceil(self.period_ns.max(1));
        }
    }
}

impl Timeline {
    fn new(column_ns: u64) -> Self {
        Self {
            columns: BTreeMap::new(),
            column_ns,
            largest_ns: BTreeMap::new(),
            group_s: 1,
            worst_ns: HashMap::new(),
            length_ns: 0,
            end_ns: 0,
            has_samples: false,
            unread: None,
        }
    }

    /// `None` where the run has no times: an import, or no sample. Samples that cannot be read are
    /// replaced by the seconds of the log. Errors: a file that was read before can no longer be
    /// read.
    pub fn read(run: &Run) -> Result<Option<Self>, RunError> {
        let provenance = &run.provenance;
        if run.latencies.instants() == 0 || provenance.source == Source::Import {
            return Ok(None);
        }
        let mut timeline = match run.has_samples() {
            true => Self::of_samples(run)?,
            false => Self::of_log(run)?,
        };
        timeline.place(&provenance.worst);
        Ok(Some(timeline))
    }

    fn of_samples(run: &Run) -> Result<Self, RunError> {
        let provenance = &run.provenance;
        let is_latency = provenance.experiment == Experiment::Latency;
        let period_ns = provenance.period_ns.filter(|_| is_latency);
        let worst = provenance.worst.iter().take(WORST).map(|worst| worst.index);
        let mut samples = Samples::new(period_ns, worst);
        let base_ns = run.base_ns();
        let read = run.each_sample(|sample| {
            samples.push(sample.due_ns, sample.value_ns.saturating_sub(base_ns));
        });
        let Err(error) = read else { return Ok(samples.timeline) };
        let unread = Some(error.to_string());
        match Self::of_log(run) {
            Ok(seconds) => Ok(Self { unread, ..seconds }),
            // The samples are what was read before.
            Err(_) => Err(error.into()),
        }
    }

    /// Places those of the worst that know when they were due. One that lies beyond the end was not
    /// kept: a full disk may end a run before its worst sample.
    fn place(&mut self, worst: &[Outlier]) {
        for one in worst.iter().take(WORST) {
            if let Some(at_ns) = one.at_ns.filter(|at_ns| *at_ns <= self.length_ns) {
                self.worst_ns.insert(one.index, at_ns);
            }
        }
    }

    fn of_log(run: &Run) -> Result<Self, RunError> {
        let path = run.dir.join("hist.hlog");
        let cause = |cause| RunError::Io { path: path.clone(), cause };
        let file = BufReader::new(open_regular(&path).map_err(cause)?);
        let mut timeline = Self::new(SECOND_NS);
        let read = hlog::read(file, |one| {
            if one.tag.is_some() || one.latencies.instants() == 0 {
                return;
            }
            let (at, exact) = (one.second as u64, one.latencies.exact());
            let (low_ns, high_ns) = (exact.min_ns.unwrap_or(0), exact.max_ns.unwrap_or(0));
            timeline.second(at, high_ns);
            let begin_ns = at.saturating_mul(SECOND_NS);
            timeline.join(begin_ns, Column { low_ns, high_ns });
            timeline.length_ns = timeline.length_ns.max(begin_ns.saturating_add(SECOND_NS));
        });
        read.map_err(|cause| RunError::Log { path, cause })?;
        // A log does not say where in its last second the run has ended.
        let instants = run.latencies.instants().saturating_add(run.latencies.lost());
        let is_latency = run.provenance.experiment == Experiment::Latency;
        let period_ns = run.provenance.period_ns.filter(|_| is_latency);
        let spanned_ns = period_ns.map_or(u64::MAX, |ns| ns.saturating_mul(instants));
        let last_ns = timeline.length_ns.saturating_sub(SECOND_NS);
        timeline.end_ns = match spanned_ns > last_ns {
            true => timeline.length_ns.min(spanned_ns),
            false => timeline.length_ns,
        };
        Ok(timeline)
    }

    fn second(&mut self, second: u64, value_ns: u64) {
        larger(&mut self.largest_ns, second / self.group_s, value_ns);
        while self.largest_ns.len() > COLUMNS {
            self.group_s *= 2;
            for (at, value_ns) in std::mem::take(&mut self.largest_ns) {
                larger(&mut self.largest_ns, at / 2, value_ns);
            }
        }
    }

    fn column(&mut self, at_ns: u64, value_ns: u64) {
        self.join(at_ns, Column { low_ns: value_ns, high_ns: value_ns });
    }

    fn join(&mut self, at_ns: u64, new: Column) {
        joined(&mut self.columns, at_ns / self.column_ns, new);
        if self.columns.len() > COLUMNS {
            self.column_ns *= 2;
            for (at, column) in std::mem::take(&mut self.columns) {
                joined(&mut self.columns, at / 2, column);
            }
        }
    }

    /// The largest of so many seconds each, a multiple of `group_s`: number of the first second,
    /// and value.
    pub fn largest_of(&self, seconds: u64) -> BTreeMap<u64, u64> {
        let mut largest = BTreeMap::new();
        for (at, value_ns) in &self.largest_ns {
            larger(&mut largest, at * self.group_s / seconds * seconds, *value_ns);
        }
        largest
    }
}

fn larger(largest: &mut BTreeMap<u64, u64>, at: u64, value_ns: u64) {
    let most = largest.entry(at).or_default();
    *most = value_ns.max(*most);
}

fn joined(columns: &mut BTreeMap<u64, Column>, at: u64, new: Column) {
    let column = columns.entry(at).or_insert(new);
    column.low_ns = column.low_ns.min(new.low_ns);
    column.high_ns = column.high_ns.max(new.high_ns);
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::explain::Outlier;
    use crate::histogram::Latencies;
    use crate::hlog::Recorder;
    use crate::run::tests::provenance;
    use crate::run::{Provenance, write_provenance};
    use crate::sample::{Sample, Writer};
    use std::path::Path;

    const MS: u64 = 1_000_000;

    /// Of samples each period.
    pub fn of(period_ns: u64, values_ns: impl Iterator<Item = u64>) -> Timeline {
        let mut samples = Samples::new(Some(period_ns), [0].into_iter());
        for (turn, value_ns) in (7..).zip(values_ns) {
            samples.push(turn * period_ns, value_ns);
        }
        samples.timeline
    }

    #[test]
    fn a_million_samples_keep_their_extremes_in_a_few_hundred_columns() {
        let value = |turn: u64| match turn {
            777_777 => 1,
            333_333 => 500_000,
            _ => 10_000 + turn % 100,
        };
        let timeline = of(MS, (0..1_000_000).map(value));
        assert!((COLUMNS / 2..=COLUMNS).contains(&timeline.columns.len()));
        let lows = timeline.columns.values().map(|column| column.low_ns);
        let highs = timeline.columns.values().map(|column| column.high_ns);
        assert_eq!((lows.min(), highs.max()), (Some(1), Some(500_000)));
        let place = 333_333 * MS / timeline.column_ns;
        assert_eq!(timeline.columns[&place].high_ns, 500_000);
        // A thousand seconds are 125 groups of 8.
        assert_eq!((timeline.group_s, timeline.largest_ns.len()), (8, 125));
        assert_eq!(timeline.largest_of(8)[&328], 500_000);
        assert_eq!(timeline.largest_of(16)[&320], 500_000);
        assert_eq!((timeline.length_ns, timeline.end_ns), (999_999 * MS, 1_000_000 * MS));
    }

    #[test]
    fn a_week_of_seconds_is_a_few_hundred_groups() {
        let mut timeline = Timeline::new(SECOND_NS);
        (0..604_800).for_each(|second| timeline.second(second, second));
        assert!((COLUMNS / 2..=COLUMNS).contains(&timeline.largest_ns.len()));
        assert_eq!(timeline.largest_of(timeline.group_s).last_key_value().unwrap().1, &604_799);
    }

    #[test]
    fn each_second_of_a_stall_has_the_instant_that_waited_longest() {
        let timeline = of(MS, [10_000, 2500 * MS].into_iter());
        let seconds: Vec<(u64, u64)> =
            timeline.largest_of(1).iter().map(|(second, ns)| (*second, ns / MS)).collect();
        assert_eq!(seconds, [(0, 2500), (1, 1501), (2, 501)]);
        assert_eq!(timeline.length_ns, 2500 * MS);
    }

    #[test]
    fn instants_that_no_clock_has_make_a_line_and_no_overflow() {
        for (period_ns, samples) in [
            (MS, vec![(0, u64::MAX), (u64::MAX, u64::MAX), (1 << 63, 5)]),
            (u64::MAX, vec![(0, 5), (u64::MAX, 5), (5, u64::MAX)]),
            (1, vec![(0, u64::MAX), (u64::MAX, 5)]),
        ] {
            let mut all = Samples::new(Some(period_ns), [1].into_iter());
            for (due_ns, value_ns) in samples {
                all.push(due_ns, value_ns);
            }
            assert_eq!(all.timeline.length_ns, u64::MAX, "{period_ns}");
        }
        // A log whose second is far beyond them.
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path());
        std::fs::remove_file(dir.path().join("samples.bin")).unwrap();
        let path = dir.path().join("hist.hlog");
        let log = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, log.replace("\n1.000,", "\n4611686018427387904.000,")).unwrap();
        let line = Timeline::read(&run).unwrap().unwrap();
        assert_eq!((line.columns.len(), line.length_ns), (5, u64::MAX));
    }

    /// A run of samples each 100 ms, with a log of its seconds.
    fn write(dir: &Path) -> Run {
        let mut writer = Writer::create(&dir.join("samples.bin")).unwrap();
        let out = std::fs::File::create(dir.join("hist.hlog")).unwrap();
        let mut log = Recorder::new(out, std::time::UNIX_EPOCH, Some(100 * MS)).unwrap();
        for turn in 0..50u64 {
            let due_ns = 5 * MS + turn * 100 * MS;
            let sample = Sample { due_ns, value_ns: 1000 + turn, ..Sample::default() };
            writer.push(sample).unwrap();
            log.sample(&sample).unwrap();
        }
        log.finish(0).unwrap();
        let samples = writer.finish().unwrap().0;
        let period_ns = Some(100 * MS);
        let provenance = Provenance { samples, period_ns, ..provenance() };
        write_provenance(dir, &provenance).unwrap();
        Run::read(dir).unwrap()
    }

    #[test]
    fn a_worst_sample_that_is_not_there_has_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = write(dir.path());
        let worst = [3, 99].map(|index| Outlier {
            index,
            at_ns: None,
            value_ns: 1,
            handler_ns: None,
            cause: String::new(),
            records: vec![],
        });
        run.provenance.worst = worst.to_vec();
        let timeline = Timeline::read(&run).unwrap().unwrap();
        assert_eq!(timeline.worst_ns, HashMap::from([(3, 300 * MS)]));
    }

    #[test]
    fn of_samples_that_cannot_be_read_the_seconds_of_the_log_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path());
        let samples = dir.path().join("samples.bin");
        let bytes = std::fs::read(&samples).unwrap();
        std::fs::write(&samples, &bytes[..bytes.len() - 1]).unwrap();
        let seconds = Timeline::read(&run).unwrap().unwrap();
        assert_eq!((seconds.has_samples, seconds.columns.len()), (false, 5));
        assert!(seconds.unread.unwrap().contains("cut short: 49 whole samples of 50"));
        let page = crate::page::html(std::slice::from_ref(&run), None).unwrap();
        assert!(page.contains("partition: the samples cannot be read"), "a note says so");
        std::fs::remove_file(dir.path().join("hist.hlog")).unwrap();
        let error = Timeline::read(&run).unwrap_err().to_string();
        assert!(error.contains("samples.bin: cut short"), "{error}");
    }

    #[test]
    fn a_run_without_its_samples_has_its_seconds_and_an_import_has_neither() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = write(dir.path());
        let whole = Timeline::read(&run).unwrap().unwrap();
        assert_eq!((whole.has_samples, whole.columns.len()), (true, 50));
        std::fs::remove_file(dir.path().join("samples.bin")).unwrap();
        let seconds = Timeline::read(&run).unwrap().unwrap();
        assert_eq!((seconds.has_samples, seconds.columns.len()), (false, 5));
        assert_eq!(seconds.largest_of(1), whole.largest_of(1));
        let column = seconds.columns[&1];
        assert_eq!((column.low_ns, column.high_ns), (1010, 1019));
        // It ends where its last period does, also where only seconds are kept.
        run.latencies = Latencies::of(std::iter::repeat_n(1000, 42));
        let cut = Timeline::read(&run).unwrap().unwrap();
        assert_eq!((whole.end_ns, seconds.end_ns, cut.end_ns), (5000 * MS, 5000 * MS, 4200 * MS));
        run.provenance.source = Source::Import;
        assert_eq!(Timeline::read(&run).unwrap(), None);
    }

    #[test]
    fn the_worst_are_placed_without_samples_and_only_if_they_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = write(dir.path());
        let outlier = |index: u64, at_ns: Option<u64>| Outlier {
            index,
            at_ns,
            value_ns: 1000 + index,
            handler_ns: None,
            cause: String::new(),
            records: vec![],
        };
        let places = |run: &Run| {
            let mut all: Vec<(u64, u64)> =
                Timeline::read(run).unwrap().unwrap().worst_ns.into_iter().collect();
            all.sort_unstable();
            all
        };
        // The fiftieth of 50 samples, and one that found no room on the disk.
        let worst = |at_ns: Option<u64>, lost_ns: Option<u64>| {
            vec![outlier(49, at_ns), outlier(60, lost_ns)]
        };
        let known = worst(Some(4900 * MS), Some(6000 * MS));
        // An older asmp did not say when they were due.
        run.provenance.worst = worst(None, None);
        assert_eq!(places(&run), [(49, 4900 * MS)]);
        run.provenance.worst = known;
        assert_eq!(places(&run), [(49, 4900 * MS)]);
        std::fs::remove_file(dir.path().join("samples.bin")).unwrap();
        assert_eq!(places(&run), [(49, 4900 * MS)]);
        run.provenance.worst = worst(None, None);
        assert_eq!(places(&run), []);
    }
}
