// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the log of the real-time thread, the runs, and what its CPU did: which periods were missed
//! and why. Pure.
//!
//! A period is missed when its job is done after the next release, or there is no job at all. It is
//! *attributable* when the job would have been in time without what others had of its CPU between
//! the first missed release and its end (tasks, interrupts of devices, of other CPUs, deferred
//! work; each with all the time until it left, the emulator's pauses included), or when the thread
//! blocked or took a page fault. It is *accompanied* when anybody else was there at all,
//! however short. What is not attributable has no cause inside the guest: the emulator's own CPU
//! was elsewhere. The control, in the same boot, says how often that happens without a fault.

use crate::runs::Kind;
use asmp_host::tracefs::{Event, EventKind};
use std::collections::BTreeMap;
use std::fmt;

/// One run, from its fault to the end of its peer.
pub struct Window {
    pub kind: Kind,
    pub generation: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Commands that the peer had put in, and that the thread had said it has.
    pub put: u64,
    pub confirmed: u64,
    pub after_scribble: bool,
}

/// What the peers have noted.
pub struct Lost {
    pub reports: u64,
    pub wrong: u64,
    pub unnoted: u64,
}

#[derive(Default)]
pub struct Measured {
    pub thread: i32,
    pub windows: Vec<Window>,
    pub records: Vec<Event>,
    /// What the controller printed.
    pub log: String,
}

/// One job, as the controller printed it.
struct Job {
    scheduled_ns: u64,
    woken_ns: u64,
    done_ns: u64,
    overruns: u64,
    faults: u64,
    blocked: u64,
    preempted: u64,
}

/// All periods of one kind.
#[derive(Default)]
struct Row {
    runs: u64,
    periods: u64,
    missed: u64,
    accompanied: u64,
    attributable: u64,
    foreign: u64,
    interrupted: u64,
    preempted: u64,
    blocked: u64,
    faults: u64,
    latencies_us: Vec<u64>,
}

pub struct Verdict {
    rows: BTreeMap<usize, Row>,
    /// Of each missed period: attributable, and in words.
    causes: Vec<(bool, String)>,
    /// Accepted data that is gone, in words.
    lost: Vec<String>,
    lost_records: u64,
    unnoted: u64,
    accepted: u64,
    counts: String,
}

/// The row of periods in no run's window: a peer comes or goes.
const BETWEEN: usize = Kind::ALL.len();

impl Verdict {
    pub fn is_contained(&self) -> bool {
        self.attributable() == 0 && self.lost.is_empty() && self.lost_records == 0
    }

    /// Also of the time after a fault, when its remains are cleared away; not of the control.
    fn attributable(&self) -> u64 {
        let of_control = |kind: usize| Kind::ALL.get(kind).is_some_and(|kind| !kind.is_fault());
        self.rows
            .iter()
            .filter(|(kind, _)| !of_control(**kind))
            .map(|(_, row)| row.attributable)
            .sum()
    }
}

pub fn judge(measured: &Measured, noted: Lost, period_ns: u64) -> Verdict {
    let jobs: Vec<Job> = measured.log.lines().filter_map(job).collect();
    let mut verdict = Verdict {
        rows: BTreeMap::new(),
        causes: Vec::new(),
        lost: Vec::new(),
        lost_records: measured
            .records
            .iter()
            .map(|r| if let EventKind::Lost(count) = r.kind { count } else { 0 })
            .sum(),
        unnoted: noted.unnoted,
        accepted: 0,
        counts: measured
            .log
            .lines()
            .find_map(|line| line.strip_prefix("counts "))
            .unwrap_or("none")
            .to_owned(),
    };
    for window in &measured.windows {
        verdict.rows.entry(window.kind as usize).or_default().runs += 1;
    }
    let mut windows = measured.windows.iter().peekable();
    for job in &jobs {
        while windows.next_if(|window| window.end_ns < job.scheduled_ns).is_some() {}
        let inside = windows.peek().filter(|window| window.begin_ns <= job.done_ns);
        let first_ns = job.scheduled_ns - job.overruns * period_ns;
        let Others { names: others, held_ns } =
            others(&measured.records, measured.thread, first_ns, job.done_ns);
        let row =
            verdict.rows.entry(inside.map_or(BETWEEN, |window| window.kind as usize)).or_default();
        let tasks = others.iter().filter(|other| other.starts_with("task")).count() as u64;
        row.periods += 1 + job.overruns;
        row.foreign += tasks;
        row.interrupted += others.len() as u64 - tasks;
        row.preempted += job.preempted;
        row.blocked += job.blocked;
        row.faults += job.faults;
        row.latencies_us.push((job.done_ns - job.scheduled_ns) / 1000);
        let late = job.done_ns > job.scheduled_ns + period_ns;
        let missed = job.overruns + u64::from(late);
        row.missed += missed;
        if missed > 0 {
            let in_time_alone = job.done_ns - held_ns.min(job.done_ns) <= first_ns + period_ns;
            let attributable = job.blocked + job.faults > 0 || in_time_alone;
            row.attributable += if attributable { missed } else { 0 };
            row.accompanied += if others.is_empty() { 0 } else { missed };
            verdict.causes.push((
                attributable,
                format!(
                    "{}: {missed} missed, job done {} us after the first of these releases ({} \
                     us after it woke); {} preemptions, {} blocked, {} faults; others had its \
                     CPU for {} us: {}",
                    inside.map_or("between runs", |window| window.kind.words()),
                    (job.done_ns - first_ns) / 1000,
                    (job.done_ns - job.woken_ns) / 1000,
                    job.preempted,
                    job.blocked,
                    job.faults,
                    held_ns / 1000,
                    if others.is_empty() { "nobody".to_owned() } else { others.join(", ") },
                ),
            ));
        }
    }
    // Those that count first.
    verdict.causes.sort_by_key(|(attributable, _)| !attributable);
    verdict.look_for_lost(measured, &noted);
    verdict
}

/// Who else was on the thread's CPU.
#[derive(Default)]
struct Others {
    names: Vec<String>,
    held_ns: u64,
}

/// What others did on the CPU from one instant to another, and how long they had it.
fn others(records: &[Event], thread: i32, from_ns: u64, to_ns: u64) -> Others {
    // The records' clock shows microseconds.
    let first = records.partition_point(|record| record.at_ns < from_ns / 1000 * 1000);
    let is_other = |tid: i32| tid != 0 && tid != thread;
    let before = records[..first].iter().rev().find_map(|record| match &record.kind {
        EventKind::Switch { to_tid, to, .. } => Some((*to_tid, to)),
        _ => None,
    });
    let mut found = Others::default();
    let mut other_task = before.is_some_and(|(tid, _)| is_other(tid));
    if let Some((_, name)) = before.filter(|_| other_task) {
        found.names.push(format!("task {name}"));
    }
    // Handlers lie within each other; `true`: not the thread's own.
    let mut handlers: Vec<bool> = Vec::new();
    let mut since_ns = from_ns;
    for record in records[first..].iter().take_while(|record| record.at_ns <= to_ns) {
        if other_task || handlers.contains(&true) {
            found.held_ns += record.at_ns.saturating_sub(since_ns);
        }
        since_ns = since_ns.max(record.at_ns);
        if let Some(name) = foreign(&record.kind, thread) {
            found.names.push(name);
        }
        match &record.kind {
            // Deferred work that a task does goes with the task.
            EventKind::Switch { to_tid, .. } => {
                other_task = is_other(*to_tid);
                handlers.clear();
            }
            EventKind::HandlerEnd => _ = handlers.pop(),
            EventKind::LocalTimer
            | EventKind::Ipi(_)
            | EventKind::Device { .. }
            | EventKind::Softirq(_) => {
                handlers.push(foreign(&record.kind, thread).is_some());
            }
            _ => {}
        }
    }
    if other_task || handlers.contains(&true) {
        found.held_ns += to_ns.saturating_sub(since_ns);
    }
    found
}

/// What on the CPU is not the thread's own: `None` for its timer and its switches, and for a
/// reschedule interrupt: with nohz_full another CPU serves the timer and wakes the thread so;
/// whoever else it wakes is seen as a task.
fn foreign(seen: &EventKind, thread: i32) -> Option<String> {
    match seen {
        EventKind::Switch { to_tid, to, .. } if *to_tid != 0 && *to_tid != thread => {
            Some(format!("task {to}"))
        }
        EventKind::Device { irq, name } => Some(format!("irq {irq} {name}")),
        EventKind::Ipi(name) if !name.contains("reschedule") => Some(format!("ipi {name}")),
        EventKind::Softirq(name) => Some(format!("softirq {name}")),
        EventKind::PageFault { .. } => Some("page fault".to_owned()),
        _ => None,
    }
}

impl Verdict {
    /// What the thread has accepted must be where it was accepted to.
    fn look_for_lost(&mut self, measured: &Measured, noted: &Lost) {
        for (count, what) in [
            (noted.reports, "reports that were accepted and that nobody could read"),
            (noted.wrong, "reports or answers that were not what was sent"),
        ] {
            if count > 0 {
                self.lost.push(format!("{count} {what}"));
            }
        }
        let accepted: BTreeMap<u64, [u64; 3]> = measured.log.lines().filter_map(accepted).collect();
        for window in &measured.windows {
            let [first, last, gaps] = accepted.get(&window.generation).copied().unwrap_or_default();
            self.accepted += (last + 1).saturating_sub(first.max(1));
            let run = format!("run {} ({})", window.generation, window.kind.words());
            if last < window.confirmed {
                self.lost.push(format!(
                    "{run}: command {} was confirmed, {last} is the last that is known",
                    window.confirmed
                ));
            }
            // What a peer had put in before it scribbled over the memory went with it.
            if window.kind != Kind::Scribbles
                && (gaps > 0 || last < window.put || last > window.put + 1)
            {
                self.lost.push(format!(
                    "{run}: {} commands put in, {last} accepted, {gaps} gaps",
                    window.put
                ));
            }
            if !window.after_scribble && first != 1 {
                self.lost.push(format!("{run}: its first command was {first}"));
            }
        }
    }
}

/// `WORD number number ...`
fn numbers(line: &str, word: &str) -> Option<Vec<u64>> {
    line.strip_prefix(word)?.split_whitespace().map(|number| number.parse().ok()).collect()
}

fn job(line: &str) -> Option<Job> {
    let [scheduled_ns, woken_ns, done_ns, overruns, faults, blocked, preempted] =
        numbers(line, "period ")?.try_into().ok()?;
    Some(Job { scheduled_ns, woken_ns, done_ns, overruns, faults, blocked, preempted })
}

fn accepted(line: &str) -> Option<(u64, [u64; 3])> {
    let [generation, first, last, gaps] = numbers(line, "accepted ")?.try_into().ok()?;
    Some((generation, [first, last, gaps]))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| | runs | periods | missed | accompanied | attributable | other tasks | interrupts \
             | preempted | blocked | faults | done after, us: p50, p99, max |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        for (kind, row) in &self.rows {
            let mut sorted = row.latencies_us.clone();
            sorted.sort_unstable();
            let at = |parts: usize| {
                sorted.get(sorted.len() * parts / 100).or(sorted.last()).copied().unwrap_or(0)
            };
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}, {}, {} |",
                Kind::ALL.get(*kind).map_or("between runs", |kind| kind.words()),
                row.runs,
                row.periods,
                row.missed,
                row.accompanied,
                row.attributable,
                row.foreign,
                row.interrupted,
                row.preempted,
                row.blocked,
                row.faults,
                at(50),
                at(99),
                sorted.last().copied().unwrap_or(0)
            )?;
        }
        let of_faults: u64 = self
            .rows
            .iter()
            .filter(|(kind, _)| Kind::ALL.get(**kind).is_some_and(|k| k.is_fault()))
            .map(|(_, row)| row.runs)
            .sum();
        for (_, cause) in self.causes.iter().take(40) {
            writeln!(f, "{cause}")?;
        }
        if self.causes.len() > 40 {
            writeln!(f, "and {} more", self.causes.len() - 40)?;
        }
        let counts: Vec<&str> = self.counts.split_whitespace().collect();
        if let [reports, refused, garbage, corrupt] = counts[..] {
            writeln!(
                f,
                "reports accepted {reports}, refused {refused}; commands accepted {}; thrown \
                 away by the thread: {garbage} frames that were nobody's, {corrupt} corruptions \
                 of a ring",
                self.accepted
            )?;
        }
        writeln!(
            f,
            "reports read and not noted by a peer that was killed just then: {}; trace records \
             lost: {}",
            self.unnoted, self.lost_records
        )?;
        self.lost.iter().take(20).try_for_each(|line| writeln!(f, "LOST: {line}"))?;
        let attributable = self.attributable();
        write!(
            f,
            "{}: {of_faults} runs with a fault, {attributable} missed periods attributable, {} \
             losses",
            if self.is_contained() { "contained" } else { "NOT CONTAINED" },
            self.lost.len()
        )
    }
}
