// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The collector: empties the probe's ring, adds to each sample what the kernel recorded, and
//! writes it to the run directory. It runs on a system CPU and may be late: the ring holds a second
//! of samples of the fastest probe.

use crate::explain::{Correlator, Outlier, Window};
use crate::hlog::Recorder;
use crate::probe::{Ended, Probe, Raw};
use crate::sample::{Sample, Writer};
use crate::timerlat::{Period, Periods};
use asmp_host::tracefs::EventStream;
use std::fs::File;
use std::io::{self, BufWriter};
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

/// What a run keeps: each sample in `samples.bin`, and of latencies also `hist.hlog`, in which
/// instants count.
pub struct Sink {
    samples: Writer,
    /// `None` of turns of a loop, whose base time is known only later, and once a write has failed.
    log: Option<Log>,
}

struct Log {
    path: PathBuf,
    recorder: Recorder<BufWriter<File>>,
}

impl Sink {
    /// Both files, which must not exist. `period_ns`: `None` where instants are at random.
    pub fn of_latency(dir: &Path, period_ns: Option<u64>) -> io::Result<Self> {
        let path = dir.join("hist.hlog");
        let out = BufWriter::new(File::create_new(&path)?);
        let recorder = Recorder::new(out, SystemTime::now(), period_ns)?;
        Ok(Self { log: Some(Log { path, recorder }), ..Self::of_turns(dir)? })
    }

    pub fn of_turns(dir: &Path) -> io::Result<Self> {
        Ok(Self { samples: Writer::create(&dir.join("samples.bin"))?, log: None })
    }

    fn push(&mut self, sample: Sample) -> io::Result<()> {
        if let Some(log) = &mut self.log
            && let Err(error) = log.recorder.sample(&sample)
        {
            // It would be read in place of the samples, and lack some.
            let _ = std::fs::remove_file(&log.path);
            self.log = None;
            return Err(error);
        }
        self.samples.push(sample)
    }

    /// How many samples were kept, and what kept the others out. `lost` found no room before.
    fn finish(self, lost: u64) -> io::Result<(u64, Option<io::Error>)> {
        let Self { samples, log } = self;
        let log = log.map(|Log { path, recorder }| (path, recorder.finish(lost).is_ok()));
        let finished = samples.finish();
        let all_kept = matches!(finished, Ok((_, None)));
        if let Some((path, _)) = log.filter(|(_, is_whole)| !is_whole || !all_kept) {
            let _ = std::fs::remove_file(path);
        }
        finished
    }
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
        if let Err(reason) = goes_on(sink.samples.written) {
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
    use crate::{hlog, sample};
    use std::io::BufReader;

    const MS: u64 = 1_000_000;

    fn one(ms: u64, value_ns: u64) -> Sample {
        Sample { due_ns: ms * MS, value_ns, handler_ns: Some(3), ..Sample::default() }
    }

    #[test]
    fn a_sink_keeps_each_sample_and_counts_all_instants() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS)).unwrap();
        let samples = [one(1, 10_000), one(2, 40 * MS), one(42, 12_000)];
        samples.into_iter().for_each(|sample| sink.push(sample).unwrap());
        assert!(matches!(sink.finish(2), Ok((3, None))));
        assert_eq!(sample::read(&dir.path().join("samples.bin"), 3).unwrap(), samples);
        let log = BufReader::new(File::open(dir.path().join("hist.hlog")).unwrap());
        let all = hlog::read(log, |_| ()).unwrap();
        let instants = &all[&None];
        assert_eq!((instants.instants(), instants.missed(), instants.lost()), (42, 39, 2));
        assert_eq!(all[&Some("irq".to_owned())].instants(), 3);
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
        let mut sink = Sink::of_latency(dir.path(), Some(MS)).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let out = BufWriter::new(full);
        let recorder = Recorder::new(out, SystemTime::now(), Some(MS)).unwrap();
        sink.log = Some(Log { path: path.clone(), recorder });
        sink.push(one(1, 1)).unwrap();
        assert!(path.exists());
        assert!(matches!(sink.finish(0), Ok((1, None))));
        assert!(!path.exists(), "the samples are read in its place");
    }
}
