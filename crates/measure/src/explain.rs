// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts and causes of samples: correlates each window of the probe with what the kernel recorded
//! on that CPU in the same time. Pure.
//!
//! Until the probe is woken, the other tasks of its CPU run by right, and none of them is a cause.
//! The wake-up stands in the records if this CPU made it. If another CPU has the timer, only its
//! reschedule interrupt does; a task that goes before the probe gets none. So a task that ran
//! before a wake-up that no record shows is a cause only if it goes before the probe.

mod phases;
mod records;
mod words;

use crate::probe::Raw;
use crate::sample::{Counts, Sample};
use asmp_host::tracefs::{Event, EventKind};
use phases::Phases;
use records::{Records, is_missing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::mem::replace;
pub(crate) use words::wrapped;
use words::{describe, micros};

/// How many of the worst samples are kept with their causes.
pub const WORST: usize = 100;
/// How many events of one window are listed one by one.
const LISTED: usize = 24;
/// The kernel's first priority of SCHED_OTHER: tasks from here on share a CPU, of any nice.
const FAIR: i32 = 100;

/// A late sample, and what its CPU did in the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outlier {
    /// How many samples came before it; its place in samples.bin, where the run keeps that.
    pub index: u64,
    /// When it was due, since the run's first sample was; `None` of an older asmp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
    pub value_ns: u64,
    pub handler_ns: Option<u64>,
    /// The cause, in one sentence.
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
    probe: Probe,
    window: Window,
    /// Were events recorded at all?
    recorded: bool,
    records: Records,
    /// Before the first event that is left.
    before: Before,
    worst: Vec<Outlier>,
    index: u64,
    /// When the first sample was due.
    origin_ns: Option<u64>,
    /// The least value so far.
    least_ns: Option<u64>,
}

/// The measured thread; its priority as soon as a record tells it.
#[derive(Debug, Clone, Copy)]
struct Probe {
    tid: i32,
    prio: Option<i32>,
}

/// A task on the CPU; thread 0 is idle.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Runner {
    tid: i32,
    name: String,
    prio: i32,
}

/// Who has the CPU when a window begins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Before {
    /// Who leaves first in the window: no switch has been recorded yet.
    NoRecord,
    /// Not known: records were lost since the last switch.
    Lost,
    Runs(Runner),
}

impl Correlator {
    pub fn new(probe_tid: i32, window: Window, recorded: bool) -> Self {
        Self {
            probe: Probe { tid: probe_tid, prio: None },
            window,
            recorded,
            records: Records::default(),
            before: Before::NoRecord,
            worst: Vec::new(),
            index: 0,
            origin_ns: None,
            least_ns: None,
        }
    }

    pub fn records(&mut self, records: Vec<Event>) {
        records.into_iter().for_each(|event| self.records.push(event));
    }

    /// Those of the kernel that found no room.
    pub const fn lost_records(&self) -> u64 {
        self.records.lost
    }

    /// The sample of this window. Records up to its end must have been given.
    pub fn sample(&mut self, raw: Raw) -> Sample {
        self.take(raw, None)
    }

    /// The sample of a period whose times the kernel's timerlat took; records, where there are any,
    /// say more.
    pub fn timerlat(&mut self, raw: Raw, irq_ns: u64, thread_ns: u64) -> Sample {
        self.take(raw, Some(Phases { irq_ns, thread_ns }))
    }

    fn take(&mut self, raw: Raw, phases: Option<Phases>) -> Sample {
        let value_ns = raw.end_ns.saturating_sub(raw.due_ns);
        let late_ns = self.late_ns(value_ns);
        // The trace's clock shows microseconds.
        let (begin_ns, end_ns) = (raw.due_ns / 1000 * 1000, raw.end_ns);
        while let Some(event) = self.records.pop_before(begin_ns) {
            self.note(&event);
        }
        let within: Vec<&Event> = self.records.until(end_ns).collect();
        let probe = self.probe.after(&within);
        let mut what = break_down(&within, probe, &self.before, raw, self.window);
        what.handler_ns = phases.map(|phases| phases.irq_ns).or(what.handler_ns);
        let origin_ns = *self.origin_ns.get_or_insert(raw.due_ns);
        let sample = Sample {
            due_ns: raw.due_ns,
            value_ns,
            handler_ns: what.handler_ns,
            thread_ns: phases.map(|phases| phases.thread_ns),
            system_ns: what.system_ns(),
            counts: self.recorded.then_some(what.counts),
        };
        if self.is_bad(value_ns) {
            let records = within.iter().take(LISTED);
            let outlier = Outlier {
                index: self.index,
                at_ns: Some(raw.due_ns.saturating_sub(origin_ns)),
                value_ns,
                handler_ns: what.handler_ns,
                cause: match (self.recorded, phases) {
                    (true, phases) => {
                        let is_whole = !within.iter().any(|event| is_missing(&event.kind));
                        let missing = if is_whole { "" } else { "; records are missing" };
                        what.cause(late_ns, self.window, phases) + missing
                    }
                    (false, Some(phases)) => phases.cause(value_ns),
                    (false, None) => NOT_RECORDED.to_owned(),
                },
                records: records.map(|event| describe(event, raw.due_ns)).collect(),
            };
            self.keep(outlier);
        }
        self.probe = probe;
        self.index += 1;
        sample
    }

    /// What has to have a cause: of a turn, which takes its time also where it is not disturbed,
    /// what is more than the least so far.
    fn late_ns(&mut self, value_ns: u64) -> u64 {
        let least_ns = self.least_ns.map_or(value_ns, |least| least.min(value_ns));
        self.least_ns = Some(least_ns);
        match (self.window, value_ns - least_ns) {
            (Window::Wake, _) | (Window::Turn, 0) => value_ns,
            (Window::Turn, more_ns) => more_ns,
        }
    }

    /// An event before the window.
    fn note(&mut self, event: &Event) {
        self.probe = self.probe.after(&[event]);
        match &event.kind {
            EventKind::Switch { to_tid, to, to_prio, .. } => {
                let runs = Runner { tid: *to_tid, name: to.clone(), prio: *to_prio };
                self.before = Before::Runs(runs);
            }
            kind if is_missing(kind) => self.before = Before::Lost,
            _ => {}
        }
    }

    fn is_bad(&self, value_ns: u64) -> bool {
        self.worst.len() < WORST || self.worst.last().is_some_and(|least| value_ns > least.value_ns)
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

/// The cause where nothing was recorded.
pub(crate) const NOT_RECORDED: &str = "not recorded";

impl Probe {
    /// The same, with the priority that these events tell last.
    fn after(self, events: &[&Event]) -> Self {
        let prio = events.iter().rev().find_map(|event| match &event.kind {
            EventKind::Switch { to_tid, to_prio, .. } if *to_tid == self.tid => Some(*to_prio),
            EventKind::Switch { from_tid, from_prio, .. } if *from_tid == self.tid => {
                Some(*from_prio)
            }
            EventKind::Waking { tid, prio, .. } if *tid == self.tid => Some(*prio),
            _ => None,
        });
        Self { prio: prio.or(self.prio), ..self }
    }

    /// Must the probe wait while this task runs? `None`: its own priority is not known.
    fn waits_for(self, task: &Runner) -> Option<bool> {
        self.prio.map(|prio| task.prio <= prio || (task.prio >= FAIR && prio >= FAIR))
    }

    /// Tasks of SCHED_OTHER preempt each other; thread 0 has its priority.
    fn cannot_preempt(self, task: &Runner) -> bool {
        task.prio < FAIR && self.waits_for(task) == Some(true)
    }
}

impl Runner {
    fn label(&self) -> String {
        format!("{}/{}", self.name, self.tid)
    }
}

/// What took time from the probe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Taker {
    Handler(String),
    /// A task that the probe had to wait for.
    Task(String),
    /// A task that stayed on the CPU though the probe, which goes before it, was awake.
    Below(String),
}

impl fmt::Display for Taker {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Handler(name) | Self::Task(name) | Self::Below(name) => f.write_str(name),
        }
    }
}

/// Where the time of one window went.
#[derive(Default)]
struct Breakdown {
    counts: Counts,
    handler_ns: Option<u64>,
    /// Until the probe was woken, as far as this CPU knows.
    woken: Option<Woken>,
    at_due: AtDue,
    took: BTreeMap<Taker, Share>,
}

/// What one taker had of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    took_ns: u64,
    /// How often the handler ran, or the task came onto the CPU.
    times: u32,
    /// Page faults of the task.
    page_faults: u32,
}

/// Who was on the CPU when the event was due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum AtDue {
    /// No record says.
    #[default]
    NotKnown,
    Idle,
    Task(String),
}

/// How the probe was woken, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Woken {
    at_ns: u64,
    /// By this CPU; else another one told it to schedule.
    here: bool,
}

impl Breakdown {
    fn system_ns(&self) -> u64 {
        self.took.values().map(|share| share.took_ns).sum()
    }

    /// One cause: what took most, if that is a quarter of the whole. Of a turn a hundredth is told
    /// as well: each entry into the kernel costs more than its handler.
    fn cause(&self, value_ns: u64, window: Window, phases: Option<Phases>) -> String {
        let counts = |took_ns: u64| took_ns > 0 && took_ns * 4 >= value_ns;
        let most = self.took.iter().max_by_key(|(_, share)| share.took_ns);
        if let Some((taker, share)) = most
            && window == Window::Turn
            && !counts(share.took_ns)
            && share.took_ns * 100 >= value_ns
        {
            let most = taker.cause(*share);
            return format!("{most}; the rest no record shows: hypervisor, SMI or hardware");
        }
        let most = most.filter(|(_, share)| counts(share.took_ns));
        let late_ns = self.handler_ns.filter(|late_ns| window == Window::Wake && counts(*late_ns));
        match (most, late_ns) {
            (Some((taker, share)), late_ns) if late_ns.is_none_or(|late| share.took_ns >= late) => {
                taker.cause(*share)
            }
            (_, Some(late_ns)) => self.late_interrupt(late_ns),
            _ => self.nothing_seen(value_ns, window, phases),
        }
    }

    fn late_interrupt(&self, late_ns: u64) -> String {
        let late = micros(late_ns);
        match &self.at_due {
            AtDue::NotKnown => format!(
                "the timer interrupt came {late} late; no record says whether the CPU was idle \
                 then: the kernel had interrupts off, the CPU was away (hypervisor, SMI), or a \
                 deep idle state"
            ),
            AtDue::Idle => format!(
                "the timer interrupt came {late} late, the CPU was idle: hypervisor, SMI or a deep \
                 idle state"
            ),
            AtDue::Task(task) => format!(
                "the timer interrupt came {late} late, while {task} was on the CPU: the kernel had \
                 interrupts off, or the CPU was away (hypervisor, SMI)"
            ),
        }
    }

    fn nothing_seen(&self, value_ns: u64, window: Window, phases: Option<Phases>) -> String {
        let remote = self.woken.filter(|woken| !woken.here && woken.at_ns * 4 >= value_ns);
        match (phases, remote, window) {
            (Some(phases), ..) => format!(
                "{}; no record of this CPU says why: hypervisor, SMI or hardware",
                phases.cause(value_ns)
            ),
            (None, Some(woken), Window::Wake) => format!(
                "the wake-up came {} late from another CPU, which had the timer: that CPU was \
                 late, or the machine was away (hypervisor, SMI); what ran here meanwhile ran by \
                 right",
                micros(woken.at_ns)
            ),
            (None, None, Window::Wake) if self.woken.is_none() => {
                "nothing on this CPU: the wake-up came late from another one, which had the timer, \
                 or hypervisor, SMI, hardware"
                    .to_owned()
            }
            (None, _, Window::Wake) => {
                "nothing the kernel recorded: hypervisor, SMI, hardware, or the wake-up path itself"
                    .to_owned()
            }
            (None, _, Window::Turn) => {
                "nothing the kernel recorded: hypervisor, SMI or hardware".to_owned()
            }
        }
    }
}

impl Taker {
    fn cause(&self, Share { took_ns, times, page_faults }: Share) -> String {
        let took = micros(took_ns);
        match self {
            Self::Handler(_) | Self::Task(_) => {
                let mut cause = format!("{self} took {took}");
                if times > 1 {
                    cause += &format!(", {times} times");
                }
                if page_faults > 0 {
                    cause += &format!(", page faults: {page_faults}");
                }
                cause
            }
            Self::Below(_) => format!(
                "{self}, of lower priority, stayed for {took} after the wake-up: the kernel could \
                 not preempt it, or the CPU was away (hypervisor, SMI)"
            ),
        }
    }
}

/// The wake-up of the probe. Another CPU's is told by the last reschedule interrupt before the
/// probe ran: earlier ones may have been for other tasks. One that came while a task ran that the
/// probe cannot preempt was for another task, too.
fn wake_up(
    events: &[&Event],
    probe: Probe,
    mut running: Option<Runner>,
    due_ns: u64,
) -> Option<Woken> {
    let mut told = None;
    for event in events {
        let at_ns = event.at_ns.saturating_sub(due_ns);
        match &event.kind {
            EventKind::Waking { tid, .. } if *tid == probe.tid => {
                return Some(Woken { at_ns, here: true });
            }
            EventKind::Switch { to_tid, .. } if *to_tid == probe.tid => break,
            EventKind::Switch { to_tid, to, to_prio, .. } => {
                running = Some(Runner { tid: *to_tid, name: to.clone(), prio: *to_prio });
            }
            kind if is_missing(kind) => running = None,
            EventKind::Ipi(name) if name.to_ascii_lowercase().contains("reschedul") => {
                let stays = running.as_ref().is_some_and(|task| probe.cannot_preempt(task));
                told = if stays { told } else { Some(Woken { at_ns, here: false }) };
            }
            _ => {}
        }
    }
    told
}

/// When the timer's handler ran, where it woke the probe on this CPU.
fn handler(events: &[&Event], woken: Option<Woken>, raw: Raw, window: Window) -> Option<u64> {
    let first = events.iter().find(|event| is_timer(&event.kind))?;
    let at_ns = first.at_ns.saturating_sub(raw.due_ns);
    let woke = woken.is_some_and(|woken| woken.here && at_ns <= woken.at_ns);
    (woke || window == Window::Turn).then_some(at_ns)
}

fn is_timer(kind: &EventKind) -> bool {
    match kind {
        EventKind::LocalTimer => true,
        EventKind::TimerExpired(function) => function.contains("wakeup"),
        _ => false,
    }
}

/// A handler that has not ended yet.
struct Handler {
    name: String,
    /// In the times of its [`Share`].
    is_counted: bool,
}

impl Handler {
    fn new(name: String) -> Self {
        Self { name, is_counted: false }
    }
}

fn break_down(
    events: &[&Event],
    probe: Probe,
    before: &Before,
    raw: Raw,
    window: Window,
) -> Breakdown {
    let first = || {
        let mut whole = events.iter().take_while(|event| !is_missing(&event.kind));
        whole.find_map(|event| match &event.kind {
            EventKind::Switch { from_tid, from, from_prio, .. } => {
                Some(Runner { tid: *from_tid, name: from.clone(), prio: *from_prio })
            }
            _ => None,
        })
    };
    let mut running = match before {
        Before::NoRecord => first(),
        Before::Lost => None,
        Before::Runs(task) => Some(task.clone()),
    };
    let woken = wake_up(events, probe, running.clone(), raw.due_ns);
    let woken = woken.filter(|_| window == Window::Wake);
    let at_due = running.as_ref().map_or(AtDue::NotKnown, |task| match task.tid {
        0 => AtDue::Idle,
        _ => AtDue::Task(task.label()),
    });
    let handler_ns = handler(events, woken, raw, window);
    let mut parts = Breakdown { at_due, woken, handler_ns, ..Breakdown::default() };
    // Handlers nest; time goes to the innermost, else to the running task where that is another
    // one.
    let mut handlers: Vec<Handler> = Vec::new();
    let mut is_task_counted = false;
    let mut since_ns = raw.due_ns;
    let taker = |handlers: &[Handler], running: Option<&Runner>, until_ns: u64| -> Option<Taker> {
        let is_awake = woken.is_some_and(|woken| until_ns > raw.due_ns + woken.at_ns);
        if window == Window::Wake && woken.is_some() && !is_awake {
            return None;
        }
        if let Some(handler) = handlers.last() {
            return Some(Taker::Handler(handler.name.clone()));
        }
        let task = running.filter(|task| task.tid != 0 && task.tid != probe.tid)?;
        match probe.waits_for(task) {
            _ if window == Window::Turn => Some(Taker::Task(task.label())),
            Some(true) => Some(Taker::Task(task.label())),
            Some(false) if is_awake => Some(Taker::Below(task.label())),
            _ => None,
        }
    };
    for event in events {
        let took_ns = event.at_ns.saturating_sub(since_ns);
        if took_ns > 0
            && let Some(taker) = taker(&handlers, running.as_ref(), event.at_ns)
        {
            let share = parts.took.entry(taker).or_default();
            share.took_ns += took_ns;
            let is_counted = match handlers.last_mut() {
                Some(handler) => &mut handler.is_counted,
                None => &mut is_task_counted,
            };
            share.times += u32::from(!replace(is_counted, true));
        }
        since_ns = event.at_ns.max(raw.due_ns);
        let count = |count: &mut u16| *count = count.saturating_add(1);
        match &event.kind {
            EventKind::LocalTimer => {
                count(&mut parts.counts.ticks);
                handlers.push(Handler::new("the local timer".to_owned()));
            }
            EventKind::TimerExpired(_)
            | EventKind::Waking { .. }
            | EventKind::Migration { .. }
            | EventKind::Fork { .. }
            | EventKind::Timerlat { .. } => {}
            EventKind::Lost(_) | EventKind::Unreadable => {
                handlers.clear();
                running = None;
            }
            EventKind::Ipi(name) => {
                count(&mut parts.counts.ipis);
                handlers.push(Handler::new(format!("IPI {name}")));
            }
            EventKind::Device { irq, name } => {
                count(&mut parts.counts.device_interrupts);
                handlers.push(Handler::new(format!("IRQ {irq} ({name})")));
            }
            EventKind::Softirq(name) => {
                count(&mut parts.counts.softirqs);
                handlers.push(Handler::new(format!("softirq {name}")));
            }
            EventKind::HandlerEnd => drop(handlers.pop()),
            EventKind::PageFault { .. } => {
                count(&mut parts.counts.page_faults);
                if let Some(taker @ Taker::Task(_)) =
                    taker(&handlers, running.as_ref(), event.at_ns)
                {
                    parts.took.entry(taker).or_default().page_faults += 1;
                }
            }
            EventKind::Switch { to_tid, to, to_prio, .. } => {
                if *to_tid != 0 && *to_tid != probe.tid {
                    count(&mut parts.counts.switches);
                }
                // Whatever handler did not end in sight has ended: a task is being switched.
                handlers.clear();
                is_task_counted = false;
                running = Some(Runner { tid: *to_tid, name: to.clone(), prio: *to_prio });
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests;
