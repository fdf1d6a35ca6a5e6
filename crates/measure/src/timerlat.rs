// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Periods of the kernel's timerlat tracer, assembled from the lines it prints. Pure.
//!
//! Each period in which its thread was waiting has a number and two or three lines: when the
//! handler of the interrupt ran (`irq`), when the thread ran in the kernel (`thread`), and, of a
//! thread of user space, when it had been there and asked for the next period (`user-ret`: it holds
//! one entry into the kernel as well).

use crate::probe::Raw;
use asmp_host::tracefs::timerlat::Handler;
use asmp_host::tracefs::{Event, EventKind};

/// One period whose lines all came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// From the period's instant to when its handler ran, in the kernel or in user space.
    pub raw: Raw,
    pub irq_ns: u64,
    pub thread_ns: u64,
}

/// Assembles periods from lines, and counts what is missing.
pub struct Periods {
    handler: Handler,
    period_ns: u64,
    /// Periods still to be thrown away.
    warm_up: u64,
    /// Periods still to be kept.
    wanted: u64,
    /// An instant that was missed counts as one of those.
    counts_missed: bool,
    open: Open,
    /// Number and instant of the first and of the last period kept.
    kept: Option<[(u64, u64); 2]>,
    count: u64,
    /// Lines that the kernel had no room for.
    pub lost_records: u64,
}

/// A period that still lacks a line.
#[derive(Default, Clone, Copy)]
struct Open {
    sequence: u64,
    /// A line is written a little after its time was taken, so the earliest claim is the best one.
    due_ns: Option<u64>,
    irq_ns: Option<u64>,
    thread_ns: Option<u64>,
}

impl Periods {
    pub const fn new(handler: Handler, period_ns: u64, warm_up: u64, wanted: u64) -> Self {
        let open = Open { sequence: 0, due_ns: None, irq_ns: None, thread_ns: None };
        let (kept, count, lost_records, counts_missed) = (None, 0, 0, false);
        Self { handler, period_ns, warm_up, wanted, counts_missed, open, kept, count, lost_records }
    }

    /// What is wanted are instants, those that were missed among them.
    pub const fn counting_missed(self, counts_missed: bool) -> Self {
        Self { counts_missed, ..self }
    }

    /// Takes a line; answers with the period that it completes.
    pub fn line(&mut self, event: Event) -> Option<Period> {
        let (sequence, context, latency_ns) = match event.kind {
            EventKind::Timerlat { sequence, context, latency_ns } => {
                (sequence, context, latency_ns)
            }
            EventKind::Lost(count) => {
                self.lost_records += count;
                return None;
            }
            EventKind::Unreadable => {
                self.lost_records += 1;
                return None;
            }
            _ => return None,
        };
        if sequence != self.open.sequence {
            self.open = Open { sequence, ..Open::default() };
        }
        let claim_ns = event.at_ns.saturating_sub(latency_ns);
        let due_ns = self.open.due_ns.map_or(claim_ns, |due_ns| due_ns.min(claim_ns));
        self.open.due_ns = Some(due_ns);
        let last = match (context.as_str(), self.handler) {
            ("irq", _) => {
                self.open.irq_ns = Some(latency_ns);
                false
            }
            ("thread", handler) => {
                self.open.thread_ns = Some(latency_ns);
                handler == Handler::Kernel
            }
            (word, handler) => word == "user-ret" && handler == Handler::User,
        };
        if !last {
            return None;
        }
        let (irq_ns, thread_ns) = (self.open.irq_ns?, self.open.thread_ns?);
        self.keep(sequence, due_ns).then_some(Period {
            raw: Raw { due_ns, end_ns: due_ns + latency_ns },
            irq_ns,
            thread_ns,
        })
    }

    fn keep(&mut self, sequence: u64, due_ns: u64) -> bool {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return false;
        }
        if self.has_all() {
            return false;
        }
        let first = self.kept.map_or((sequence, due_ns), |[first, _]| first);
        self.kept = Some([first, (sequence, due_ns)]);
        self.count += 1;
        true
    }

    pub fn has_all(&self) -> bool {
        let passed = if self.counts_missed { self.lost() + self.overruns() } else { 0 };
        self.count + passed >= self.wanted
    }

    /// Periods between the first and the last kept that have a number and lack a line.
    pub fn lost(&self) -> u64 {
        let Some([first, last]) = self.kept else { return 0 };
        (last.0 - first.0 + 1).saturating_sub(self.count)
    }

    /// Instants between the first and the last kept that had passed before the thread waited for
    /// them: the kernel leaves these out, and gives them no number.
    pub fn overruns(&self) -> u64 {
        let Some([first, last]) = self.kept else { return 0 };
        let period_ns = self.period_ns.max(1);
        let instants = (last.1.saturating_sub(first.1) + period_ns / 2) / period_ns;
        instants.saturating_sub(last.0 - first.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::tracefs;

    fn line(at_us: u64, sequence: u64, context: &str, latency_ns: u64) -> Event {
        let kind = EventKind::Timerlat { sequence, context: context.to_owned(), latency_ns };
        Event { at_ns: at_us * 1000, cpu: 3, kind }
    }

    /// Two periods of 2 ms, from 100 s on.
    fn user() -> Vec<Event> {
        vec![
            line(100_000_061, 1, "irq", 60_512),
            line(100_000_098, 1, "thread", 97_808),
            line(100_000_135, 1, "user-ret", 133_200),
            line(100_002_059, 2, "irq", 58_976),
            line(100_002_093, 2, "thread", 92_400),
            line(100_002_129, 2, "user-ret", 127_888),
        ]
    }

    #[test]
    fn three_lines_of_one_number_are_a_period_of_a_user_thread() {
        let mut periods = Periods::new(Handler::User, 2_000_000, 0, 10);
        let complete: Vec<Period> =
            user().into_iter().filter_map(|record| periods.line(record)).collect();
        let times = complete.iter().map(|period| {
            (
                period.irq_ns,
                period.thread_ns,
                period.raw.end_ns - period.raw.due_ns,
                period.raw.due_ns / 1000,
            )
        });
        assert_eq!(
            times.collect::<Vec<_>>(),
            [(60_512, 97_808, 133_200, 100_000_000), (58_976, 92_400, 127_888, 100_002_000)]
        );
        assert_eq!((periods.lost(), periods.overruns(), periods.has_all()), (0, 0, false));
    }

    #[test]
    fn a_kernel_thread_handles_the_event_in_the_kernel() {
        let mut periods = Periods::new(Handler::Kernel, 2_000_000, 1, 1);
        let complete: Vec<Period> =
            user().into_iter().filter_map(|record| periods.line(record)).collect();
        let [only] = complete.as_slice() else { panic!("the first is the warm-up: {complete:?}") };
        assert_eq!((only.irq_ns, only.thread_ns), (58_976, 92_400));
        assert_eq!(only.raw.end_ns - only.raw.due_ns, 92_400);
        assert!(periods.has_all());
        for context in ["irq", "thread"] {
            assert_eq!(
                periods.line(line(100_004_093, 3, context, 1)),
                None,
                "no more than was asked for"
            );
        }
    }

    #[test]
    fn a_period_of_which_a_line_is_missing_is_lost_and_counted() {
        let third = [("irq", 61_000), ("thread", 99_000), ("user-ret", 130_000)];
        let third = third.map(|(context, latency_ns)| line(100_004_140, 3, context, latency_ns));
        for gone in 3..6 {
            let mut lines = [user(), third.to_vec()].concat();
            lines.remove(gone);
            let mut periods = Periods::new(Handler::User, 2_000_000, 0, 10);
            let complete = lines.into_iter().filter_map(|record| periods.line(record)).count();
            assert_eq!(
                (complete, periods.lost(), periods.overruns()),
                (2, 1, 0),
                "without line {gone}"
            );
        }
    }

    #[test]
    fn instants_that_the_kernel_left_out_are_overruns() {
        let mut lines = user();
        // The second period came three instants later, one of its lines written a millisecond late.
        for record in &mut lines[3..] {
            record.at_ns += 6_000_000;
        }
        lines[4].at_ns += 1_000_000;
        let of = |wanted: u64, counts_missed: bool| {
            let periods = Periods::new(Handler::User, 2_000_000, 0, wanted);
            let mut periods = periods.counting_missed(counts_missed);
            let complete = lines.iter().filter_map(|record| periods.line(record.clone())).count();
            assert_eq!((complete, periods.lost(), periods.overruns()), (2, 0, 3));
            periods.has_all()
        };
        // A time of five instants is over then; five samples are not there.
        assert_eq!(
            [of(5, true), of(6, true), of(5, false), of(2, false)],
            [true, false, false, true]
        );
    }

    #[test]
    fn what_the_kernel_had_no_room_for_is_counted() {
        let mut periods = Periods::new(Handler::User, 1, 0, 1);
        assert_eq!(periods.line(Event { at_ns: 0, cpu: 3, kind: EventKind::Lost(12) }), None);
        assert_eq!((periods.lost_records, periods.lost(), periods.overruns()), (12, 0, 0));
    }

    /// Lines of a guest (7.2.13 PREEMPT_RT, period 2003 us) as its kernel printed them.
    fn recorded(text: &str, handler: Handler) -> (Vec<Period>, Periods) {
        let mut periods = Periods::new(handler, 2_003_000, 0, 100);
        let lines: Vec<Event> = tracefs::parse(text);
        assert_eq!(lines.len(), text.lines().count(), "every line is understood");
        (lines.into_iter().filter_map(|line| periods.line(line)).collect(), periods)
    }

    #[test]
    fn a_recorded_trace_of_a_user_thread_is_put_together() {
        let (complete, periods) =
            recorded(include_str!("../tests/data/timerlat-user.txt"), Handler::User);
        // The first line's period began before, the last one's is not over.
        assert_eq!((complete.len(), periods.lost(), periods.overruns()), (11, 0, 0));
        assert!(complete.iter().all(|one| {
            let user_ns = one.raw.end_ns - one.raw.due_ns;
            one.irq_ns < one.thread_ns && one.thread_ns < user_ns
        }));
        let first = complete[0];
        assert_eq!(
            (first.irq_ns, first.thread_ns, first.raw.end_ns - first.raw.due_ns),
            (94_935, 155_609, 203_060)
        );
        assert_grid(&complete);
    }

    #[test]
    fn a_recorded_trace_of_a_kernel_thread_is_put_together() {
        let (complete, periods) =
            recorded(include_str!("../tests/data/timerlat-kernel.txt"), Handler::Kernel);
        assert_eq!((complete.len(), periods.lost(), periods.overruns()), (12, 0, 0));
        assert!(complete.iter().all(|one| one.irq_ns < one.thread_ns));
        assert!(complete.iter().all(|one| one.raw.end_ns - one.raw.due_ns == one.thread_ns));
        assert_grid(&complete);
    }

    /// Instants are a period apart, as closely as a trace tells microseconds and a guest writes its
    /// lines.
    fn assert_grid(complete: &[Period]) {
        for pair in complete.windows(2) {
            let apart_ns = pair[1].raw.due_ns - pair[0].raw.due_ns;
            assert!(apart_ns.abs_diff(2_003_000) < 10_000, "{apart_ns}");
        }
    }
}
