//! The collector: empties the probe's ring, joins the samples with what the kernel recorded, and writes them
//! down. It runs on a system CPU and may be late: the ring holds a second of the fastest probe.

use crate::explain::{Joiner, Outlier, Window};
use crate::probe::{Ended, Probe, Raw};
use crate::sample::Writer;
use asmp_host::record::{Record, Recorder, Seen};
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

/// Where the times come from.
pub enum From<'a> {
    /// The probe's ring; records, where they are to be had, give counts and causes.
    Ring(Option<Recorder<'a>>),
    /// The kernel's timerlat tracer; the first so many are the warm-up.
    Timerlat { recorder: Recorder<'a>, events: Option<Recorder<'a>>, warm_up: u64 },
}

/// Collects until the probe has ended. `goes_on` is asked every 50 ms with the number of samples so far; what
/// it answers ends the run early, with that as the reason. Errors: only what made the probe itself fail.
pub fn collect(
    probe: Probe,
    mut from: From,
    window: Window,
    mut writer: Writer,
    mut goes_on: impl FnMut(u64) -> Result<(), String>,
) -> io::Result<Collected> {
    let recorded = matches!(&from, From::Ring(Some(_)) | From::Timerlat { events: Some(_), .. });
    let mut joiner = Joiner::new(probe.tid, window, recorded);
    let mut partial: Option<String> = None;
    let mut probe = probe;
    probe.start();
    let mut timerlat = Timerlat::default();
    loop {
        let done = probe.is_done();
        let outcome = take(&mut from, &mut probe.ring, &mut joiner, &mut timerlat, &mut writer);
        if let Err(error) = outcome {
            partial.get_or_insert_with(|| error.to_string());
            probe.stop();
        }
        if done {
            break;
        }
        if let Err(reason) = goes_on(writer.written) {
            partial.get_or_insert(reason);
            probe.stop();
        }
        std::thread::sleep(TURN);
    }
    let (_, ended) = probe.join()?;
    let lost_records = joiner.lost_records;
    let (samples, kept_out) = writer.finish()?;
    if let Some(error) = kept_out {
        partial.get_or_insert_with(|| error.to_string());
    }
    Ok(Collected { ended, samples, lost_records, worst: joiner.into_worst(), partial })
}

fn take(
    from: &mut From,
    ring: &mut rtrb::Consumer<Raw>,
    joiner: &mut Joiner,
    timerlat: &mut Timerlat,
    writer: &mut Writer,
) -> io::Result<()> {
    match from {
        From::Ring(recorder) => {
            // Samples first: whatever the kernel recorded before their ends is then to be had.
            let raws: Vec<Raw> = std::iter::from_fn(|| ring.pop().ok()).collect();
            if let Some(recorder) = recorder {
                joiner.records(recorder.take().map_err(io::Error::other)?);
            }
            raws.into_iter().try_for_each(|raw| writer.push(joiner.sample(raw)))
        }
        From::Timerlat { recorder, events, warm_up } => {
            let periods: Vec<Period> = recorder
                .take()
                .map_err(io::Error::other)?
                .into_iter()
                .filter_map(|r| timerlat.period(r))
                .collect();
            joiner.lost_records += std::mem::take(&mut timerlat.lost);
            if let Some(events) = events {
                joiner.records(events.take().map_err(io::Error::other)?);
            }
            for period in periods {
                if *warm_up > 0 {
                    *warm_up -= 1;
                    continue;
                }
                writer.push(joiner.timerlat(period.raw, period.irq_ns, period.thread_ns))?;
            }
            Ok(())
        }
    }
}

/// The three lines of one period put together.
#[derive(Default)]
struct Timerlat {
    sequence: u64,
    irq_ns: Option<u64>,
    thread_ns: Option<u64>,
    lost: u64,
}

/// One period as the tracer told it.
struct Period {
    raw: Raw,
    irq_ns: u64,
    thread_ns: u64,
}

impl Timerlat {
    fn period(&mut self, record: Record) -> Option<Period> {
        let (sequence, context, latency_ns) = match record.seen {
            Seen::Timerlat { sequence, context, latency_ns } => (sequence, context, latency_ns),
            Seen::Lost(count) => {
                self.lost += count;
                return None;
            }
            _ => return None,
        };
        if sequence != self.sequence {
            *self = Self { sequence, lost: self.lost, ..Self::default() };
        }
        match context.as_str() {
            "irq" => self.irq_ns = Some(latency_ns),
            "thread" => self.thread_ns = Some(latency_ns),
            "user-ret" => {
                let (irq_ns, thread_ns) = (self.irq_ns?, self.thread_ns?);
                let raw = Raw { due_ns: record.at_ns.saturating_sub(latency_ns), end_ns: record.at_ns };
                return Some(Period { raw, irq_ns, thread_ns });
            }
            _ => {}
        }
        None
    }
}
