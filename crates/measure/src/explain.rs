//! From records of a CPU to samples with counts and causes: each window of the probe is laid beside what the
//! kernel did on that CPU within it. Pure.

use crate::probe::Raw;
use crate::sample::{Counts, Sample};
use asmp_host::record::{Record, Seen};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How many of the worst samples are kept with their causes.
pub const WORST: usize = 100;
/// How many records of one window are told one by one.
const TOLD: usize = 24;

/// A late sample and what the CPU did meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outlier {
    /// Place in samples.bin.
    pub index: u64,
    pub value_ns: u64,
    pub handler_ns: Option<u64>,
    /// One line.
    pub cause: String,
    /// `+12 us reschedule`: from the instant the event was due; only the first ones.
    pub records: Vec<String>,
}

/// Whose time counts as the probe's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// From the due instant to the wake-up: idle time before the handler is the delay itself.
    Wake,
    /// A turn of the loop: the probe should have had all of it.
    Turn,
}

/// Joins windows and records; both come in order of time.
pub struct Joiner {
    probe_tid: i32,
    window: Window,
    /// Were records to be had at all?
    recorded: bool,
    records: VecDeque<Record>,
    /// Who was on the CPU before the first record that is left.
    running: (i32, String),
    pub lost_records: u64,
    worst: Vec<Outlier>,
    index: u64,
}

impl Joiner {
    pub fn new(probe_tid: i32, window: Window, recorded: bool) -> Self {
        Self {
            probe_tid,
            window,
            recorded,
            records: VecDeque::new(),
            running: (0, "unknown".to_owned()),
            lost_records: 0,
            worst: Vec::new(),
            index: 0,
        }
    }

    pub fn records(&mut self, records: Vec<Record>) {
        for record in records {
            match record.seen {
                Seen::Lost(count) => self.lost_records += count,
                _ => self.records.push_back(record),
            }
        }
    }

    /// The sample of this window. Records up to its end must have been given.
    pub fn sample(&mut self, raw: Raw) -> Sample {
        // The trace's clock shows microseconds.
        let (begin_ns, end_ns) = (raw.due_ns / 1000 * 1000, raw.end_ns);
        while self.records.front().is_some_and(|record| record.at_ns < begin_ns) {
            if let Some(Record { seen: Seen::Switch { to_tid, to, .. }, .. }) = self.records.pop_front() {
                self.running = (to_tid, to);
            }
        }
        let within = || self.records.iter().take_while(|record| record.at_ns <= end_ns);
        let what = laid_out(within, self.probe_tid, &self.running, raw, self.window);
        let value_ns = raw.end_ns.saturating_sub(raw.due_ns);
        let sample = Sample {
            due_ns: raw.due_ns,
            value_ns,
            handler_ns: what.handler_ns,
            thread_ns: None,
            system_ns: what.system_ns(),
            counts: self.recorded.then_some(what.counts),
        };
        if self.is_bad(value_ns) {
            let records = self.records.iter().take_while(|record| record.at_ns <= end_ns);
            let outlier = Outlier {
                index: self.index,
                value_ns,
                handler_ns: what.handler_ns,
                cause: if self.recorded {
                    what.cause(value_ns, self.window)
                } else {
                    NOT_RECORDED.to_owned()
                },
                records: records.take(TOLD).map(|record| told(record, raw.due_ns)).collect(),
            };
            self.keep(outlier);
        }
        self.index += 1;
        sample
    }

    fn is_bad(&self, value_ns: u64) -> bool {
        self.worst.len() < WORST || self.worst.last().is_some_and(|least| value_ns > least.value_ns)
    }

    /// The sample of a period whose times the kernel's timerlat took; records, where there are any, say more.
    pub fn timerlat(&mut self, raw: Raw, irq_ns: u64, thread_ns: u64) -> Sample {
        let index = self.index;
        let sample = Sample { handler_ns: Some(irq_ns), thread_ns: Some(thread_ns), ..self.sample(raw) };
        if let Some(outlier) = self.worst.iter_mut().find(|outlier| outlier.index == index) {
            let (what, took) = [
                ("the interrupt came late (interrupts were off, or the CPU was away)", irq_ns),
                ("the thread was scheduled late", thread_ns.saturating_sub(irq_ns)),
                ("the return to user space took long", sample.value_ns.saturating_sub(thread_ns)),
            ]
            .into_iter()
            .max_by_key(|(_, took)| *took)
            .unwrap_or_default();
            let more = if self.recorded { format!("; {}", outlier.cause) } else { String::new() };
            outlier.handler_ns = Some(irq_ns);
            outlier.cause = format!("{what}: {}{more}", micros(took));
        }
        sample
    }

    fn keep(&mut self, outlier: Outlier) {
        let at = self.worst.partition_point(|other| other.value_ns >= outlier.value_ns);
        self.worst.insert(at, outlier);
        self.worst.truncate(WORST);
    }

    /// The worst samples, worst first.
    pub fn into_worst(self) -> Vec<Outlier> {
        self.worst
    }
}

const NOT_RECORDED: &str = "not recorded";

/// One window taken apart.
#[derive(Default)]
struct Laid {
    counts: Counts,
    handler_ns: Option<u64>,
    /// Who was on the CPU when the event was due.
    at_due: String,
    /// Time of handlers and other tasks, by name.
    took: BTreeMap<String, u64>,
}

impl Laid {
    fn system_ns(&self) -> u64 {
        self.took.values().sum()
    }

    fn cause(&self, value_ns: u64, window: Window) -> String {
        let (name, took) = self
            .took
            .iter()
            .max_by_key(|(_, took)| **took)
            .map_or((String::new(), 0), |(name, took)| (name.clone(), *took));
        let handler = self.handler_ns.filter(|_| window == Window::Wake).unwrap_or(0);
        if took >= handler && took * 4 >= value_ns && took > 0 {
            return format!("{name} took {}", micros(took));
        }
        if handler * 4 >= value_ns && handler > 0 {
            let whom = match self.at_due.starts_with("swapper") {
                true => "the CPU was idle: hypervisor, SMI or a deep idle state".to_owned(),
                false => format!("while {} ran with interrupts off, or the CPU was away", self.at_due),
            };
            return format!("the timer interrupt came {} late, {whom}", micros(handler));
        }
        match window {
            Window::Wake => {
                "nothing the kernel recorded: hypervisor, SMI, hardware, or the wake-up path itself"
            }
            Window::Turn => "nothing the kernel recorded: hypervisor, SMI or hardware",
        }
        .to_owned()
    }
}

fn laid_out<'a, I: Iterator<Item = &'a Record>>(
    records: impl Fn() -> I,
    probe_tid: i32,
    before: &(i32, String),
    raw: Raw,
    window: Window,
) -> Laid {
    let label = |tid: i32, name: &str| format!("{name}/{tid}");
    let mut laid = Laid { at_due: label(before.0, &before.1), ..Laid::default() };
    let mut running = before.clone();
    // Handlers nest; time goes to the innermost, else to the running task where that is somebody else.
    let mut handlers: Vec<String> = Vec::new();
    let mut since_ns = raw.due_ns;
    // The kernel may keep the timer on another CPU (timer migration off nohz_full CPUs) and wake the probe from
    // there: then all of the window counts.
    let timer = |seen: &Seen| match seen {
        Seen::LocalTimer => true,
        Seen::TimerExpired(function) => function.contains("wakeup"),
        _ => false,
    };
    let mut timer_seen = !records().any(|record| timer(&record.seen));
    for record in records() {
        let idle_or_own = running.0 == 0 || running.0 == probe_tid;
        let took = record.at_ns.saturating_sub(since_ns);
        // Before the timer's interrupt a task has the CPU by right, unless the probe was computing.
        let by_right = window == Window::Wake && !timer_seen;
        if took > 0 && !by_right {
            match handlers.last() {
                Some(handler) => *laid.took.entry(handler.clone()).or_default() += took,
                None if !idle_or_own => {
                    *laid.took.entry(label(running.0, &running.1)).or_default() += took;
                }
                None => {}
            }
        }
        since_ns = record.at_ns.max(raw.due_ns);
        let count = |count: &mut u16| *count = count.saturating_add(1);
        match &record.seen {
            Seen::LocalTimer => {
                count(&mut laid.counts.ticks);
                laid.handler_ns.get_or_insert(record.at_ns.saturating_sub(raw.due_ns));
                timer_seen = true;
                handlers.push("the local timer".to_owned());
            }
            Seen::TimerExpired(function) if function.contains("wakeup") => {
                laid.handler_ns.get_or_insert(record.at_ns.saturating_sub(raw.due_ns));
                timer_seen = true;
            }
            Seen::TimerExpired(_) | Seen::Timerlat { .. } | Seen::Lost(_) => {}
            Seen::Ipi(name) => {
                count(&mut laid.counts.ipis);
                handlers.push(format!("IPI {name}"));
            }
            Seen::Device { irq, name } => {
                count(&mut laid.counts.device_interrupts);
                handlers.push(format!("IRQ {irq} ({name})"));
            }
            Seen::Softirq(name) => {
                count(&mut laid.counts.softirqs);
                handlers.push(format!("softirq {name}"));
            }
            Seen::HandlerEnd => drop(handlers.pop()),
            Seen::PageFault => count(&mut laid.counts.page_faults),
            Seen::Switch { to_tid, to, .. } => {
                if *to_tid != 0 && *to_tid != probe_tid {
                    count(&mut laid.counts.switches);
                }
                // Whatever handler did not end in sight has ended: a task is being switched.
                handlers.clear();
                running = (*to_tid, to.clone());
            }
        }
    }
    laid
}

fn told(record: &Record, due_ns: u64) -> String {
    let what = match &record.seen {
        Seen::LocalTimer => "local timer".to_owned(),
        Seen::TimerExpired(function) => format!("timer {function}"),
        Seen::Ipi(name) => format!("IPI {name}"),
        Seen::Device { irq, name } => format!("IRQ {irq} ({name})"),
        Seen::Softirq(name) => format!("softirq {name}"),
        Seen::HandlerEnd => "handler ends".to_owned(),
        Seen::Switch { to_tid, to, .. } => format!("switch to {to}/{to_tid}"),
        Seen::PageFault => "page fault".to_owned(),
        Seen::Timerlat { context, .. } => format!("timerlat {context}"),
        Seen::Lost(count) => format!("{count} records lost"),
    };
    format!("+{} {what}", micros(record.at_ns.saturating_sub(due_ns)))
}

fn micros(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64, seen: Seen) -> Record {
        Record { at_ns: us * 1000, seen }
    }

    fn switch(from: i32, to: i32, name: &str) -> Seen {
        Seen::Switch { from_tid: from, from: "x".into(), to_tid: to, to: name.into() }
    }

    fn worst(records: Vec<Record>, window: Window, due_us: u64, end_us: u64) -> (Sample, String) {
        let mut joiner = Joiner::new(7, window, true);
        joiner.records(records);
        let sample = joiner.sample(Raw { due_ns: due_us * 1000, end_ns: end_us * 1000 });
        (sample, joiner.into_worst().remove(0).cause)
    }

    #[test]
    fn a_task_that_keeps_the_cpu_after_the_timer_is_the_cause() {
        let records = vec![
            at(50, switch(0, 99, "hog")),
            at(101, Seen::LocalTimer),
            at(102, Seen::TimerExpired("hrtimer_wakeup".into())),
            at(103, Seen::HandlerEnd),
            at(303, switch(99, 7, "asmp-probe")),
        ];
        let (sample, cause) = worst(records, Window::Wake, 100, 305);
        assert_eq!(cause, "hog/99 took 200.0 us");
        assert_eq!((sample.handler_ns, sample.value_ns), (Some(1000), 205_000));
    }

    #[test]
    fn a_task_that_keeps_the_cpu_is_the_cause_also_where_the_timer_is_on_another_cpu() {
        let records = vec![at(50, switch(0, 99, "hog")), at(303, switch(99, 7, "asmp-probe"))];
        let (sample, cause) = worst(records, Window::Wake, 100, 305);
        assert_eq!((cause.as_str(), sample.handler_ns), ("hog/99 took 203.0 us", None));
        let records = vec![
            at(112, Seen::Ipi("reschedule".into())),
            at(113, Seen::HandlerEnd),
            at(114, switch(0, 99, "hog")),
            at(303, switch(99, 7, "asmp-probe")),
        ];
        assert_eq!(worst(records, Window::Wake, 100, 305).1, "hog/99 took 189.0 us");
    }

    #[test]
    fn an_interrupt_that_comes_late_names_who_had_interrupts_off() {
        let records = vec![
            at(50, switch(0, 99, "hog")),
            at(300, Seen::LocalTimer),
            at(301, Seen::HandlerEnd),
            at(303, switch(99, 7, "asmp-probe")),
        ];
        let (_, cause) = worst(records, Window::Wake, 100, 305);
        assert_eq!(
            cause,
            "the timer interrupt came 200.0 us late, while hog/99 ran with interrupts off, or the CPU was away"
        );
    }

    #[test]
    fn a_turn_counts_what_was_taken_from_it_and_blames_nobody_for_the_rest() {
        let records = vec![
            at(10, switch(0, 7, "asmp-probe")),
            at(200, Seen::LocalTimer),
            at(210, Seen::HandlerEnd),
            at(300, Seen::Device { irq: 5, name: "nic".into() }),
            at(340, Seen::HandlerEnd),
            at(400, switch(7, 50, "kworker")),
            at(460, switch(50, 7, "asmp-probe")),
        ];
        let (sample, cause) = worst(records, Window::Turn, 100, 500);
        assert_eq!(sample.system_ns, 110_000);
        let counts = sample.counts.unwrap();
        assert_eq!((counts.ticks, counts.device_interrupts, counts.switches), (1, 1, 1));
        assert_eq!(
            cause, "nothing the kernel recorded: hypervisor, SMI or hardware",
            "60 of 400 us is too little"
        );
        let (sample, cause) = worst(vec![at(10, switch(0, 7, "asmp-probe"))], Window::Turn, 100, 500);
        assert_eq!((sample.system_ns, sample.counts), (0, Some(Counts::default())));
        assert!(cause.starts_with("nothing"));
    }

    #[test]
    fn records_of_one_window_are_not_counted_in_the_next() {
        let mut joiner = Joiner::new(7, Window::Wake, true);
        joiner.records(vec![at(101, Seen::LocalTimer), at(102, Seen::HandlerEnd), at(201, Seen::LocalTimer)]);
        let ticks = |sample: Sample| sample.counts.unwrap().ticks;
        assert_eq!(ticks(joiner.sample(Raw { due_ns: 100_000, end_ns: 110_000 })), 1);
        assert_eq!(ticks(joiner.sample(Raw { due_ns: 200_000, end_ns: 210_000 })), 1);
        assert_eq!(ticks(joiner.sample(Raw { due_ns: 300_000, end_ns: 310_000 })), 0);
    }

    #[test]
    fn only_the_worst_are_kept_worst_first() {
        let mut joiner = Joiner::new(7, Window::Wake, false);
        for value in 1..=1000u64 {
            let value = value * 7919 % 1009;
            joiner.sample(Raw { due_ns: 0, end_ns: value });
        }
        let worst = joiner.into_worst();
        assert_eq!(worst.len(), WORST);
        assert!(worst.windows(2).all(|pair| pair[0].value_ns >= pair[1].value_ns));
        assert_eq!(worst[0].value_ns, 1008);
    }
}
