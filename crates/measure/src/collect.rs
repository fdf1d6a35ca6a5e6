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
use crate::turn;
use asmp_host::clock::monotonic_ns;
use asmp_host::limited::open_regular;
use asmp_host::tracefs::EventStream;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What a run gave.
#[derive(Debug)]
pub struct Collected {
    pub ended: Ended,
    pub samples: u64,
    pub lost_records: u64,
    pub worst: Vec<Outlier>,
    /// Why it ended before its last sample.
    pub partial: Option<String>,
    /// When the first sample was due; `None` where there is none.
    pub started: Option<SystemTime>,
    /// From there to the end of the last sample.
    pub duration_ns: u64,
    /// Number of a probe that has no CPU to end on.
    pub stuck: Option<i32>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    pub samples: u64,
    /// Instants that were missed meanwhile.
    pub missed: u64,
    /// The last sample is there: this is the last look.
    pub is_over: bool,
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
    /// `None` of turns of a loop, before the first sample, and once a write has failed.
    log: Option<Log>,
    /// Of a log that has no sample yet, which its start waits for: where it goes, and the period.
    fresh: Option<(BufWriter<File>, Option<u64>)>,
    log_path: PathBuf,
    /// What samples make of a full disk's room, for the run's provenance.
    room_bytes: u64,
    /// Samples that came and found no error.
    taken: u64,
    /// One found an error: those after it are not kept.
    is_closed: bool,
    /// When the first that was taken was due, and when the last ended.
    span_ns: Option<[u64; 2]>,
}

type Log = Recorder<BufWriter<File>>;

impl Sink {
    /// Its files must not exist. Room for the run's provenance is kept beside them. `period_ns`:
    /// `None` where instants are at random.
    pub fn of_latency(dir: &Path, period_ns: Option<u64>, samples_too: bool) -> io::Result<Self> {
        let room_bytes = if run::reserve(dir)? { 0 } else { run::ROOM_BYTES };
        let log_path = dir.join("hist.hlog");
        let fresh = Some((BufWriter::new(File::create_new(&log_path)?), period_ns));
        let samples = samples_too.then(|| Writer::create(&dir.join("samples.bin"))).transpose()?;
        Ok(Self { fresh, room_bytes, ..Self::new(samples, log_path) })
    }

    /// The provenance is written twice: the second time there is the room that samples made.
    pub fn of_turns(dir: &Path) -> io::Result<Self> {
        run::reserve(dir)?;
        let samples = Some(Writer::create(&dir.join("samples.bin"))?);
        Ok(Self { room_bytes: run::ROOM_BYTES, ..Self::new(samples, dir.join("hist.hlog")) })
    }

    const fn new(samples: Option<Writer>, log_path: PathBuf) -> Self {
        let (log, fresh, span_ns) = (None, None, None);
        Self { samples, log, fresh, log_path, room_bytes: 0, taken: 0, is_closed: false, span_ns }
    }

    /// The log's start is that of its first sample.
    fn count(&mut self, sample: &Sample) -> io::Result<()> {
        if let Some((out, period_ns)) = self.fresh.take() {
            self.log = Some(Recorder::new(out, time_of(sample.due_ns), period_ns)?);
        }
        self.log.as_mut().map_or(Ok(()), |log| log.sample(sample))
    }

    /// An error is told once.
    fn push(&mut self, sample: Sample) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let mut logged = Ok(());
        if let Err(error) = self.count(&sample) {
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
        let end_ns = sample.due_ns.saturating_add(sample.value_ns);
        let first_ns = self.span_ns.map_or(sample.due_ns, |[first_ns, _]| first_ns);
        self.span_ns = Some([first_ns, end_ns]);
        logged
    }

    /// How many samples are on disk, and what kept the others out. `lost` found no room before.
    fn finish(self, lost: u64) -> (u64, Option<io::Error>) {
        let Self { samples, log, fresh, log_path, room_bytes, taken, is_closed, .. } = self;
        let whole = |log: Log| {
            let (_, out) = log.finish(lost).map_err(|error| rounded(&error))?;
            out.get_ref().sync_all()
        };
        let empty = |(out, period_ns)| whole(Recorder::new(out, SystemTime::now(), period_ns)?);
        let log = log.map(whole).or_else(|| fresh.map(empty));
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

/// An instant of CLOCK_MONOTONIC that has passed, by the clock on the wall.
fn time_of(instant_ns: u64) -> SystemTime {
    let ago = Duration::from_nanos(monotonic_ns().saturating_sub(instant_ns));
    let now = SystemTime::now();
    now.checked_sub(ago).unwrap_or(now)
}

/// Samples of the seconds that a log has whole, and the error that cut it. One that cannot be read
/// back keeps none, and the run is described all the same.
fn logged(path: &Path, cut: Option<io::Error>) -> (u64, Option<io::Error>) {
    let read = open_regular(path).map_err(HlogError::from);
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

/// Collects until the subject has given all its samples. Each time that it wakes and once at the
/// end it calls `goes_on`; an `Err` ends the run early, with that reason. A probe that does not end
/// then, as another task keeps its CPU, is left behind. Errors: the probe itself failed. The caller
/// drops `from`: the kernel may take long to end a trace instance.
pub fn collect(
    mut subject: Subject,
    from: &mut Origin,
    window: Window,
    mut sink: Sink,
    mut goes_on: impl FnMut(Reached) -> Result<(), String>,
) -> io::Result<Collected> {
    let recorded = matches!(from, Origin::Ring(Some(_)) | Origin::Timerlat { events: Some(_), .. });
    let mut correlator = Correlator::new(subject.tid(), window, recorded);
    let (mut partial, mut started): (Option<String>, Option<SystemTime>) = (None, None);
    let began = Instant::now();
    if let Subject::Probe(probe) = &subject {
        probe.start();
    }
    let is_stuck = loop {
        // Samples that came before it ended are still in the ring.
        let has_all = matches!(from, Origin::Timerlat { periods, .. } if periods.has_all());
        let is_done = match (&subject, &*from) {
            (Subject::Probe(probe), _) => probe.is_done(),
            (_, Origin::Timerlat { .. }) => has_all || partial.is_some(),
            (_, Origin::Ring(_)) => true,
        };
        let is_stuck = matches!(&subject, Subject::Probe(probe) if probe.is_stuck());
        let taken = sink.taken;
        if let Err(error) = take(from, &mut subject, &mut correlator, &mut sink) {
            partial.get_or_insert_with(|| error.to_string());
        }
        sink.samples.iter_mut().for_each(Writer::flush);
        started = started.or_else(|| sink.span_ns.map(|[first_ns, _]| time_of(first_ns)));
        let is_over = is_done || is_stuck;
        if let Err(reason) = goes_on(reached(&subject, from, &sink, is_over)) {
            partial.get_or_insert(reason);
        }
        if is_over {
            break is_stuck;
        }
        if let Subject::Probe(probe) = &subject
            && (has_all || partial.is_some())
        {
            probe.stop();
        }
        let is_ending = matches!(&subject, Subject::Probe(probe) if probe.is_ending());
        let pause = turn::pause(began.elapsed(), sink.taken - taken, recorded);
        // What counts on the machine is read at both ends. A probe that ends wakes this thread.
        let is_end = sink.taken == 0 || is_ending;
        std::thread::park_timeout(if is_end { turn::SHORTEST } else { pause });
    };
    let stuck = is_stuck.then(|| subject.tid());
    let mut ended = match subject {
        Subject::Probe(probe) if is_stuck => probe.abandon(),
        Subject::Probe(probe) => match probe.join() {
            Ok((_, ended)) => ended,
            // The tracer fails where its CPU has gone.
            Err(_) if partial.is_some() => Ended::default(),
            Err(error) => return Err(error),
        },
        Subject::KernelThread { .. } => Ended::default(),
    };
    if is_stuck {
        let why = partial.map_or_else(String::new, |why| format!("{why}; "));
        partial = Some(format!("{why}the probe had no CPU to end on: another task keeps it"));
    }
    let mut lost_records = correlator.lost_records();
    if let Origin::Timerlat { periods, .. } = from {
        lost_records += periods.lost_records;
        ended = Ended { lost: periods.lost(), overruns: periods.overruns() };
    }
    let duration_ns = sink.span_ns.map_or(0, |[first_ns, end_ns]| end_ns.saturating_sub(first_ns));
    let (samples, kept_out) = sink.finish(ended.lost);
    if let Some(error) = kept_out {
        partial.get_or_insert_with(|| error.to_string());
    }
    let mut worst = correlator.into_worst();
    // None that is in no figure of the run.
    worst.retain(|one| one.index < samples);
    Ok(Collected { ended, samples, lost_records, worst, partial, started, duration_ns, stuck })
}

fn reached(subject: &Subject, from: &Origin, sink: &Sink, is_over: bool) -> Reached {
    let missed = match (subject, from) {
        (Subject::Probe(probe), Origin::Ring(_)) => probe.missed(),
        (_, Origin::Timerlat { periods, .. }) => periods.overruns(),
        (Subject::KernelThread { .. }, Origin::Ring(_)) => 0,
    };
    Reached { samples: sink.taken, missed, is_over }
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
    use std::os::fd::{AsRawFd, OwnedFd};
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
        (sink.fresh, sink.log) = (None, Some(on_a_full_disk(false)));
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
        for second_ends in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hist.hlog");
            let mut sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
            // What the log before it holds back comes before the second below.
            (sink.fresh, sink.log) = (None, Some(on_a_full_disk(false)));
            let mut written = hlog::Writer::new(Vec::new(), UNIX_EPOCH).unwrap();
            written.second(0, None, &Latencies::of([1, 2, 3])).unwrap();
            std::fs::write(&path, written.finish().unwrap()).unwrap();
            sink.push(one(0, 1)).unwrap();
            // A second that has ended is written at once.
            let next = one(if second_ends { 60_000 } else { 1 }, 1);
            assert_eq!(sink.push(next).is_err(), second_ends);
            assert!(sink.push(next).is_ok(), "an error is told once");
            let taken = if second_ends { 1 } else { 3 };
            assert_eq!(sink.taken, taken, "what is not kept is not taken");
            let (kept, error) = sink.finish(0);
            assert_eq!((kept, error.is_some()), (3, !second_ends));
            assert!(path.exists());
            if let Some(error) = error {
                assert!(error.to_string().ends_with("those of buckets, 1/1024 wide"), "{error}");
            }
        }
    }

    #[test]
    fn each_second_that_has_ended_outlives_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
        (0..2_500).for_each(|ms| sink.push(one(ms, 10_000)).unwrap());
        let log = BufReader::new(File::open(dir.path().join("hist.hlog")).unwrap());
        assert_eq!(hlog::read(log, |_| ()).unwrap()[&None].instants(), 2_000);
    }

    /// Warm-up, and what is done before it, may take minutes.
    #[test]
    fn a_run_begins_when_its_first_sample_is_due_and_ends_with_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
        let (due_ns, now) = (monotonic_ns() - 3_000 * MS, SystemTime::now());
        let at = |ms: u64| Sample { due_ns: due_ns + ms * MS, value_ns: 7, ..Sample::default() };
        [at(0), at(1), at(40)].into_iter().for_each(|sample| sink.push(sample).unwrap());
        assert_eq!(sink.span_ns, Some([due_ns, due_ns + 40 * MS + 7]));
        assert!(matches!(sink.finish(0), (3, None)));
        let text = std::fs::read_to_string(dir.path().join("hist.hlog")).unwrap();
        let (_, rest) = text.split_once("#[StartTime: ").unwrap();
        let started_s: f64 = rest.split(' ').next().unwrap().parse().unwrap();
        let now_s = now.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now_s - started_s - 3.0).abs() < 1.0, "{started_s} of {now_s}");
        // One without a sample is a log all the same.
        let none = tempfile::tempdir().unwrap();
        let sink = Sink::of_latency(none.path(), Some(MS), false).unwrap();
        assert!(matches!(sink.finish(0), (0, None)));
        let text = std::fs::read_to_string(none.path().join("hist.hlog")).unwrap();
        assert!(text.starts_with("#[Histogram log format"), "{text}");
    }

    /// As one that waits for a task of FIFO 99: a pipe that stays empty keeps it.
    #[test]
    fn a_probe_that_does_not_end_is_left_behind_and_its_run_is_partial() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Sink::of_turns(dir.path()).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let waiter = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        let probe = Probe::spawn(Work::Timerlat { waiter }, 5, 0, false).unwrap();
        let (tid, mut from) = (probe.tid, Origin::Ring(None));
        let stopped = |reached: Reached| match reached.is_over {
            false => Err("interrupted".to_owned()),
            true => Ok(()),
        };
        let subject = Subject::Probe(probe);
        let collected = collect(subject, &mut from, Window::Turn, sink, stopped).unwrap();
        assert_eq!((collected.samples, collected.stuck), (0, Some(tid)));
        assert_eq!((collected.started, collected.duration_ns), (None, 0));
        let why = collected.partial.unwrap();
        assert!(why.starts_with("interrupted; the probe had no CPU to end on"), "{why}");
        drop(writer);
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

    /// What is counted of the machine begins and ends with these.
    #[test]
    fn a_run_is_looked_at_before_its_first_sample_and_after_its_last() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
        let work = Work::Periodic { period_ns: MS, counts_missed: false };
        let subject = Subject::Probe(Probe::spawn(work, 5, 100, false).unwrap());
        let (mut all, mut from) = (Vec::new(), Origin::Ring(None));
        let see = |reached: Reached| {
            all.push(reached);
            Ok(())
        };
        let collected = collect(subject, &mut from, Window::Wake, sink, see).unwrap();
        let [first, .., last] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((first.samples, first.is_over), (0, false), "of a warm-up there is nothing");
        assert_eq!((last.samples, last.is_over, last.missed), (5, true, collected.ended.overruns));
        assert_eq!(all.iter().filter(|reached| reached.is_over).count(), 1);
    }

    #[test]
    fn a_log_that_cannot_be_read_back_fails_no_probe() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), false).unwrap();
        (sink.fresh, sink.log) = (None, Some(on_a_full_disk(false)));
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
        let log = Recorder::new(out, SystemTime::now(), Some(MS)).unwrap();
        (sink.fresh, sink.log) = (None, Some(log));
        sink.push(one(1, 1)).unwrap();
        let (_, error) = sink.finish(0);
        assert_eq!(error.unwrap().kind(), io::ErrorKind::InvalidInput, "that of fsync");
        drop(reader);
    }

    #[test]
    fn samples_whose_log_fails_are_kept_without_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::of_latency(dir.path(), Some(MS), true).unwrap();
        (sink.fresh, sink.log) = (None, Some(on_a_full_disk(true)));
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
        (sink.fresh, sink.log) = (None, Some(on_a_full_disk(false)));
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
