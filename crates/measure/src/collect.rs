//! The collector: empties the probe's ring, joins the samples with what the kernel recorded, and writes them
//! down. It runs on a system CPU and may be late: the ring holds a second of the fastest probe.

use crate::explain::{Joiner, Outlier, Window};
use crate::probe::{Ended, Probe, Raw};
use crate::sample::Writer;
use crate::timerlat::{Period, Periods};
use asmp_host::record::Recorder;
use std::io;
use std::time::Duration;

/// How often the ring is emptied.
const TURN: Duration = Duration::from_millis(50);

/// What a run came to.
#[derive(Debug)]
pub struct Collected {
    pub ended: Ended,
    pub samples: u64,
    pub lost_records: u64,
    pub worst: Vec<Outlier>,
    /// Why it ended before its last sample.
    pub partial: Option<String>,
}

/// Who is measured.
pub enum Subject {
    Probe(Probe),
    /// The kernel's own thread of timerlat: it runs as long as its tracer does.
    KernelThread {
        tid: i32,
    },
}

/// Where the times come from.
pub enum From<'a> {
    /// The probe's ring; records, where they are to be had, give counts and causes.
    Ring(Option<Recorder<'a>>),
    /// The kernel's timerlat tracer.
    Timerlat { recorder: Recorder<'a>, events: Option<Recorder<'a>>, periods: Box<Periods> },
}

/// Collects until the subject has given all its samples. `goes_on` is asked every 50 ms with the number of
/// samples so far; what it answers ends the run early, with that as the reason. Errors: only what made the
/// probe itself fail.
pub fn collect(
    mut subject: Subject,
    mut from: From,
    window: Window,
    mut writer: Writer,
    mut goes_on: impl FnMut(u64) -> Result<(), String>,
) -> io::Result<Collected> {
    let recorded = matches!(&from, From::Ring(Some(_)) | From::Timerlat { events: Some(_), .. });
    let mut joiner = Joiner::new(subject.tid(), window, recorded);
    let mut partial: Option<String> = None;
    if let Subject::Probe(probe) = &subject {
        probe.start();
    }
    loop {
        // What was there when it ended is still to be taken.
        let done = match (&subject, &from) {
            (Subject::Probe(probe), _) => probe.is_done(),
            (_, From::Timerlat { periods, .. }) => periods.has_all() || partial.is_some(),
            (_, From::Ring(_)) => true,
        };
        if let Err(error) = take(&mut from, &mut subject, &mut joiner, &mut writer) {
            partial.get_or_insert_with(|| error.to_string());
        }
        if done {
            break;
        }
        if let Err(reason) = goes_on(writer.written) {
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
    let mut lost_records = joiner.lost_records;
    if let From::Timerlat { periods, .. } = &from {
        lost_records += periods.lost_records;
        ended = Ended { lost: periods.lost(), overruns: periods.overruns() };
    }
    let (samples, kept_out) = writer.finish()?;
    if let Some(error) = kept_out {
        partial.get_or_insert_with(|| error.to_string());
    }
    Ok(Collected { ended, samples, lost_records, worst: joiner.into_worst(), partial })
}

impl Subject {
    pub const fn tid(&self) -> i32 {
        match self {
            Self::Probe(probe) => probe.tid,
            Self::KernelThread { tid } => *tid,
        }
    }
}

fn take(from: &mut From, subject: &mut Subject, joiner: &mut Joiner, writer: &mut Writer) -> io::Result<()> {
    match from {
        From::Ring(recorder) => {
            // Samples first: whatever the kernel recorded before their ends is then to be had.
            let raws: Vec<Raw> = match subject {
                Subject::Probe(probe) => std::iter::from_fn(|| probe.ring.pop().ok()).collect(),
                Subject::KernelThread { .. } => Vec::new(),
            };
            if let Some(recorder) = recorder {
                joiner.records(recorder.take().map_err(io::Error::other)?);
            }
            raws.into_iter().try_for_each(|raw| writer.push(joiner.sample(raw)))
        }
        From::Timerlat { recorder, events, periods } => {
            let lines = recorder.take().map_err(io::Error::other)?;
            let told: Vec<Period> = lines.into_iter().filter_map(|line| periods.line(line)).collect();
            if let Some(events) = events {
                joiner.records(events.take().map_err(io::Error::other)?);
            }
            told.into_iter().try_for_each(|period| {
                writer.push(joiner.timerlat(period.raw, period.irq_ns, period.thread_ns))
            })
        }
    }
}
