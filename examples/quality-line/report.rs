// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tasks said at their end, and what it comes to. Pure.

use crate::scene::{self, Defect};
use crate::tasks::Failure;
use crate::trace::{self, Class, Trace};
use asmp_rt::thread::{Cpu, CpuSet};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The CPUs of this machine.
pub struct Machine {
    /// Of the partition that the cameras are in.
    pub cameras: CpuSet,
    /// Of all shared partitions.
    pub real_time: CpuSet,
    pub online: CpuSet,
}

/// What an acquisition task did.
#[derive(Debug)]
struct Camera {
    cpu: Cpu,
    activations: u64,
    missed: u64,
    moves: u64,
    latest_ns: u64,
    lost: u64,
}

/// From this instant on so many defect tasks looked at the products of a run.
#[derive(Debug, Clone, Copy)]
pub struct Team {
    pub at_ns: u64,
    pub run: u32,
    pub tasks: usize,
}

#[derive(Debug, Default)]
pub struct Report {
    cameras: Vec<Camera>,
    /// Of each camera: the numbers of the frames that it put in.
    frames: Vec<Vec<u32>>,
    /// A kind of tasks and how much one of them did.
    work: Vec<(String, u64)>,
    pub teams: Vec<Team>,
    pub traces: Vec<Trace>,
}

/// How many of the planted defects were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judged {
    planted: usize,
    found: usize,
    /// Planted, and not found.
    missing: usize,
    /// Found where nothing was planted, or twice.
    wrong: usize,
}

impl Judged {
    pub fn is_exact(&self) -> bool {
        self.missing == 0 && self.wrong == 0
    }
}

impl Report {
    /// Adds what one process said.
    pub fn read(&mut self, text: &str) -> Result<(), Failure> {
        for line in text.lines() {
            self.line(line).ok_or_else(|| format!("a task said {line:?}"))?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, words) = words.split_first()?;
        let numbers = || words.iter().map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>();
        match *first {
            "span" => trace::parse(words, &mut self.traces)?,
            "camera" => {
                let [cpu, activations, missed, moves, latest_ns, lost] = numbers()?[..] else {
                    return None;
                };
                let cpu = cpu as Cpu;
                self.cameras.push(Camera { cpu, activations, missed, moves, latest_ns, lost });
            }
            "frames" => self.frames.push(numbers()?.into_iter().map(|n| n as u32).collect()),
            "work" => {
                let [class, done] = words else { return None };
                self.work.push(((*class).to_owned(), done.parse().ok()?));
            }
            "team" => {
                let [at_ns, run, tasks] = numbers()?[..] else { return None };
                self.teams.push(Team { at_ns, run: run as u32, tasks: tasks as usize });
            }
            _ => return None,
        }
        Some(())
    }

    /// Compares the defects in the database with those that were planted in the frames.
    pub fn judge(&self, database: &str) -> Result<Judged, Failure> {
        let mut planted: BTreeSet<Defect> = BTreeSet::new();
        for (camera, frames) in (0..).zip(&self.frames) {
            planted.extend(frames.iter().flat_map(|frame| scene::planted(camera, *frame)));
        }
        let mut judged = Judged { planted: planted.len(), ..Judged::default() };
        for line in database.lines() {
            let numbers: Result<Vec<u32>, _> = line.split(' ').map(str::parse).collect();
            let [camera, frame, x, y, kind] = numbers?[..] else {
                return Err(format!("the database has {line:?}").into());
            };
            judged.found += 1;
            if !planted.remove(&Defect { camera, frame, x, y, kind }) {
                judged.wrong += 1;
            }
        }
        judged.missing = planted.len();
        Ok(judged)
    }

    /// Hard deadlines missed by all acquisition tasks.
    pub fn missed(&self) -> u64 {
        self.cameras.iter().map(|camera| camera.missed).sum()
    }

    fn work(&self, class: Class) -> u64 {
        let of_class = self.work.iter().filter(|(name, _)| name == class.name());
        of_class.map(|(_, done)| done).sum()
    }

    /// Nanoseconds that tasks of a class ran on CPUs that `are` says.
    fn time_ns(&self, class: Class, are: impl Fn(Cpu) -> bool) -> u64 {
        let spans = self.traces.iter().filter(|trace| trace.class == class);
        let spans = spans.flat_map(|trace| &trace.spans).filter(|span| are(span.cpu));
        spans.map(|span| span.to_ns - span.from_ns).sum()
    }

    pub fn text(&self, machine: &Machine, judged: &Judged) -> String {
        let mut text = String::new();
        let system = machine.online.difference(&machine.real_time);
        let _ = writeln!(text, "RT CPU {}, NRT CPU {system}\n", machine.real_time);
        let _ = writeln!(text, "RT0      CPU  activations  missed  moves       latest  lost");
        for (number, camera) in (1..).zip(&self.cameras) {
            let Camera { cpu, activations, missed, moves, latest_ns, lost } = camera;
            let us = latest_ns / 1000;
            let _ = writeln!(
                text,
                "camera{number}  {cpu:>3}  {activations:>11}  {missed:>6}  {moves:>5}  {us:>8} us  \
                 {lost:>4}"
            );
        }
        let _ = writeln!(text, "\nclass  ran on RT CPUs       ran on NRT CPUs      work");
        for class in Class::ALL {
            let work = match class {
                Class::Camera => self.cameras.iter().map(|camera| camera.activations).sum(),
                _ => self.work(class),
            };
            let work = match class {
                Class::Camera => format!("{work} frames acquired"),
                Class::Filter => format!("{work} frames filtered"),
                Class::Defect => format!("{work} frames with defects examined"),
                Class::Linux => format!("{} defects recorded, {work} fits", judged.found),
            };
            let real_time = self.time_ns(class, |cpu| machine.real_time.contains(cpu));
            let system = self.time_ns(class, |cpu| !machine.real_time.contains(cpu));
            let share = |ns: u64| {
                let percent = 100.0 * ns as f64 / (real_time + system).max(1) as f64;
                format!("{:>8.1} ms {percent:>5.1} %", ns as f64 / 1e6)
            };
            let (name, real_time, system) = (class.name(), share(real_time), share(system));
            let _ = writeln!(text, "{name:<5}  {real_time}  {system}  {work}");
        }
        let teams = self.teams.iter().map(|team| {
            let product = scene::product(team.run).name;
            format!("{} for {product}", team.tasks)
        });
        let _ = writeln!(text, "\ndefect tasks: {}", teams.collect::<Vec<_>>().join(", "));
        let Judged { planted, found, missing, wrong } = judged;
        let _ = writeln!(
            text,
            "defects: {planted} planted, {found} found, {missing} missing, {wrong} wrong"
        );
        text
    }
}
