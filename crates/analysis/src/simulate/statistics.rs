// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response times, misses and gaps of a run, stream by stream, in bounded memory.

use super::engine::{Job, Observe};
use super::model::Owner;
use super::run::Run;
use crate::verdict::Missed;
#[cfg(feature = "files")]
use serde::Serialize;
use std::ops::ControlFlow;

/// Parts of an octave in the histogram: a percentile is at most 1/128 above the true value.
const PARTS_LOG2: u32 = 7;
const PARTS: u64 = 1 << PARTS_LOG2;
/// Misses kept with their job.
const KEPT_MISSES: usize = 100;

/// Values seen: extremes and average exact, percentiles to 0.8 % upwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    count: u64,
    sum: u128,
    min_ticks: u64,
    max_ticks: u64,
    /// Grows up to 58 octaves of 128.
    buckets: Vec<u64>,
}

impl Distribution {
    #[inline]
    pub fn add(&mut self, ticks: u64) {
        self.min_ticks = if self.count == 0 { ticks } else { self.min_ticks.min(ticks) };
        self.max_ticks = self.max_ticks.max(ticks);
        self.count += 1;
        self.sum += u128::from(ticks);
        let bucket = bucket(ticks);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    pub const fn count(&self) -> u64 {
        self.count
    }

    pub const fn max_ticks(&self) -> Option<u64> {
        if self.count == 0 { None } else { Some(self.max_ticks) }
    }

    pub const fn min_ticks(&self) -> Option<u64> {
        if self.count == 0 { None } else { Some(self.min_ticks) }
    }

    /// Rounded down.
    pub fn average_ticks(&self) -> Option<u64> {
        self.sum.checked_div(u128::from(self.count)).and_then(|average| u64::try_from(average).ok())
    }

    /// The value that at most one in `one_in` exceeds; `None` of fewer values than that.
    pub fn percentile_ticks(&self, one_in: u64) -> Option<u64> {
        let above = self.count.checked_div(one_in).filter(|above| *above > 0)?;
        let mut rest = self.count - above;
        for (index, count) in self.buckets.iter().enumerate() {
            if rest <= *count {
                return Some(upper_edge(index).min(self.max_ticks));
            }
            rest -= count;
        }
        Some(self.max_ticks)
    }

    /// Upper edge and count of each part that has any.
    pub fn parts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let any = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        any.map(|(index, count)| (upper_edge(index), *count))
    }
}

/// Exact below 128, then 128 parts an octave.
fn bucket(ticks: u64) -> usize {
    if ticks < PARTS {
        return ticks as usize;
    }
    let octave = ticks.ilog2() - PARTS_LOG2;
    ((u64::from(octave) << PARTS_LOG2) + (ticks >> octave)) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let octave = (bucket >> PARTS_LOG2) - 1;
    let part = bucket - (octave << PARTS_LOG2);
    u64::try_from(((u128::from(part) + 1) << octave) - 1).unwrap_or(u64::MAX)
}

/// One stream.
#[derive(Debug, Clone, Default)]
pub struct OfStream {
    pub responses: Distribution,
    /// Late completions.
    pub misses: u64,
    /// Longest time from one completion to the next.
    pub longest_gap_ticks: u64,
    last_finished_ticks: Option<u64>,
}

/// What a run was like. Times are from the arrival.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    pub streams: Vec<OfStream>,
    /// The first hundred that finished late.
    late: Vec<(Job, u64)>,
    pub misses: u64,
    pub busy_ticks: u64,
}

impl Statistics {
    pub fn of(run: &Run) -> Self {
        Self { streams: vec![OfStream::default(); run.owners.len()], ..Self::default() }
    }

    /// The first misses, those included that never finished. Call when the run has ended.
    pub fn misses(&self, run: &Run) -> Vec<Missed> {
        let late = self.late.iter().filter_map(|(job, at_ticks)| run.missed(job, Some(*at_ticks)));
        let mut open: Vec<Missed> = overdue(run).filter_map(|job| run.missed(&job, None)).collect();
        open.sort_by_key(|missed| (missed.deadline_ticks, missed.task, missed.job));
        late.chain(open).take(KEPT_MISSES).collect()
    }

    /// Late completions, and jobs that are overdue and not finished.
    pub fn miss_count(&self, run: &Run) -> u64 {
        self.misses + overdue(run).count() as u64
    }

    /// As a table's rows. Call when the run has ended.
    pub fn rows(&self, run: &Run) -> Vec<Row> {
        let mut open = vec![0u64; self.streams.len()];
        overdue(run).for_each(|job| open[job.stream()] += 1);
        let row = |(index, stream): (usize, &OfStream)| Row {
            name: run.names[index].clone(),
            kind: match run.owners[index] {
                Owner::Task(_) => "task",
                Owner::Background(_) => "background",
                Owner::Handler(_) => "handler",
                Owner::Service(_) => "service",
                Owner::Section(_) => "section",
            },
            cpu: run.cpus[run.core_of(index)],
            jobs: stream.responses.count(),
            misses: stream.misses + open[index],
            min_ticks: stream.responses.min_ticks(),
            average_ticks: stream.responses.average_ticks(),
            p50_ticks: stream.responses.percentile_ticks(2),
            p99_ticks: stream.responses.percentile_ticks(100),
            max_ticks: stream.responses.max_ticks(),
            longest_gap_ticks: stream.longest_gap_ticks,
        };
        self.streams.iter().enumerate().map(row).collect()
    }
}

/// Jobs past their deadline that have not finished.
fn overdue(run: &Run) -> impl Iterator<Item = Job> + '_ {
    let now_ticks = run.now_ticks();
    run.unfinished()
        .filter(move |job| job.deadline_ticks.is_some_and(|deadline| deadline < now_ticks))
}

/// Response times of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Row {
    pub name: String,
    pub kind: &'static str,
    pub cpu: u32,
    /// Finished; the times are theirs.
    pub jobs: u64,
    /// Late completions, and jobs that are overdue and not finished.
    pub misses: u64,
    pub min_ticks: Option<u64>,
    pub average_ticks: Option<u64>,
    pub p50_ticks: Option<u64>,
    pub p99_ticks: Option<u64>,
    pub max_ticks: Option<u64>,
    /// Longest time from one completion to the next: how old a reading can become.
    pub longest_gap_ticks: u64,
}

impl Observe for Statistics {
    #[inline]
    fn ran(&mut self, _core: usize, _job: &Job, from_ticks: u64, to_ticks: u64) {
        self.busy_ticks = self.busy_ticks.saturating_add(to_ticks - from_ticks);
    }

    #[inline]
    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        let stream = &mut self.streams[job.stream()];
        stream.responses.add(at_ticks - job.arrival_ticks);
        if let Some(last_ticks) = stream.last_finished_ticks.replace(at_ticks) {
            stream.longest_gap_ticks = stream.longest_gap_ticks.max(at_ticks - last_ticks);
        }
        if job.deadline_ticks.is_some_and(|deadline| at_ticks > deadline) {
            stream.misses += 1;
            self.misses += 1;
            if self.late.len() < KEPT_MISSES {
                self.late.push((*job, at_ticks));
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_at_or_below_its_edge_by_less_than_a_part() {
        for ticks in (0..10_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX - 1, u64::MAX]) {
            let edge = upper_edge(bucket(ticks));
            assert!(edge >= ticks && edge - ticks <= ticks >> PARTS_LOG2, "{ticks} {edge}");
        }
    }

    #[test]
    fn percentiles_are_by_nearest_rank_and_not_invented() {
        let mut all = Distribution::default();
        assert_eq!(
            (all.max_ticks(), all.average_ticks(), all.percentile_ticks(2)),
            (None, None, None)
        );
        (1..=100).for_each(|ticks| all.add(ticks));
        assert_eq!(
            (all.percentile_ticks(2), all.percentile_ticks(100), all.percentile_ticks(101)),
            (Some(50), Some(99), None)
        );
        assert_eq!(
            (all.min_ticks(), all.average_ticks(), all.max_ticks()),
            (Some(1), Some(50), Some(100))
        );
    }
}
