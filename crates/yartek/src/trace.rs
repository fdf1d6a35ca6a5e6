// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest printed: its jobs, and the lines of its application.
//!
//! `yartek/modules/trace.h` describes the lines. Times are ticks since the epoch.

use asmp_analysis::Task;
use asmp_analysis::simulate::{Job, Observe, Record};

/// A job that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    pub task: usize,
    pub activation: u64,
    /// From this instant on it may run.
    pub start_ticks: u64,
    pub begun_ticks: u64,
    pub end_ticks: u64,
}

/// The last words of a guest that could not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// `not-begun`, `not-ended`, `too-long` or `trap`.
    pub why: String,
    /// The address of the instruction that trapped; 0 for other reasons.
    pub address: u64,
    /// Task and activation, inside a job.
    pub job: Option<(usize, u64)>,
}

/// Why a trace is not all that ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Partial {
    #[error("line {line} of its trace is no such line: {text}")]
    Garbage { line: usize, text: String },
    #[error("{jobs} jobs found no room in its trace: tasks leave its background too little time")]
    Lost { jobs: u64 },
    #[error("it ended before its time")]
    EndsEarly,
}

/// What a guest printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub jobs: Vec<Ran>,
    pub fault: Option<Fault>,
    /// When it ended.
    pub end_ticks: Option<u64>,
    /// The first thing that is wrong.
    pub partial: Option<Partial>,
    /// The application's lines.
    pub lines: Vec<String>,
}

enum Line {
    Job(Ran),
    Lost(u64),
    Fault(Fault),
    End(u64),
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// `None`: a word that begins as one of ours, and goes on otherwise.
fn line(text: &str, tasks: usize) -> Option<Line> {
    let words: Vec<&str> = text.split(' ').collect();
    let task = |text: &str| text.parse().ok().filter(|task| *task < tasks);
    match words.as_slice() {
        ["j", number, activation, start, begun, end] => {
            let ran = Ran {
                task: task(number)?,
                activation: hex(activation)?,
                start_ticks: hex(start)?,
                begun_ticks: hex(begun)?,
                end_ticks: hex(end)?,
            };
            let is_in_order =
                ran.start_ticks <= ran.begun_ticks && ran.begun_ticks <= ran.end_ticks;
            is_in_order.then_some(Line::Job(ran))
        }
        ["lost", jobs] => Some(Line::Lost(jobs.parse().ok()?)),
        ["fault", why, address, job @ ..] => {
            let job = match job {
                [] => None,
                [number, activation] => Some((task(number)?, hex(activation)?)),
                _ => return None,
            };
            Some(Line::Fault(Fault { why: (*why).to_owned(), address: hex(address)?, job }))
        }
        ["end", at] => Some(Line::End(hex(at)?)),
        _ => None,
    }
}

impl Trace {
    /// Reads what a guest with so many tasks printed. After a line that makes no sense, only the
    /// lines of the application are read.
    pub fn of(console: &str, tasks: usize) -> Self {
        let mut trace = Self::default();
        let mut lost = 0;
        for (number, text) in console.lines().enumerate() {
            let text = text.trim_end_matches('\r');
            let is_ours = text
                .split(' ')
                .next()
                .is_some_and(|word| ["j", "lost", "fault", "end"].contains(&word));
            if !is_ours {
                trace.lines.push(text.to_owned());
                continue;
            }
            let is_over = trace.end_ticks.is_some() || trace.partial.is_some();
            match line(text, tasks).filter(|_| !is_over) {
                Some(Line::Job(ran)) => trace.jobs.push(ran),
                Some(Line::Lost(jobs)) => lost += jobs,
                Some(Line::Fault(fault)) => trace.fault = Some(fault),
                Some(Line::End(at)) => trace.end_ticks = Some(at),
                None if trace.partial.is_some() => {}
                None => {
                    let text = text.to_owned();
                    trace.partial = Some(Partial::Garbage { line: number + 1, text });
                }
            }
        }
        trace.partial = match trace.partial {
            None if lost > 0 => Some(Partial::Lost { jobs: lost }),
            None if trace.end_ticks.is_none() => Some(Partial::EndsEarly),
            partial => partial,
        };
        // An empty line stands before a fault.
        trace.lines.retain(|line| !line.is_empty());
        trace
    }

    /// The jobs as the simulator records its own, in units that `in_units` makes of ticks. The
    /// tasks are those of the table, their times in ticks.
    pub fn record(&self, tasks: &[Task], in_units: impl Fn(u64) -> u64) -> Record {
        let mut record = Record::up_to(usize::MAX);
        for ran in &self.jobs {
            let job = Job {
                stream: ran.task as u32,
                index: ran.activation,
                arrival_ticks: in_units(ran.start_ticks),
                release_ticks: in_units(ran.start_ticks),
                deadline_ticks: Some(in_units(ran.start_ticks + tasks[ran.task].deadline_ticks)),
                cost_ticks: in_units(ran.end_ticks) - in_units(ran.begun_ticks),
                left_ticks: 0,
            };
            record.released(&job);
            record.ran(0, &job, in_units(ran.begun_ticks), in_units(ran.end_ticks));
            let _ = record.finished(&job, in_units(ran.end_ticks));
        }
        record
    }

    /// Jobs that ended after their deadline. The tasks are those of the table.
    pub fn missed(&self, tasks: &[Task]) -> usize {
        let is_late = |ran: &&Ran| ran.end_ticks - ran.start_ticks > tasks[ran.task].deadline_ticks;
        self.jobs.iter().filter(is_late).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "hello\nj 0 0 0 bc 9328\r\nj 2 1 a b c\nend fdb44\n";

    #[test]
    fn jobs_and_the_applications_lines_are_kept_apart() {
        let trace = Trace::of(GOOD, 3);
        let second =
            Ran { task: 2, activation: 1, start_ticks: 10, begun_ticks: 11, end_ticks: 12 };
        assert_eq!((trace.jobs.len(), trace.jobs[1]), (2, second));
        assert_eq!(trace.lines, ["hello"]);
        assert_eq!((trace.end_ticks, trace.partial), (Some(0xf_db44), None));
    }

    #[test]
    fn what_makes_no_sense_ends_the_trace_and_is_named() {
        let bad = [
            "j 3 0 0 1 2",
            "j 0 0 0 1",
            "j 0 0 0 1 2 3",
            "j 0 0 2 1 3",
            "j 0 0 0 3 2",
            "j x 0 0 0 0",
            "j 0 0 0 1 g",
            "end",
            "end x",
            "lost",
            "fault trap",
            "fault trap 1 0",
        ];
        for text in bad {
            let trace = Trace::of(&format!("j 0 0 0 1 2\n{text}\nj 1 0 0 2 3\nend 9\n"), 3);
            let garbage = Partial::Garbage { line: 2, text: text.to_owned() };
            assert_eq!(trace.partial, Some(garbage));
            assert_eq!(trace.jobs.len(), 1, "{text}: what came before is kept");
        }
    }

    #[test]
    fn a_trace_without_its_end_or_with_lost_jobs_is_partial() {
        assert_eq!(Trace::of("j 0 0 0 1 2\n", 1).partial, Some(Partial::EndsEarly));
        assert_eq!(Trace::of("", 1).partial, Some(Partial::EndsEarly));
        let lost = Trace::of("lost 3\nj 0 0 0 1 2\nlost 4\nend 9\n", 1);
        assert_eq!(lost.partial, Some(Partial::Lost { jobs: 7 }));
    }

    #[test]
    fn a_fault_says_where_and_in_which_job() {
        let trace = Trace::of("\nfault trap 4000 1 2a\n", 2);
        let fault = Fault { why: "trap".to_owned(), address: 0x4000, job: Some((1, 42)) };
        assert_eq!(trace.fault, Some(fault));
        assert_eq!(Trace::of("fault trap 8\n", 2).fault.expect("a fault").job, None);
    }

    #[test]
    fn a_record_has_the_deadlines_and_misses_of_the_table() {
        let tasks = [Task::new("a", 2, 10).deadline(4), Task::new("b", 2, 10)];
        let trace = Trace::of("j 0 0 0 1 3\nj 0 1 a c f\nj 1 0 0 f 11\nend 20\n", 2);
        let record = trace.record(&tasks, |ticks| ticks * 2);
        assert_eq!(trace.missed(&tasks), 2);
        assert_eq!(record.misses.len(), 2);
        assert_eq!((record.segments[0].from_ticks, record.segments[0].to_ticks), (2, 6));
        assert_eq!(record.deadlines[1].at_ticks, 28);
    }
}
