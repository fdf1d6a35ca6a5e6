// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a task ran and when, as it sees itself: it asks for its CPU and the time again and again
//! while it works. Neither enters the kernel, so that this moves no task off a real-time CPU.

use asmp_rt::thread::{Cpu, gethrtime};
use std::fmt;

/// A task that sees nothing of itself for longer was preempted, and the time is not counted.
const GAP_NS: u64 = 1_000_000;

/// The four kinds of tasks of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Camera,
    Filter,
    Defect,
    Linux,
}

impl Class {
    pub const ALL: [Self; 4] = [Self::Camera, Self::Filter, Self::Defect, Self::Linux];

    /// As the paper has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Camera => "RT0",
            Self::Filter => "RT1",
            Self::Defect => "RT2",
            Self::Linux => "Linux",
        }
    }
}

/// A task worked on a CPU from one instant to another, in ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub cpu: Cpu,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// What one task saw.
#[derive(Debug, Clone)]
pub struct Trace {
    pub class: Class,
    pub name: String,
    pub spans: Vec<Span>,
}

impl Trace {
    /// With room for so many spans: until then nothing is allocated.
    pub fn new(class: Class, name: &str, room: usize) -> Self {
        Self { class, name: name.to_owned(), spans: Vec::with_capacity(room) }
    }

    /// A piece of work begins now.
    pub fn begin(&mut self) {
        let (cpu, now_ns) = (cpu(), gethrtime());
        self.spans.push(Span { cpu, from_ns: now_ns, to_ns: now_ns });
    }

    /// The task is still at this piece of work, or has just done it.
    pub fn mark(&mut self) {
        self.extend(GAP_NS);
    }

    /// A task that no other preempts has done it, however long it took. Returns the time.
    pub fn end(&mut self) -> u64 {
        self.extend(u64::MAX)
    }

    fn extend(&mut self, gap_ns: u64) -> u64 {
        let (cpu, now_ns) = (cpu(), gethrtime());
        match self.spans.last_mut() {
            Some(last) if last.cpu == cpu && now_ns - last.to_ns <= gap_ns => last.to_ns = now_ns,
            _ => self.spans.push(Span { cpu, from_ns: now_ns, to_ns: now_ns }),
        }
        now_ns
    }

    /// How often it was on another CPU than before, and than `first` at its beginning.
    pub fn moves(&self, first: Cpu) -> usize {
        let cpus = || self.spans.iter().map(|span| span.cpu);
        std::iter::once(first).chain(cpus()).zip(cpus()).filter(|(one, next)| one != next).count()
    }
}

fn cpu() -> Cpu {
    // SAFETY: takes nothing, touches nothing.
    let cpu = unsafe { libc::sched_getcpu() };
    Cpu::try_from(cpu).unwrap_or_default()
}

/// One line for each span, which [`parse`] reads.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Span { cpu, from_ns, to_ns } in &self.spans {
            let (class, name) = (self.class.name(), &self.name);
            writeln!(f, "span {class} {name} {cpu} {from_ns} {to_ns}")?;
        }
        Ok(())
    }
}

/// Adds a span of these words to the trace of its task.
pub fn parse(words: &[&str], traces: &mut Vec<Trace>) -> Option<()> {
    let [class, name, cpu, from_ns, to_ns] = words else { return None };
    let class = Class::ALL.into_iter().find(|one| one.name() == *class)?;
    let span =
        Span { cpu: cpu.parse().ok()?, from_ns: from_ns.parse().ok()?, to_ns: to_ns.parse().ok()? };
    match traces.iter_mut().find(|trace| trace.name == *name) {
        Some(trace) => trace.spans.push(span),
        None => traces.push(Trace { class, name: (*name).to_owned(), spans: vec![span] }),
    }
    Some(())
}
