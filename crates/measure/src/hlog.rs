// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `hist.hlog`: latencies by the second, as a log of HdrHistogram (format 1.3, histograms V2),
//! which its other readers read as well. A killed run keeps the seconds that were written.
//!
//! A line is one second: its start and its length in seconds, its largest latency in ns, and the
//! counts. Lines without a tag have *all instants* of that second, those with `Tag=missed` the
//! missed ones among them; other tags are other times of the same samples, such as `Tag=irq`. The
//! last comments, `#[asmp …]`, have the figures that buckets round and the counts of the whole: one
//! line for each tag.

mod whole;

use crate::histogram::{Beyond, Exact, Latencies, Rounding, missed_by};
use crate::sample::Sample;
use crate::times::Times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
pub use whole::whole;

/// Tag of the missed instants.
const MISSED: &str = "missed";
/// A line, and its histogram when inflated, are no longer: 5 digits up to 146 years.
const MOST_BYTES: u64 = 64 << 20;
const SECOND_NS: u64 = 1_000_000_000;
/// One of the first lines of our own logs, also of one that a kill has cut.
const OURS: &str = "#[Logged with asmp]";
const LAST_COMMENT: &str = "#[asmp ";

/// Did asmp write this log? An older one did not say so in the beginning.
pub fn is_ours(text: &str) -> bool {
    text.lines().take(8).any(|line| line == OURS) || is_whole(text)
}

/// Has it a last comment?
pub fn is_whole(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(LAST_COMMENT))
}

/// The worst latency of each whole second in a part of a log of ours, in nanoseconds, as the
/// histograms round it. A line that is cut at either end is left out.
pub fn worst_by_second(part: &str) -> Vec<u64> {
    let whole = part.rfind('\n').map_or("", |end| &part[..end]);
    let worst = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [start, length, most, _] = cells[..] else { return None };
        let is_second = start.strip_suffix(".000")?.parse::<u64>().is_ok() && length == "1.000";
        most.strip_suffix(".000")?.parse().ok().filter(|_| is_second)
    };
    whole.lines().filter_map(worst).collect()
}

/// What the last comment of a tag says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trailer {
    tag: Option<String>,
    sampled: Exact,
    /// `None` of an import that does not tell it.
    missed: Option<Exact>,
    lost: u64,
    beyond: Option<Beyond>,
    /// Of an import: how much shorter than its bucket an instant may have been.
    #[serde(default, skip_serializing_if = "is_zero")]
    spread_ns: u64,
    /// And how much longer than it is told.
    #[serde(default, skip_serializing_if = "is_zero")]
    cut_ns: u64,
    /// All instants, and those that were missed, as the lines have them; empty where there are
    /// none. `None` in what an older asmp wrote.
    #[serde(default)]
    counts: Option<[String; 2]>,
}

/// Only imports are rounded.
const fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

/// Writes a log, a second after the other.
pub struct Writer<W> {
    out: W,
    serializer: V2DeflateSerializer,
}

impl<W: Write> Writer<W> {
    pub fn new(mut out: W, started: SystemTime) -> io::Result<Self> {
        let since = started.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "{OURS}")?;
        writeln!(out, "#[StartTime: {since:.3} (seconds since epoch)]")?;
        let columns = "Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram";
        writeln!(out, "\"StartTimestamp\",\"{columns}\"")?;
        Ok(Self { out, serializer: V2DeflateSerializer::new() })
    }

    /// The `second`-th second since the start; nothing where it has no instant.
    pub fn second(&mut self, second: u64, tag: Option<&str>, of: &Latencies) -> io::Result<()> {
        let [all, missed] = of.counts();
        if let Some(missed) = missed {
            self.line(second, Some(MISSED), &missed)?;
        }
        all.map_or(Ok(()), |all| self.line(second, tag, &all))
    }

    fn line(&mut self, second: u64, tag: Option<&str>, of: &Histogram<u64>) -> io::Result<()> {
        let counts = self.encoded(of)?;
        let tag = tag.map_or_else(String::new, |tag| format!("Tag={tag},"));
        writeln!(self.out, "{tag}{second}.000,1.000,{}.000,{counts}", of.max())
    }

    fn encoded(&mut self, of: &Histogram<u64>) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.serializer.serialize(of, &mut bytes).map_err(io::Error::other)?;
        Ok(BASE64.encode(bytes))
    }

    /// The figures that buckets round and the counts, of everything under a tag.
    pub fn exact(&mut self, tag: Option<&str>, of: &Latencies) -> io::Result<()> {
        let (sampled, missed) = of.exact_parts();
        let (lost, beyond) = (of.lost(), of.beyond());
        let Rounding { spread_ns, cut_ns } = of.rounding();
        let tag = tag.map(str::to_owned);
        let mut counts = [String::new(), String::new()];
        for (text, counts) in counts.iter_mut().zip(of.counts()) {
            if let Some(counts) = counts {
                *text = self.encoded(&counts)?;
            }
        }
        let counts = Some(counts);
        let trailer = Trailer { tag, sampled, missed, lost, beyond, spread_ns, cut_ns, counts };
        let text = serde_json::to_string(&trailer).map_err(io::Error::other)?;
        writeln!(self.out, "{LAST_COMMENT}{text}]")
    }

    /// Everything that was written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Which instants samples stand for, one after the other.
#[derive(Debug)]
pub struct Instants {
    /// `None` where instants are at random: none is missed then.
    period_ns: Option<u64>,
    /// Instant of the last sample, and instants from there to the next one that can have a sample.
    before: Option<(u64, u64)>,
}

impl Instants {
    pub fn new(period_ns: Option<u64>) -> Self {
        Self { period_ns: period_ns.filter(|period_ns| *period_ns > 0), before: None }
    }

    /// A sample of the instant `due_ns`, and the instants missed since.
    pub fn sample(&mut self, latencies: &mut Latencies, due_ns: u64, latency_ns: u64) {
        latencies.lose(self.lost_before(due_ns));
        latencies.record(latency_ns);
        if let Some(period_ns) = self.period_ns {
            let missed = missed_by(latency_ns, period_ns);
            latencies.miss(latency_ns, period_ns, 1, missed);
            self.before = Some((due_ns, missed.saturating_add(1)));
        }
    }

    /// Instants that passed since the last sample, and that its latency does not explain: theirs
    /// found no room.
    fn lost_before(&self, due_ns: u64) -> u64 {
        let Some((period_ns, (before_ns, instants))) = self.period_ns.zip(self.before) else {
            return 0;
        };
        let passed_ns = due_ns.saturating_sub(before_ns).saturating_add(period_ns / 2);
        let passed = passed_ns / period_ns;
        passed.saturating_sub(instants)
    }
}

/// Counts samples as they come, with the instants missed between them, and writes each second when
/// it is over.
pub struct Recorder<W> {
    log: Writer<W>,
    instants: Instants,
    /// The first sample's instant.
    origin_ns: Option<u64>,
    second: u64,
    current: Latencies,
    total: Latencies,
    current_times: Times,
    times: Times,
}

impl<W: Write> Recorder<W> {
    pub fn new(out: W, started: SystemTime, period_ns: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            log: Writer::new(out, started)?,
            instants: Instants::new(period_ns),
            origin_ns: None,
            second: 0,
            current: Latencies::default(),
            total: Latencies::default(),
            current_times: Times::default(),
            times: Times::default(),
        })
    }

    /// A sample of its instant, and the instants missed since, each in its own second.
    pub fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let Sample { due_ns, value_ns: latency_ns, .. } = *sample;
        self.current.lose(self.instants.lost_before(due_ns));
        self.enter(due_ns)?;
        self.current.record(latency_ns);
        self.current_times.add(sample);
        let Some(period_ns) = self.instants.period_ns else { return Ok(()) };
        let missed = missed_by(latency_ns, period_ns);
        let mut first = 1;
        while first <= missed {
            let at_ns = due_ns.saturating_add(first.saturating_mul(period_ns));
            self.enter(at_ns)?;
            let left_ns = self.end_ns().saturating_sub(at_ns);
            let within = left_ns.div_ceil(period_ns).clamp(1, missed - first + 1);
            self.current.miss(latency_ns, period_ns, first, within);
            first += within;
        }
        self.instants.before = Some((due_ns, missed.saturating_add(1)));
        Ok(())
    }

    /// Of the present second.
    fn end_ns(&self) -> u64 {
        self.origin_ns.unwrap_or(0).saturating_add((self.second + 1).saturating_mul(SECOND_NS))
    }

    /// Ends the seconds before that of an instant. One that is earlier than the present second
    /// stays in it.
    fn enter(&mut self, at_ns: u64) -> io::Result<()> {
        let origin_ns = *self.origin_ns.get_or_insert(at_ns);
        let second = at_ns.saturating_sub(origin_ns) / SECOND_NS;
        if second > self.second {
            self.flush()?;
            // What is written outlives a kill.
            self.log.out.flush()?;
            self.second = second;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let current = std::mem::take(&mut self.current);
        self.total.merge(&current);
        self.log.second(self.second, None, &current)?;
        let times = std::mem::take(&mut self.current_times);
        self.times.merge(&times);
        let mut tags = times.tags().into_iter();
        tags.try_for_each(|(tag, of)| self.log.second(self.second, Some(tag), of))
    }

    /// The whole, and what it was written to. `lost`: samples that found no room, as the probe has
    /// counted them; the last ones leave no gap.
    pub fn finish(mut self, lost: u64) -> io::Result<(Latencies, W)> {
        self.flush()?;
        self.total.lose(lost.saturating_sub(self.total.lost()));
        self.log.exact(None, &self.total)?;
        for (tag, of) in self.times.tags().into_iter().filter(|(_, of)| of.instants() > 0) {
            self.log.exact(Some(tag), of)?;
        }
        Ok((self.total, self.log.finish()?))
    }
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HlogError {
    #[error("line {line}: expected a log of HdrHistogram: {reason}")]
    Line { line: u64, reason: String },
    #[error(
        "the counts of {} contradict what its last comment says",
        tag.as_deref().unwrap_or("all instants")
    )]
    Contradiction { tag: Option<String> },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One second of a log.
#[derive(Debug, Clone, Copy)]
pub struct Second<'a> {
    pub second: f64,
    pub tag: Option<&'a str>,
    pub latencies: &'a Latencies,
}

/// Latencies by tag; `None` are the instants.
pub type ByTag = BTreeMap<Option<String>, Latencies>;

/// All of a log of ours by tag. `each` sees each second as it is read:
/// only one of them is held in memory.
pub fn read(from: impl BufRead, each: impl FnMut(Second)) -> Result<ByTag, HlogError> {
    read_where(from, Some(MISSED), each)
}

/// The same of another program's log, in which no tag has a meaning.
pub fn read_foreign(from: impl BufRead) -> Result<ByTag, HlogError> {
    read_where(from, None, |_| ())
}

fn read_where(
    from: impl BufRead,
    tag_of_missed: Option<&str>,
    mut each: impl FnMut(Second),
) -> Result<ByTag, HlogError> {
    let mut reader = Lines { from, number: 0, text: Vec::new() };
    let mut all = ByTag::new();
    let mut trailers: Vec<Trailer> = Vec::new();
    let mut missed: Option<(Duration, Histogram<u64>)> = None;
    while reader.next()? {
        let line = reader.number;
        let bad = |reason: String| HlogError::Line { line, reason };
        if let Some(json) = reader.text.strip_prefix(LAST_COMMENT.as_bytes()) {
            let json = json.trim_ascii_end().strip_suffix(b"]").unwrap_or(json);
            trailers.push(serde_json::from_slice(json).map_err(|error| bad(error.to_string()))?);
            continue;
        }
        let entry = IntervalLogIterator::new(&reader.text).next();
        let interval = match entry {
            Some(Ok(LogEntry::Interval(interval))) => interval,
            Some(Ok(_)) | None => continue,
            Some(Err(_)) => return Err(bad("found something else".to_owned())),
        };
        let counts = decode(interval.encoded_histogram()).map_err(bad)?;
        let (start, tag) = (interval.start_timestamp(), interval.tag().map(|tag| tag.as_str()));
        if tag.is_some() && tag == tag_of_missed {
            missed = Some((start, counts));
            continue;
        }
        let of_second = missed.take_if(|(of, _)| tag.is_none() && *of == start);
        let of_second = of_second.as_ref().map(|(_, counts)| counts);
        let latencies =
            Latencies::of_counts(&counts, of_second).map_err(|reason| bad(reason.to_owned()))?;
        each(Second { second: start.as_secs_f64(), tag, latencies: &latencies });
        let digits = latencies.digits();
        let total = all.entry(tag.map(str::to_owned)).or_insert_with(|| Latencies::new(digits));
        if total.digits() != digits {
            return Err(bad("its histogram has other digits than those before".to_owned()));
        }
        total.merge(&latencies);
    }
    for trailer in trailers {
        let Trailer { tag, sampled, missed, lost, beyond, spread_ns, cut_ns, .. } = trailer;
        let total = all.entry(tag.clone()).or_default();
        let rounding = Rounding { spread_ns, cut_ns };
        let agrees = total.correct((sampled, missed), lost, beyond, rounding);
        agrees.ok_or(HlogError::Contradiction { tag })?;
    }
    Ok(all)
}

/// Lines of a file, one in memory.
struct Lines<R> {
    from: R,
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<bool, HlogError> {
        self.text.clear();
        self.number += 1;
        let read = (&mut self.from).take(MOST_BYTES).read_until(b'\n', &mut self.text)?;
        let line = self.number;
        match self.text.last() {
            None => Ok(false),
            Some(b'\n') => Ok(true),
            // The rest of a line that a kill has cut holds nothing whole.
            Some(_) if (read as u64) < MOST_BYTES => Ok(false),
            Some(_) => Err(HlogError::Line { line, reason: "found no end of the line".to_owned() }),
        }
    }
}

/// Counts of one line. Sizes are checked before memory is taken: the crate believes its input.
fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = BASE64.decode(text).map_err(|error| error.to_string())?;
    let cut = || "its histogram is cut short".to_owned();
    let (_, compressed) = bytes.split_at_checked(8).ok_or_else(cut)?;
    let mut plain = Vec::new();
    let inflated = ZlibDecoder::new(compressed).take(MOST_BYTES).read_to_end(&mut plain);
    inflated.map_err(|error| error.to_string())?;
    let word = |at: usize| {
        let bytes = plain.get(at..at + 4)?;
        Some(bytes.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte)))
    };
    let length = word(4).ok_or_else(cut)?;
    if length.checked_add(40) != Some(plain.len() as u64) {
        return Err(cut());
    }
    let counts = Deserializer::new().deserialize(&mut plain.as_slice());
    let mut counts: Histogram<u64> = counts.map_err(|error| error.to_string())?;
    counts.auto(true);
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(due_ns: u64, value_ns: u64) -> Sample {
        Sample { due_ns, value_ns, ..Sample::default() }
    }

    /// A second of samples, a stall of 2.5 s, a lost instant, and some more.
    fn log() -> (Latencies, Vec<u8>) {
        const MS: u64 = 1_000_000;
        let mut recorder = Recorder::new(Vec::new(), UNIX_EPOCH, Some(MS)).unwrap();
        let samples = (0..1000).map(|turn| sample(turn * MS, 5_000 + turn));
        let late = [(1000, 2500 * MS), (3500, 7_000), (3502, 7_000)];
        for sample in samples.chain(late.map(|(ms, value_ns)| sample(ms * MS, value_ns))) {
            recorder.sample(&sample).unwrap();
        }
        recorder.finish(0).unwrap()
    }

    #[test]
    fn the_worst_of_each_second_is_read_of_any_part_of_a_log() {
        let (_, log) = log();
        let log = String::from_utf8(log).unwrap();
        let cs: Vec<u64> = worst_by_second(&log).iter().map(|ns| ns / 10_000_000).collect();
        // The stall's instants, which are due in the second, third and fourth.
        assert_eq!(cs, [0, 250, 150, 50]);
        // A part that begins in a line, or ends in one.
        let line = log.find("\n0.000,").unwrap();
        assert_eq!(worst_by_second(&log[line + 3..]).len(), 3);
        let last = log.rfind("\n3.000,").unwrap();
        assert_eq!(worst_by_second(&log[..last + 20]).len(), 3);
        assert!(worst_by_second("").is_empty());
        assert!(worst_by_second("Tag=irq,0.000,1.000,7.000,x\n1,1.000,7.000,x\n").is_empty());
    }

    #[test]
    fn other_times_of_the_samples_have_their_tags() {
        let mut recorder = Recorder::new(Vec::new(), UNIX_EPOCH, Some(1000)).unwrap();
        let (mut times, mut turn) = (Times::default(), 0);
        while turn < 3_000_000 {
            let (handler_ns, thread_ns) = (Some(turn % 97), Some(turn % 97 + 100));
            let sample = Sample { handler_ns, thread_ns, ..sample(turn * 1000, 2_500) };
            times.add(&sample);
            recorder.sample(&sample).unwrap();
            turn += 30_000;
        }
        let (latencies, log) = recorder.finish(0).unwrap();
        let mut seconds = [0; 2];
        let mut all = read(log.as_slice(), |one| {
            seconds[0] += u64::from(one.tag.is_none());
            seconds[1] += u64::from(one.tag == Some("from-thread"));
        })
        .unwrap();
        assert_eq!(seconds, [3, 3]);
        assert_eq!(all.remove(&None), Some(latencies));
        assert_eq!(Times::tagged(|tag| all.remove(&Some(tag.to_owned())).unwrap()), times);
    }

    #[test]
    fn an_instant_that_no_clock_has_is_counted_and_does_not_overflow() {
        let times = [(0, u64::MAX), (u64::MAX, u64::MAX), (1 << 63, 5)];
        for period_ns in [1, 1_000_000, u64::MAX] {
            let (mut latencies, mut all) = (Latencies::default(), Instants::new(Some(period_ns)));
            for (due_ns, value_ns) in times {
                all.sample(&mut latencies, due_ns, value_ns);
            }
            assert_eq!(latencies.samples(), 3, "{period_ns}");
        }
        let mut recorder = Recorder::new(Vec::new(), UNIX_EPOCH, Some(u64::MAX)).unwrap();
        for (due_ns, value_ns) in times {
            recorder.sample(&sample(due_ns, value_ns)).unwrap();
        }
        assert_eq!(recorder.finish(0).unwrap().0.samples(), 3);
    }

    #[test]
    fn each_instant_is_in_its_own_second_also_where_it_was_missed() {
        let (latencies, log) = log();
        assert_eq!((latencies.samples(), latencies.missed(), latencies.lost()), (1003, 2499, 1));
        let mut seconds = Vec::new();
        let read = read(log.as_slice(), |one| {
            let max_ns = one.latencies.max_ns().unwrap();
            seconds.push((one.second, one.latencies.instants(), max_ns / 1_000_000));
        });
        assert_eq!(read.unwrap()[&None], latencies, "exact figures come back");
        assert_eq!(
            seconds,
            [(0.0, 1000, 0), (1.0, 1000, 2501), (2.0, 1000, 1500), (3.0, 502, 500)],
            "buckets round up"
        );
    }

    #[test]
    fn a_log_that_a_kill_has_cut_has_the_seconds_that_were_written() {
        let (latencies, log) = log();
        for cut in 0..log.len() {
            let read = read(&log[..cut], |_| ()).unwrap_or_else(|error| panic!("{cut}: {error}"));
            let instants = read.get(&None).map_or(0, Latencies::instants);
            assert!([0, 1000, 2000, 3000, latencies.instants()].contains(&instants), "{instants}");
        }
        let without = String::from_utf8(log).unwrap();
        let without: Vec<&str> = without.lines().filter(|line| !line.contains("asmp")).collect();
        let read = read((without.join("\n") + "\n").as_bytes(), |_| ()).unwrap();
        let rough = read[&None].max_ns().unwrap();
        assert!(rough.abs_diff(2_500_000_000) <= 2_500_000, "{rough}");
    }

    #[test]
    fn what_is_no_log_is_refused_and_takes_no_memory() {
        let (_, log) = log();
        let text = String::from_utf8(log).unwrap();
        let refused = |text: &str| match read(text.as_bytes(), |_| ()) {
            Err(error) => error.to_string(),
            Ok(read) => panic!("{read:?}"),
        };
        assert!(refused("hello\n").starts_with("line 1: expected a log of HdrHistogram"));
        assert!(refused("0.000,1.000,5.000,AAAA\n").contains("cut short"));
        assert!(refused("0.000,1.000,5.000,!!!\n").contains("line 1"));
        assert!(refused("#[asmp {}]\n").contains("missing field"));
        let other = text.replacen("\"count\":1003", "\"count\":1004", 1);
        assert!(refused(&other).contains("contradict"), "{other}");
        // A histogram that claims four thousand million bytes of counts.
        let mut plain = [0x1c84_9313u32.to_be_bytes(), u32::MAX.to_be_bytes()].concat();
        plain.extend([0u32.to_be_bytes(), 3u32.to_be_bytes()].concat());
        plain.extend([1u64.to_be_bytes(), 2u64.to_be_bytes(), 1f64.to_be_bytes()].concat());
        let level = flate2::Compression::fast();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(&plain).unwrap();
        let body = [[0x1c, 0x84, 0x93, 0x14, 0, 0, 0, 99].to_vec(), zlib.finish().unwrap()];
        let line = format!("0.000,1.000,5.000,{}\n", BASE64.encode(body.concat()));
        assert!(refused(&line).contains("cut short"));
    }

    #[test]
    fn a_log_with_a_wrong_byte_is_read_or_refused() {
        let (_, log) = log();
        for seed in 0..3000usize {
            let mut wrong = log.clone();
            let at = seed * 7919 % log.len();
            wrong[at] = wrong[at].wrapping_add((seed % 255 + 1) as u8);
            if let Ok(read) = read(wrong.as_slice(), |_| ()) {
                read.values().for_each(|one| _ = (one.quantile(2), one.above(7), one.min_ns()));
            }
        }
    }

    #[test]
    fn a_log_of_many_seconds_is_read_in_little_memory() {
        let mut recorder = Recorder::new(Vec::new(), UNIX_EPOCH, Some(100_000_000)).unwrap();
        for turn in 0..100_000u64 {
            recorder.sample(&sample(turn * 100_000_000, turn * 7919 % 1_000_000)).unwrap();
        }
        let (latencies, log) = recorder.finish(0).unwrap();
        let mut seconds = 0;
        let read = read(log.as_slice(), |_| seconds += 1).unwrap();
        assert_eq!((seconds, &read[&None]), (10_000, &latencies));
        assert!(read[&None].bytes() < 1 << 20);
    }
}
