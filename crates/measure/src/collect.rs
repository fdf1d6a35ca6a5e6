// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The collector: empties the probe's ring, adds to each sample what the kernel recorded, and
//! writes it to the run directory. It runs on a system CPU and may be late: the ring holds a second
//! of samples of the fastest probe.

use crate::explain::{Correlator, Outlier, Window};
use crate::probe::{Ended, Probe, Raw};
use crate::sample::Writer;
use crate::timerlat::{Period, Periods};
use asmp_host::tracefs::EventStream;
use std::io;
use std::time::Duration;

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

/// Collects until the subject has given all its samples. Every 50 ms it calls `goes_on` with the
/// number of samples so far; an `Err` ends the run early, with that reason. Errors: the probe
/// itself failed.
pub fn collect(
    mut subject: Subject,
    mut from: Origin,
    window: Window,
    mut writer: Writer,
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
        if let Err(error) = take(&mut from, &mut subject, &mut correlator, &mut writer) {
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
    let mut lost_records = correlator.lost_records;
    if let Origin::Timerlat { periods, .. } = &from {
        lost_records += periods.lost_records;
        ended = Ended { lost: periods.lost(), overruns: periods.overruns() };
    }
    let (samples, kept_out) = writer.finish()?;
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
    writer: &mut Writer,
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
            raws.into_iter().try_for_each(|raw| writer.push(correlator.sample(raw)))
        }
        Origin::Timerlat { stream, events, periods } => {
            let lines = stream.take().map_err(io::Error::other)?;
            let complete: Vec<Period> =
                lines.into_iter().filter_map(|line| periods.line(line)).collect();
            if let Some(events) = events {
                correlator.records(events.take().map_err(io::Error::other)?);
            }
            complete.into_iter().try_for_each(|period| {
                writer.push(correlator.timerlat(period.raw, period.irq_ns, period.thread_ns))
            })
        }
    }
}
