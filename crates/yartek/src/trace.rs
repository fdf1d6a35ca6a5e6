// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest printed: its jobs, and the lines of its application.
//!
//! `yartek/modules/trace.h` describes the lines. Times are ticks since the epoch.

use crate::table::TableTask;
use asmp_analysis::simulate::{Job, Observe, Record};
use asmp_analysis::{Late, Task};
use std::collections::BTreeMap;

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
    let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digits.then(|| u64::from_str_radix(text, 16).ok())?
}

/// A time after the epoch, below that of which all sums have room.
fn time(text: &str) -> Option<u64> {
    hex(text).filter(|ticks| *ticks < 1 << 62)
}

/// A count, or an activation: the board's have 32 bits.
fn word(text: &str, radix: u32) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| char::from(byte).is_digit(radix));
    is_digits.then(|| u32::from_str_radix(text, radix).ok().map(u64::from))?
}

/// `None`: a word that begins as one of ours, and goes on otherwise.
fn line(text: &str, tasks: usize) -> Option<Line> {
    let words: Vec<&str> = text.split(' ').collect();
    let task = |text: &str| word(text, 10).map(|task| task as usize).filter(|task| *task < tasks);
    match words.as_slice() {
        ["j", number, activation, start, begun, end] => {
            let ran = Ran {
                task: task(number)?,
                activation: word(activation, 16)?,
                start_ticks: time(start)?,
                begun_ticks: time(begun)?,
                end_ticks: time(end)?,
            };
            let is_in_order =
                ran.start_ticks <= ran.begun_ticks && ran.begun_ticks <= ran.end_ticks;
            is_in_order.then_some(Line::Job(ran))
        }
        ["lost", jobs] => Some(Line::Lost(word(jobs, 10)?)),
        ["fault", why, address, job @ ..] => {
            let job = match job {
                [] => None,
                [number, activation] => Some((task(number)?, word(activation, 16)?)),
                _ => return None,
            };
            Some(Line::Fault(Fault { why: (*why).to_owned(), address: hex(address)?, job }))
        }
        ["end", at] => Some(Line::End(time(at)?)),
        _ => None,
    }
}

/// Lines that begin with one of these are the trace's.
const WORDS: [&str; 4] = ["j", "lost", "fault", "end"];

/// A line of the trace that a fault has cut: perhaps in its first word.
fn is_cut(text: &str, next: Option<&&str>, tasks: usize) -> bool {
    let is_fault = |next: &&str| matches!(line(next, tasks), Some(Line::Fault(_)));
    let first = text.split(' ').next().unwrap_or(text);
    let is_whole = WORDS.contains(&first);
    let is_ours = is_whole || text == first && WORDS.iter().any(|word| word.starts_with(first));
    is_ours && next.is_some_and(is_fault)
}

impl Trace {
    /// Reads what a guest with so many tasks printed. After a line that makes no sense, only the
    /// lines of the application are read, and a fault.
    pub fn of(console: &str, tasks: usize) -> Self {
        let mut trace = Self::default();
        let mut lost = 0;
        let all: Vec<&str> = console.lines().map(|text| text.trim_end_matches('\r')).collect();
        for (number, text) in all.iter().copied().enumerate() {
            // The guest begins a fault on a new line. A whole line has an empty one behind it.
            if !text.is_empty() && is_cut(text, all.get(number + 1), tasks) {
                continue;
            }
            if !text.split(' ').next().is_some_and(|word| WORDS.contains(&word)) {
                trace.lines.push(text.to_owned());
                continue;
            }
            let is_over = trace.end_ticks.is_some() || trace.partial.is_some();
            let is_read =
                |line: &Line| !is_over || matches!(line, Line::Fault(_)) && trace.fault.is_none();
            match line(text, tasks).filter(is_read) {
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

    /// The first jobs, as the simulator records its own, in units that `in_units` makes of ticks.
    /// The tasks are those of the table, their times in ticks.
    pub fn record(&self, tasks: &[Task], most: usize, in_units: impl Fn(u64) -> u64) -> Record {
        let mut record = Record::up_to(most);
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

    /// The trace may lack jobs that ran.
    fn lacks_jobs(&self) -> bool {
        matches!(self.partial, Some(Partial::Lost { .. } | Partial::Garbage { .. }))
    }

    /// Jobs that the kernel has dropped. `table`: the tasks, if they are known. Only those of
    /// `late = "skip"` are dropped, and of a periodic one the last are missed, too: those due by
    /// `until_ticks`, and by the end of the trace. Without a table: activations that are left out.
    pub fn dropped(&self, table: Option<&[TableTask]>, until_ticks: u64) -> u64 {
        if self.lacks_jobs() {
            return 0;
        }
        let is_dropped = |task: usize| table.is_none_or(|table| table[task].late == Late::Skip);
        let mut next: BTreeMap<usize, u64> = BTreeMap::new();
        let mut dropped = 0;
        for ran in self.jobs.iter().filter(|ran| is_dropped(ran.task)) {
            let due = next.insert(ran.task, ran.activation + 1).unwrap_or(0);
            dropped += ran.activation.saturating_sub(due);
        }
        let is_known = |task: &TableTask| task.late == Late::Skip;
        dropped + self.due_without_end(table.unwrap_or_default(), until_ticks, is_known)
    }

    /// Jobs that were due by `until_ticks`, and by the end of the trace, and had not ended. Those
    /// of `late = "skip"` count as dropped instead; when a sporadic task was to run is not known.
    pub fn overdue(&self, table: &[TableTask], until_ticks: u64) -> u64 {
        match self.lacks_jobs() {
            true => 0,
            false => self.due_without_end(table, until_ticks, |task| task.late != Late::Skip),
        }
    }

    /// Of these tasks, if they are periodic: jobs after the last one that ended.
    fn due_without_end(
        &self,
        table: &[TableTask],
        until_ticks: u64,
        counts: impl Fn(&TableTask) -> bool,
    ) -> u64 {
        let Some(end_ticks) = self.end_ticks else { return 0 };
        let mut next = vec![0; table.len()];
        for ran in self.jobs.iter().filter(|ran| ran.task < table.len()) {
            next[ran.task] = ran.activation + 1;
        }
        let of = |(task, next): (&TableTask, u64)| {
            let times = task.times;
            let first_due_ticks = times.offset_ticks.saturating_add(times.deadline_ticks);
            let due_ticks = first_due_ticks.saturating_add(next.saturating_mul(times.period_ticks));
            let over_ticks = until_ticks.min(end_ticks).checked_sub(due_ticks);
            over_ticks.map_or(0, |over_ticks| over_ticks / times.period_ticks + 1)
        };
        let counted = table.iter().zip(next);
        counted.filter(|(task, _)| counts(task) && !task.is_sporadic).map(of).sum()
    }

    /// Jobs that ended after their deadline. The tasks are those of the table.
    pub fn missed(&self, tasks: &[Task]) -> usize {
        late(&self.jobs, tasks)
    }
}

/// How many of these ended after their deadline.
pub(crate) fn late(jobs: &[Ran], tasks: &[Task]) -> usize {
    let is_late = |ran: &&Ran| ran.end_ticks - ran.start_ticks > tasks[ran.task].deadline_ticks;
    jobs.iter().filter(is_late).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Times;

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
            "j +0 0 0 1 2",
            "j 0 +0 0 1 2",
            "j 0 0 +0 1 2",
            "j 0 100000000 0 1 2",
            "j 0 0 ffffffffffffe77a ffffffffffffe88c 120",
            "end 4000000000000000",
            "lost +1",
            "lost 18446744073709551615",
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
    fn a_fault_in_the_midst_of_a_line_is_read_and_the_line_is_not() {
        let fault = Fault { why: "too-long".to_owned(), address: 0, job: Some((0, 3)) };
        let whole = ["j 0 0 0 bc 9328", "lost 12", "end fdb44"];
        for text in whole.iter().flat_map(|text| (1..=text.len()).map(|at| &text[..at])) {
            let console = format!("j 0 0 0 1 2\nhello\n{text}\nfault too-long 0 0 3\n");
            let trace = Trace::of(&console, 1);
            assert_eq!(trace.fault.as_ref(), Some(&fault), "{text}");
            assert_eq!((trace.jobs.len(), trace.lines.len()), (1, 1), "{text}");
            assert_eq!(trace.partial, Some(Partial::EndsEarly), "{text}");
        }
        // Of the application.
        let trace = Trace::of("hel\nfault too-long 0 0 3\n", 1);
        assert_eq!((trace.fault, &*trace.lines), (Some(fault.clone()), &["hel".to_owned()][..]));
        // Whole, or of no sense before.
        let trace = Trace::of("j 0 0 0 1 2\n\nfault too-long 0 0 3\n", 1);
        assert_eq!((trace.jobs.len(), trace.fault), (1, Some(fault.clone())));
        let trace = Trace::of("j 0 0\nhello\n\nfault too-long 0 0 3\n", 1);
        assert_eq!(trace.fault, Some(fault));
        assert!(matches!(trace.partial, Some(Partial::Garbage { line: 1, .. })));
    }

    fn task(late: Late, is_sporadic: bool) -> TableTask {
        TableTask {
            name: "a".to_owned(),
            times: Times { period_ticks: 10, deadline_ticks: 8, offset_ticks: 2, cost_ticks: 1 },
            is_sporadic,
            entry: None,
            late,
            most_ticks: None,
        }
    }

    #[test]
    fn dropped_jobs_are_those_that_are_left_out_and_the_last_that_are_due() {
        // Activations 0, 2, 4 and 7.
        let trace = Trace::of("j 0 2 0 1 3\nj 0 4 0 5 6\nj 0 7 48 49 4a\nend 63\n", 1);
        assert_eq!(trace.dropped(None, 1000), 2 + 1 + 2);
        let skips = [task(Late::Skip, false)];
        // Activation 8 is due at 90, 9 at 100.
        let cases = [(89, 0), (90, 1), (99, 1), (100, 1), (1000, 1)];
        for (until_ticks, more) in cases {
            assert_eq!(trace.dropped(Some(&skips), until_ticks), 5 + more, "{until_ticks}");
        }
        assert_eq!(trace.dropped(Some(&[task(Late::Skip, true)]), 1000), 5);
        assert_eq!(trace.dropped(Some(&[task(Late::Finish, false)]), 1000), 0);
        // None has run.
        assert_eq!(Trace::of("end 63\n", 1).dropped(Some(&skips), 40), 4);
        assert_eq!(Trace::of("lost 3\nj 0 7 0 1 2\nend 63\n", 1).dropped(None, 99), 0);
    }

    #[test]
    fn jobs_that_were_due_and_have_not_ended_are_overdue() {
        // Activation 1 is due at 20, the last by the end at 40.
        let trace = Trace::of("j 0 0 0 1 3\nend 2a\n", 1);
        for late in [Late::Finish, Late::Fault] {
            for (until_ticks, overdue) in [(19, 0), (20, 1), (30, 2), (1000, 3)] {
                assert_eq!(trace.overdue(&[task(late, false)], until_ticks), overdue);
            }
        }
        assert_eq!(trace.overdue(&[task(Late::Skip, false)], 1000), 0);
        assert_eq!(trace.overdue(&[task(Late::Finish, true)], 1000), 0);
        let unended = Trace::of("j 0 0 0 1 3\n", 1);
        assert_eq!(unended.overdue(&[task(Late::Finish, false)], 1000), 0);
        let lost = Trace::of("lost 1\nj 0 0 0 1 3\nend 2a\n", 1);
        assert_eq!(lost.overdue(&[task(Late::Finish, false)], 1000), 0);
    }

    #[test]
    fn a_record_has_the_deadlines_and_misses_of_the_table() {
        let tasks = [Task::new("a", 2, 10).deadline(4), Task::new("b", 2, 10)];
        let trace = Trace::of("j 0 0 0 1 3\nj 0 1 a c f\nj 1 0 0 f 11\nend 20\n", 2);
        let record = trace.record(&tasks, 9, |ticks| ticks * 2);
        assert_eq!(trace.missed(&tasks), 2);
        assert_eq!(record.misses.len(), 2);
        assert_eq!((record.segments[0].from_ticks, record.segments[0].to_ticks), (2, 6));
        assert_eq!(record.deadlines[1].at_ticks, 28);
        let cut = trace.record(&tasks, 1, |ticks| ticks);
        assert_eq!((cut.segments.len(), cut.is_cut, record.is_cut), (1, true, false));
    }
}
