// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The collector: empties the probe's ring, adds to each sample what the kernel recorded, and
//! writes it to the run directory. It runs on a system CPU and may be late: the ring holds a second
//! of samples of the fastest probe.

use crate::explain::{Correlator, Outlier, Window};
use crate::histogram::Latencies;
use crate::hlog::{self, Recorder};
use crate::probe::{Ended, Probe, Raw};
use crate::sample::{Sample, Writer};
use crate::timerlat::{Period, Periods};
use asmp_host::tracefs::EventStream;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often the ring is emptied.
const TURN: Duration = Duration::from_millis(50);

/// What a run gave.
#[derive(Debug)]
pub struct Collected {
    pub ended: Ended,
    pub samples: u64,
    pub lost_records: u64,
    pub worst: Vec<Outlier>,
    /// Why it ended before its last sample.
    pub partial: Option<String>,
}

/// The measured thread.
pub enum Subject {
    Probe(Probe),
    /// timerlat's kernel thread: it runs as long as its tracer does.
    KernelThread {
        tid: i32,
    },
}

/// Where the times come from.
pub enum Origin<'a> {
    /// The probe's ring; events, where they are recorded, give counts and causes.
    Ring(Option<EventStream<'a>>),
    /// The kernel's timerlat tracer.
    Timerlat { stream: EventStream<'a>, events: Option<EventStream<'a>>, periods: Box<Periods> },
}

/// What a run keeps: of latencies `hist.hlog`, in which instants count, and each sample in
/// `samples.bin` where that was asked for. Turns of a loop have only samples: their base time is
/// known later.
pub struct Sink {
    samples: Option<Writer>,
    /// `None` of turns of a loop, and once a write has failed.
    log: Option<Log>,
    log_path: PathBuf,
    /// Samples that came and found no error.
    taken: u64,
}

type Log = Recorder<BufWriter<File>>;

impl Sink {
    /// Its files must not exist. `period_ns`: `None` where instants are at random.
    pub fn of_latency(dir: &Path, period_ns: Option<u64>, samples_too: bool) -> io::Result<Self> {
        let log_path = dir.join("hist.hlog");
        let out = BufWriter::new(File::create_new(&log_path)?);
        let log = Some(Recorder::new(out, SystemTime::now(), period_ns)?);
        let samples = samples_too.then(|| Writer::create(&dir.join("samples.bin"))).transpose()?;
        Ok(Self { samples, log, log_path, taken: 0 })
    }

    pub fn of_turns(dir: &Path) -> io::Result<Self> {
        let samples = Some(Writer::create(&dir.join("samples.bin"))?);
        Ok(Self { samples, log: None, log_path: dir.join("hist.hlog"), taken: 0 })
    }

    fn push(&mut self, sample: Sample) -> io::Result<()> {
        if let Some(log) = &mut self.log
            && let Err(error) = log.sample(&sample)
        {
            self.log = None;
            if self.samples.is_some() {
                // It would be read in place of the samples, and lack some.
                let _ = std::fs::remove_file(&self.log_path);
            }
            return Err(error);
        }
        if let Some(samples) = &mut self.samples {
            samples.push(sample)?;
        }
        self.taken += 1;
        Ok(())
    }

    /// How many samples were kept, and what kept the others out. `lost` found no room before.
    fn finish(self, lost: u64) -> io::Result<(u64, Option<io::Error>)> {
        let Self { samples, log, log_path, taken } = self;
        let log = log.map(|log| log.finish(lost).map(drop));
        let Some(samples) = samples else {
            return match log {
                Some(Ok(())) => Ok((taken, None)),
                Some(Err(error)) => Ok((logged(&log_path)?, Some(error))),
                // Where a push has failed, that was told then.
                None => Ok((logged(&log_path)?, None)),
            };
        };
        let finished = samples.finish();
        let all_kept = matches!(finished, Ok((_, None)));
        if log.is_some_and(|log| log.is_err() || !all_kept) {
            let _ = std::fs::remove_file(log_path);
        }
        finished
    }
}

/// Samples of the seconds that a log has whole.
fn logged(path: &Path) -> io::Result<u64> {
    let all = hlog::read(BufReader::new(File::open(path)?), |_| ()).map_err(io::Error::other)?;
    Ok(all.get(&None).map_or(0, Latencies::samples))
}

/// Collects until the subject has given all its samples. Every 50 ms it calls `goes_on` with the
/// number of samples so far; an `Err` ends the run early, with that reason. Errors: the probe
/// itself failed.
pub fn collect(
    mut subject: Subject,
    mut from: Origin,
    window: Window,
    mut sink: Sink,
    mut goes_on: impl FnMut(u64) -> Result<(), String>,
) -> io::Result<Collected> {
    let recorded =
        matches!(&from, Origin::Ring(Some(_)) | Origin::Timerlat { events: Some(_), .. });
    let mut correlator = Correlator::new(subject.tid(), window, recorded);
    let mut partial: Option<String> = None;
    if let Subject::Probe(probe) = &subject {
        probe.start();
    }
    loop {
        // Samples that came before it ended are still in the ring.
        let done = match (&subject, &from) {
            (Subject::Probe(probe), _) => probe.is_done(),
            (_, Origin::Timerlat { periods, .. }) => periods.has_all() || partial.is_some(),
            (_, Origin::Ring(_)) => true,
        };
        if let Err(error) = take(&mut from, &mut subject, &mut correlator, &mut sink) {
            partial.get_or_insert_with(|| error.to_string());
        }
        if done {
            break;
        }
        if let Err(reason) = goes_on(sink.taken) {
            partial.get_or_insert(reason);
        }
        if let (Subject::Probe(probe), Some(_)) = (&subject, &partial) {
            probe.stop();
        }
        std::thread::sleep(TURN);
    }
    let mut ended = match subject {
        Subject::Probe(probe) => probe.join()?.1,
        Subject::KernelThread { .. } => Ended::default(),
    };
    let mut lost_records = correlator.lost_records;
    if let Origin::Timerlat { periods, .. } = &from {
        lost_records += periods.lost_records;
        ended = Ended { lost: periods.lost(), overruns: periods.overruns() };
    }
    let (samples, kept_out) = sink.finish(ended.lost)?;
    if let Some(error) = kept_out {
        partial.get_or_insert_with(|| error.to_string());
    }
    Ok(Collected { ended, samples, lost_records, worst: correlator.into_worst(), partial })
}

impl Subject {
    pub const fn tid(&self) -> i32 {
        match self {
            Self::Probe(probe) => probe.tid,
            Self::KernelThread { tid } => *tid,
        }
    }
}

fn take(
    from: &mut Origin,
    subject: &mut Subject,
    correlator: &mut Correlator,
    sink: &mut Sink,
) -> io::Result<()> {
    match from {
        Origin::Ring(events) => {
            // Samples first: everything the kernel recorded before their ends is read then.
            let raws: Vec<Raw> = match subject {
                Subject::Probe(probe) => std::iter::from_fn(|| probe.ring.pop().ok()).collect(),
                Subject::KernelThread { .. } => Vec::new(),
            };
            if let Some(events) = events {
                correlator.records(events.take().map_err(io::Error::other)?);
            }
            raws.into_iter().try_for_each(|raw| sink.push(correlator.sample(raw)))
        }
        Origin::Timerlat { stream, events, periods } => {
            let lines = stream.take().map_err(io::Error::other)?;
            let complete: Vec<Period> =
                lines.into_iter().filter_map(|line| periods.line(line)).collect();
            if let Some(events) = events {
                correlator.records(events.take().map_err(io::Error::other)?);
            }
            complete.into_iter().try_for_each(|period| {
                sink.push(correlator.timerlat(period.raw, period.irq_ns, period.thread_ns))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use std::os::fd::OwnedFd;
    use std::time::UNIX_EPOCH;

    const MS: u64 = 1_000_000;

    fn one(ms: u64, value_ns: u64) -> Sample {
        Sample { due_ns: ms * MS, value_ns, handler_ns: Some(3), ..Sample::default() }
    }

    #[test]
    fn a_sink_keeps_each_sample_and_counts_all_instants() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), true).unwrap();
        let samples = [one(1, 10_000), one(2, 40 * MS), one(42, 12_000)];
        samples.into_iter().for_each(|sample| sink.push(sample).unwrap());
        assert!(matches!(sink.finish(2), Ok((3, None))));
        assert_eq!(sample::read(&dir.path().join("samples.bin"), 3).unwrap(), samples);
        let log = BufReader::new(File::open(dir.path().join("hist.hlog")).unwrap());
        let all = hlog::read(log, |_| ()).unwrap();
        let instants = &all[&None];
        assert_eq!((instants.instants(), instants.missed(), instants.lost()), (42, 39, 2));
        assert_eq!(all[&Some("irq".to_owned())].instants(), 3);
        // The log alone has the same instants.
        let alone = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(alone.path(), Some(MS), false).unwrap();
        samples.into_iter().for_each(|sample| sink.push(sample).unwrap());
        assert_eq!(sink.taken, 3);
        assert!(matches!(sink.finish(2), Ok((3, None))));
        let log = BufReader::new(File::open(alone.path().join("hist.hlog")).unwrap());
        assert_eq!(&hlog::read(log, |_| ()).unwrap()[&None], instants);
        assert!(!alone.path().join("samples.bin").exists());
        // Turns of a loop have no instants.
        let turns = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_turns(turns.path()).unwrap();
        sink.push(one(1, 1)).unwrap();
        assert!(matches!(sink.finish(0), Ok((1, None))));
        assert!(!turns.path().join("hist.hlog").exists());
    }

    #[test]
    fn a_log_that_lacks_something_does_not_remain() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hist.hlog");
        let mut sink = Sink::of_latency(dir.path(), Some(MS), true).unwrap();
        sink.log = Some(on_a_full_disk(false));
        sink.push(one(1, 1)).unwrap();
        assert!(path.exists());
        assert!(matches!(sink.finish(0), Ok((1, None))));
        assert!(!path.exists(), "the samples are read in its place");
    }

    /// A log whose disk is full from now on; `at_once`: no buffer hides it.
    fn on_a_full_disk(at_once: bool) -> Log {
        let (reader, writer) = io::pipe().unwrap();
        let room = if at_once { 0 } else { 8192 };
        let out = BufWriter::with_capacity(room, File::from(OwnedFd::from(writer)));
        let log = Recorder::new(out, SystemTime::now(), Some(MS)).unwrap();
        drop(reader);
        log
    }

    #[test]
    fn of_a_log_without_samples_the_seconds_that_were_written_count() {
        for at_once in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hist.hlog");
            let mut sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
            // What the log before it holds back comes before the second below.
            sink.log = Some(on_a_full_disk(at_once));
            let mut written = hlog::Writer::new(Vec::new(), UNIX_EPOCH).unwrap();
            written.second(0, None, &Latencies::of([1, 2, 3])).unwrap();
            std::fs::write(&path, written.finish().unwrap()).unwrap();
            sink.push(one(0, 1)).unwrap();
            // In another second, which ends the first.
            assert_eq!(sink.push(one(60_000, 1)).is_err(), at_once);
            assert!(sink.push(one(60_001, 1)).is_ok(), "an error is told once");
            let (kept, error) = sink.finish(0).unwrap();
            assert_eq!((kept, error.is_some()), (3, !at_once));
            assert!(path.exists());
        }
    }
}
