// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The collector: empties the probe's ring, adds to each sample what the kernel recorded, and
//! writes it to the run directory. It runs on a system CPU and may be late: the ring holds a second
//! of samples of the fastest probe.

use crate::explain::{Correlator, Outlier, Window};
use crate::histogram::Latencies;
use crate::hlog::{self, HlogError, Recorder};
use crate::probe::{Ended, Probe, Raw};
use crate::run;
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
///
/// What it keeps are the first samples that came, none between them left out.
pub struct Sink {
    samples: Option<Writer>,
    /// `None` of turns of a loop, and once a write has failed.
    log: Option<Log>,
    log_path: PathBuf,
    /// What samples make of a full disk's room, for the run's provenance.
    room_bytes: u64,
    /// Samples that came and found no error.
    taken: u64,
    /// One found an error: those after it are not kept.
    is_closed: bool,
}

type Log = Recorder<BufWriter<File>>;

impl Sink {
    /// Its files must not exist. Room for the run's provenance is kept beside them. `period_ns`:
    /// `None` where instants are at random.
    pub fn of_latency(dir: &Path, period_ns: Option<u64>, samples_too: bool) -> io::Result<Self> {
        let room_bytes = if run::reserve(dir)? { 0 } else { run::ROOM_BYTES };
        let log_path = dir.join("hist.hlog");
        let out = BufWriter::new(File::create_new(&log_path)?);
        let log = Some(Recorder::new(out, SystemTime::now(), period_ns)?);
        let samples = samples_too.then(|| Writer::create(&dir.join("samples.bin"))).transpose()?;
        Ok(Self { samples, log, log_path, room_bytes, taken: 0, is_closed: false })
    }

    /// The provenance is written twice: the second time there is the room that samples made.
    pub fn of_turns(dir: &Path) -> io::Result<Self> {
        run::reserve(dir)?;
        let samples = Some(Writer::create(&dir.join("samples.bin"))?);
        let (log_path, room_bytes) = (dir.join("hist.hlog"), run::ROOM_BYTES);
        Ok(Self { samples, log: None, log_path, room_bytes, taken: 0, is_closed: false })
    }

    /// An error is told once.
    fn push(&mut self, sample: Sample) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let mut logged = Ok(());
        if let Some(log) = &mut self.log
            && let Err(error) = log.sample(&sample)
        {
            self.log = None;
            if self.samples.is_none() {
                self.is_closed = true;
                return Err(rounded(&error));
            }
            // It would be read in place of the samples, and lack some.
            let _ = std::fs::remove_file(&self.log_path);
            logged = Err(error);
        }
        if let Some(samples) = &mut self.samples
            && let Err(error) = samples.push(sample)
        {
            self.is_closed = true;
            return Err(error);
        }
        self.taken += 1;
        logged
    }

    /// How many samples are on disk, and what kept the others out. `lost` found no room before.
    fn finish(self, lost: u64) -> (u64, Option<io::Error>) {
        let Self { samples, log, log_path, room_bytes, taken, is_closed } = self;
        let log = log.map(|log| {
            let (_, out) = log.finish(lost).map_err(|error| rounded(&error))?;
            out.get_ref().sync_all()
        });
        let Some(samples) = samples else {
            return match log {
                Some(Ok(())) => (taken, None),
                // Where a push has failed, that was told then.
                log => logged(&log_path, log.and_then(Result::err)),
            };
        };
        let finished = samples.finish_with_room(room_bytes);
        let (kept, error) = finished.unwrap_or_else(|error| (0, Some(error)));
        if log.is_some_and(|log| log.is_err() || error.is_some() || is_closed) {
            let _ = std::fs::remove_file(log_path);
        }
        (kept, error)
    }
}

/// Samples of the seconds that a log has whole, and the error that cut it. One that cannot be read
/// back keeps none, and the run is described all the same.
fn logged(path: &Path, cut: Option<io::Error>) -> (u64, Option<io::Error>) {
    let read = File::open(path).map_err(HlogError::from);
    match read.and_then(|file| hlog::read(BufReader::new(file), |_| ())) {
        Ok(all) => (all.get(&None).map_or(0, Latencies::samples), cut),
        Err(error) => {
            let why = cut.map_or_else(String::new, |cut| format!("{cut}; "));
            let why = format!("{why}hist.hlog cannot be read back: {error}");
            (0, Some(io::Error::other(why)))
        }
    }
}

/// The last comments of a log, which have what buckets round, did not come to the disk.
fn rounded(error: &io::Error) -> io::Error {
    let words = "extremes, mean and deviation are those of buckets, 1/1024 wide";
    io::Error::new(error.kind(), format!("{error}; {words}"))
}

/// Collects until the subject has given all its samples. Every 50 ms it calls `goes_on` with the
/// number of samples so far; an `Err` ends the run early, with that reason. Errors: the probe
/// itself failed. The caller drops `from`: the kernel may take long to end a trace instance.
pub fn collect(
    mut subject: Subject,
    from: &mut Origin,
    window: Window,
    mut sink: Sink,
    mut goes_on: impl FnMut(u64) -> Result<(), String>,
) -> io::Result<Collected> {
    let recorded = matches!(from, Origin::Ring(Some(_)) | Origin::Timerlat { events: Some(_), .. });
    let mut correlator = Correlator::new(subject.tid(), window, recorded);
    let mut partial: Option<String> = None;
    if let Subject::Probe(probe) = &subject {
        probe.start();
    }
    loop {
        // Samples that came before it ended are still in the ring.
        let done = match (&subject, &*from) {
            (Subject::Probe(probe), _) => probe.is_done(),
            (_, Origin::Timerlat { periods, .. }) => periods.has_all() || partial.is_some(),
            (_, Origin::Ring(_)) => true,
        };
        if let Err(error) = take(from, &mut subject, &mut correlator, &mut sink) {
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
    if let Origin::Timerlat { periods, .. } = from {
        lost_records += periods.lost_records;
        ended = Ended { lost: periods.lost(), overruns: periods.overruns() };
    }
    let (samples, kept_out) = sink.finish(ended.lost);
    if let Some(error) = kept_out {
        partial.get_or_insert_with(|| error.to_string());
    }
    let mut worst = correlator.into_worst();
    // None that is in no figure of the run.
    worst.retain(|one| one.index < samples);
    Ok(Collected { ended, samples, lost_records, worst, partial })
}

impl Subject {
    pub const fn tid(&self) -> i32 {
        match self {
            Self::Probe(probe) => probe.tid,
            Self::KernelThread { tid } => *tid,
        }
    }
}

/// Empties what has come: each sample is seen and pushed, also after one that found no room. The
/// first error is told.
fn take(
    from: &mut Origin,
    subject: &mut Subject,
    correlator: &mut Correlator,
    sink: &mut Sink,
) -> io::Result<()> {
    let mut told = Ok(());
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
            for raw in raws {
                told = told.and(sink.push(correlator.sample(raw)));
            }
        }
        Origin::Timerlat { stream, events, periods } => {
            let lines = stream.take().map_err(io::Error::other)?;
            let complete: Vec<Period> =
                lines.into_iter().filter_map(|line| periods.line(line)).collect();
            if let Some(events) = events {
                correlator.records(events.take().map_err(io::Error::other)?);
            }
            for Period { raw, irq_ns, thread_ns } in complete {
                told = told.and(sink.push(correlator.timerlat(raw, irq_ns, thread_ns)));
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Work;
    use crate::sample;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
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
        assert!(matches!(sink.finish(2), (3, None)));
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
        assert!(matches!(sink.finish(2), (3, None)));
        let log = BufReader::new(File::open(alone.path().join("hist.hlog")).unwrap());
        assert_eq!(&hlog::read(log, |_| ()).unwrap()[&None], instants);
        assert!(!alone.path().join("samples.bin").exists());
        // Turns of a loop have no instants.
        let turns = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_turns(turns.path()).unwrap();
        sink.push(one(1, 1)).unwrap();
        assert!(matches!(sink.finish(0), (1, None)));
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
        assert!(matches!(sink.finish(0), (1, None)));
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
            assert_eq!(sink.taken, if at_once { 1 } else { 3 }, "what is not kept is not taken");
            let (kept, error) = sink.finish(0);
            assert_eq!((kept, error.is_some()), (3, !at_once));
            assert!(path.exists());
            if let Some(error) = error {
                assert!(error.to_string().ends_with("those of buckets, 1/1024 wide"), "{error}");
            }
        }
    }

    #[test]
    fn each_run_keeps_room_for_its_provenance() {
        for samples_too in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let sink = Sink::of_latency(dir.path(), Some(MS), samples_too).unwrap();
            let spare = dir.path().join("run.json.spare").metadata().unwrap();
            assert!(spare.blocks() * 512 >= run::ROOM_BYTES);
            assert_eq!(sink.room_bytes, 0, "samples need not make it");
        }
        let dir = tempfile::tempdir().unwrap();
        let sink = Sink::of_turns(dir.path()).unwrap();
        assert!(dir.path().join("run.json.spare").exists());
        assert_eq!(sink.room_bytes, run::ROOM_BYTES, "it is written twice");
    }

    #[test]
    fn a_log_that_cannot_be_read_back_fails_no_probe() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
        sink.log = Some(on_a_full_disk(false));
        std::fs::write(&sink.log_path, "garbage\n").unwrap();
        sink.push(one(1, 1)).unwrap();
        let (kept, error) = sink.finish(0);
        let error = error.unwrap().to_string();
        assert!(kept == 0 && error.contains("; hist.hlog cannot be read back: line 1"), "{error}");
    }

    #[test]
    fn a_log_that_is_not_on_disk_is_no_whole_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
        // It takes all, and cannot be synchronised.
        let (reader, writer) = io::pipe().unwrap();
        let out = BufWriter::new(File::from(OwnedFd::from(writer)));
        sink.log = Some(Recorder::new(out, SystemTime::now(), Some(MS)).unwrap());
        sink.push(one(1, 1)).unwrap();
        let (_, error) = sink.finish(0);
        assert_eq!(error.unwrap().kind(), io::ErrorKind::InvalidInput, "that of fsync");
        drop(reader);
    }

    #[test]
    fn samples_whose_log_fails_are_kept_without_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), true).unwrap();
        sink.log = Some(on_a_full_disk(true));
        let samples = [one(0, 1), one(60_000, 2), one(60_001, 3)];
        let failed = samples.into_iter().filter(|sample| sink.push(*sample).is_err()).count();
        assert_eq!((failed, sink.taken), (1, 3));
        assert!(matches!(sink.finish(0), (3, None)));
        assert_eq!(sample::read(&dir.path().join("samples.bin"), 3).unwrap(), samples);
    }

    #[test]
    fn after_the_first_sample_without_room_none_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_turns(dir.path()).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        sink.samples = Some(Writer::onto(File::from(OwnedFd::from(writer))).unwrap());
        drop(reader);
        let failed = (0..5000).filter(|turn| sink.push(one(*turn, 1)).is_err()).count();
        assert_eq!(failed, 1, "it is told once");
        assert!(sink.taken < 2000);
        let (kept, error) = sink.finish(0);
        assert!(kept == 0 && error.is_some());
    }

    #[test]
    fn a_worst_sample_that_was_not_kept_is_none_of_the_runs() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), None, false).unwrap();
        sink.log = Some(on_a_full_disk(false));
        let mut written = hlog::Writer::new(Vec::new(), UNIX_EPOCH).unwrap();
        written.second(0, None, &Latencies::of([1, 2, 3])).unwrap();
        std::fs::write(&sink.log_path, written.finish().unwrap()).unwrap();
        let probe = Probe::spawn(Work::Compute { rounds: 1 }, 50, 0, false).unwrap();
        let (subject, mut from) = (Subject::Probe(probe), Origin::Ring(None));
        let collected = collect(subject, &mut from, Window::Turn, sink, |_| Ok(())).unwrap();
        let mut worst: Vec<u64> = collected.worst.iter().map(|one| one.index).collect();
        worst.sort_unstable();
        assert_eq!((collected.samples, worst), (3, vec![0, 1, 2]));
        assert!(collected.partial.is_some());
    }
}
