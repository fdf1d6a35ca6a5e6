// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts and causes of samples: correlates each window of the probe with what the kernel recorded
//! on that CPU in the same time. Pure.

use crate::probe::Raw;
use crate::sample::{Counts, Sample};
use asmp_host::tracefs::{Event, EventKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How many of the worst samples are kept with their causes.
pub const WORST: usize = 100;
/// How many events of one window are listed one by one.
const LISTED: usize = 24;

/// A late sample, and what its CPU did in the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outlier {
    /// Index of the sample in samples.bin, from 0.
    pub index: u64,
    pub value_ns: u64,
    pub handler_ns: Option<u64>,
    /// The cause, in one line.
    pub cause: String,
    /// Recorded events, by time since the due instant (`+12 us reschedule`); only the first 24.
    pub records: Vec<String>,
}

/// What the time of a sample means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// From the due instant to the wake-up: idle time before the handler is the delay itself.
    Wake,
    /// A turn of the loop: the probe should have had all of it.
    Turn,
}

/// Finds the events of each window; both windows and events come in order of time.
pub struct Correlator {
    probe_tid: i32,
    window: Window,
    /// Were events recorded at all?
    recorded: bool,
    records: VecDeque<Event>,
    /// Who was on the CPU before the first event that is left.
    running: (i32, String),
    pub lost_records: u64,
    worst: Vec<Outlier>,
    index: u64,
}

impl Correlator {
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

    pub fn records(&mut self, records: Vec<Event>) {
        for event in records {
            match event.kind {
                EventKind::Lost(count) => self.lost_records += count,
                EventKind::Unreadable => self.lost_records += 1,
                _ => self.records.push_back(event),
            }
        }
    }

    /// The sample of this window. Records up to its end must have been given.
    pub fn sample(&mut self, raw: Raw) -> Sample {
        // The trace's clock shows microseconds.
        let (begin_ns, end_ns) = (raw.due_ns / 1000 * 1000, raw.end_ns);
        while self.records.front().is_some_and(|event| event.at_ns < begin_ns) {
            if let Some(Event { kind: EventKind::Switch { to_tid, to, .. }, .. }) =
                self.records.pop_front()
            {
                self.running = (to_tid, to);
            }
        }
        let within = || self.records.iter().take_while(|event| event.at_ns <= end_ns);
        let what = break_down(within, self.probe_tid, &self.running, raw, self.window);
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
            let records = self.records.iter().take_while(|event| event.at_ns <= end_ns);
            let outlier = Outlier {
                index: self.index,
                value_ns,
                handler_ns: what.handler_ns,
                cause: if self.recorded {
                    what.cause(value_ns, self.window)
                } else {
                    NOT_RECORDED.to_owned()
                },
                records: records.take(LISTED).map(|event| describe(event, raw.due_ns)).collect(),
            };
            self.keep(outlier);
        }
        self.index += 1;
        sample
    }

    fn is_bad(&self, value_ns: u64) -> bool {
        self.worst.len() < WORST || self.worst.last().is_some_and(|least| value_ns > least.value_ns)
    }

    /// The sample of a period whose times the kernel's timerlat took; records, where there are any,
    /// say more.
    pub fn timerlat(&mut self, raw: Raw, irq_ns: u64, thread_ns: u64) -> Sample {
        let index = self.index;
        let sample =
            Sample { handler_ns: Some(irq_ns), thread_ns: Some(thread_ns), ..self.sample(raw) };
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

/// Where the time of one window went.
#[derive(Default)]
struct Breakdown {
    counts: Counts,
    handler_ns: Option<u64>,
    /// Who was on the CPU when the event was due.
    at_due: String,
    /// Time of handlers and other tasks, by name.
    took: BTreeMap<String, u64>,
}

impl Breakdown {
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
                false => {
                    format!("while {} ran with interrupts off, or the CPU was away", self.at_due)
                }
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

fn break_down<'a, I: Iterator<Item = &'a Event>>(
    records: impl Fn() -> I,
    probe_tid: i32,
    before: &(i32, String),
    raw: Raw,
    window: Window,
) -> Breakdown {
    let label = |tid: i32, name: &str| format!("{name}/{tid}");
    let mut parts = Breakdown { at_due: label(before.0, &before.1), ..Breakdown::default() };
    let mut running = before.clone();
    // Handlers nest; time goes to the innermost, else to the running task where that is somebody
    // else.
    let mut handlers: Vec<String> = Vec::new();
    let mut since_ns = raw.due_ns;
    // The kernel may keep the timer on another CPU (timer migration off nohz_full CPUs) and wake
    // the probe from there: then all of the window counts.
    let timer = |kind: &EventKind| match kind {
        EventKind::LocalTimer => true,
        EventKind::TimerExpired(function) => function.contains("wakeup"),
        _ => false,
    };
    let mut timer_seen = !records().any(|event| timer(&event.kind));
    for event in records() {
        let idle_or_own = running.0 == 0 || running.0 == probe_tid;
        let took = event.at_ns.saturating_sub(since_ns);
        // Before the timer's interrupt a task has the CPU by right, unless the probe was computing.
        let by_right = window == Window::Wake && !timer_seen;
        if took > 0 && !by_right {
            match handlers.last() {
                Some(handler) => *parts.took.entry(handler.clone()).or_default() += took,
                None if !idle_or_own => {
                    *parts.took.entry(label(running.0, &running.1)).or_default() += took;
                }
                None => {}
            }
        }
        since_ns = event.at_ns.max(raw.due_ns);
        let count = |count: &mut u16| *count = count.saturating_add(1);
        match &event.kind {
            EventKind::LocalTimer => {
                count(&mut parts.counts.ticks);
                parts.handler_ns.get_or_insert(event.at_ns.saturating_sub(raw.due_ns));
                timer_seen = true;
                handlers.push("the local timer".to_owned());
            }
            EventKind::TimerExpired(function) if function.contains("wakeup") => {
                parts.handler_ns.get_or_insert(event.at_ns.saturating_sub(raw.due_ns));
                timer_seen = true;
            }
            EventKind::TimerExpired(_)
            | EventKind::Migration { .. }
            | EventKind::Fork { .. }
            | EventKind::Timerlat { .. }
            | EventKind::Lost(_)
            | EventKind::Unreadable => {}
            EventKind::Ipi(name) => {
                count(&mut parts.counts.ipis);
                handlers.push(format!("IPI {name}"));
            }
            EventKind::Device { irq, name } => {
                count(&mut parts.counts.device_interrupts);
                handlers.push(format!("IRQ {irq} ({name})"));
            }
            EventKind::Softirq(name) => {
                count(&mut parts.counts.softirqs);
                handlers.push(format!("softirq {name}"));
            }
            EventKind::HandlerEnd => drop(handlers.pop()),
            EventKind::PageFault { .. } => count(&mut parts.counts.page_faults),
            EventKind::Switch { to_tid, to, .. } => {
                if *to_tid != 0 && *to_tid != probe_tid {
                    count(&mut parts.counts.switches);
                }
                // Whatever handler did not end in sight has ended: a task is being switched.
                handlers.clear();
                running = (*to_tid, to.clone());
            }
        }
    }
    parts
}

fn describe(event: &Event, due_ns: u64) -> String {
    let what = match &event.kind {
        EventKind::LocalTimer => "local timer".to_owned(),
        EventKind::TimerExpired(function) => format!("timer {function}"),
        EventKind::Ipi(name) => format!("IPI {name}"),
        EventKind::Device { irq, name } => format!("IRQ {irq} ({name})"),
        EventKind::Softirq(name) => format!("softirq {name}"),
        EventKind::HandlerEnd => "handler ends".to_owned(),
        EventKind::Switch { to_tid, to, .. } => format!("switch to {to}/{to_tid}"),
        EventKind::PageFault { .. } => "page fault".to_owned(),
        EventKind::Migration { tid, command, from, to } => {
            format!("{command}/{tid} moves from CPU {from} to {to}")
        }
        EventKind::Fork { parent, child } => format!("task {parent} forks {child}"),
        EventKind::Timerlat { context, .. } => format!("timerlat {context}"),
        EventKind::Lost(count) => format!("{count} records lost"),
        EventKind::Unreadable => "a record that cannot be read".to_owned(),
    };
    format!("+{} {what}", micros(event.at_ns.saturating_sub(due_ns)))
}

fn micros(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64, kind: EventKind) -> Event {
        Event { at_ns: us * 1000, cpu: 3, kind }
    }

    fn switch(from: i32, to: i32, name: &str) -> EventKind {
        EventKind::Switch { from_tid: from, from: "x".into(), to_tid: to, to: name.into() }
    }

    fn worst(records: Vec<Event>, window: Window, due_us: u64, end_us: u64) -> (Sample, String) {
        let mut correlator = Correlator::new(7, window, true);
        correlator.records(records);
        let sample = correlator.sample(Raw { due_ns: due_us * 1000, end_ns: end_us * 1000 });
        (sample, correlator.into_worst().remove(0).cause)
    }

    #[test]
    fn a_task_that_keeps_the_cpu_after_the_timer_is_the_cause() {
        let records = vec![
            at(50, switch(0, 99, "hog")),
            at(101, EventKind::LocalTimer),
            at(102, EventKind::TimerExpired("hrtimer_wakeup".into())),
            at(103, EventKind::HandlerEnd),
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
            at(112, EventKind::Ipi("reschedule".into())),
            at(113, EventKind::HandlerEnd),
            at(114, switch(0, 99, "hog")),
            at(303, switch(99, 7, "asmp-probe")),
        ];
        assert_eq!(worst(records, Window::Wake, 100, 305).1, "hog/99 took 189.0 us");
    }

    #[test]
    fn an_interrupt_that_comes_late_names_who_had_interrupts_off() {
        let records = vec![
            at(50, switch(0, 99, "hog")),
            at(300, EventKind::LocalTimer),
            at(301, EventKind::HandlerEnd),
            at(303, switch(99, 7, "asmp-probe")),
        ];
        let (_, cause) = worst(records, Window::Wake, 100, 305);
        assert_eq!(
            cause,
            "the timer interrupt came 200.0 us late, while hog/99 ran with interrupts off, or \
             the CPU was away"
        );
    }

    #[test]
    fn a_turn_counts_what_was_taken_from_it_and_blames_nobody_for_the_rest() {
        let records = vec![
            at(10, switch(0, 7, "asmp-probe")),
            at(200, EventKind::LocalTimer),
            at(210, EventKind::HandlerEnd),
            at(300, EventKind::Device { irq: 5, name: "nic".into() }),
            at(340, EventKind::HandlerEnd),
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
        let (sample, cause) =
            worst(vec![at(10, switch(0, 7, "asmp-probe"))], Window::Turn, 100, 500);
        assert_eq!((sample.system_ns, sample.counts), (0, Some(Counts::default())));
        assert!(cause.starts_with("nothing"));
    }

    #[test]
    fn records_of_one_window_are_not_counted_in_the_next() {
        let mut correlator = Correlator::new(7, Window::Wake, true);
        correlator.records(vec![
            at(101, EventKind::LocalTimer),
            at(102, EventKind::HandlerEnd),
            at(201, EventKind::LocalTimer),
        ]);
        let ticks = |sample: Sample| sample.counts.unwrap().ticks;
        assert_eq!(ticks(correlator.sample(Raw { due_ns: 100_000, end_ns: 110_000 })), 1);
        assert_eq!(ticks(correlator.sample(Raw { due_ns: 200_000, end_ns: 210_000 })), 1);
        assert_eq!(ticks(correlator.sample(Raw { due_ns: 300_000, end_ns: 310_000 })), 0);
    }

    #[test]
    fn only_the_worst_are_kept_worst_first() {
        let mut correlator = Correlator::new(7, Window::Wake, false);
        for value in 1..=1000u64 {
            let value = value * 7919 % 1009;
            correlator.sample(Raw { due_ns: 0, end_ns: value });
        }
        let worst = correlator.into_worst();
        assert_eq!(worst.len(), WORST);
        assert!(worst.windows(2).all(|pair| pair[0].value_ns >= pair[1].value_ns));
        assert_eq!(worst[0].value_ns, 1008);
    }
}
