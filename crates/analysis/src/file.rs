// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task sets as text: TOML and CSV. Unknown fields and columns are refused; so is what contradicts
//! itself.
//!
//! ```toml
//! [[task]]
//! name = "sonar1"
//! cost = "20 ms"            # or: measured = "DIR", the longest of a measurement run
//! period = "500 ms"         # or: sporadic = "500 ms", the least time between two arrivals
//! deadline = "400 ms"       # the period if left out
//! ```
//!
//! CSV has a header with the same names, one task a line, no quotes.

use crate::place::Room;
use crate::simulate::model::{Background, Interrupt};
use crate::syntax::in_a_line;
use crate::task::{Arrival, Class, Cost, Late, Task, is_c_name, is_name};
use crate::time::TimeBase;
use crate::verdict::Inapplicable;
use crate::workload::Workload;
use asmp_duration::ExactDuration;
use chains::{ChainEntry, Chains};
use entry::{NAME, above_0, bad, in_line, named, shown, ticks, too_long};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

mod chains;
mod entry;
mod lines;

pub use entry::FileError;
pub use lines::Places;

/// Gives the longest value of a measurement run, in nanoseconds. Errors: why there is none.
pub type Measured<'a> = &'a dyn Fn(&str) -> Result<u64, String>;

/// For callers that read no measurement runs: refuses each.
pub fn no_measurement(run: &str) -> Result<u64, String> {
    Err(format!("measurement runs are not read here: {run}"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    task: Vec<Spanned<Entry>>,
    #[serde(default)]
    chain: Vec<Spanned<ChainEntry>>,
    #[serde(default)]
    background: Vec<Spanned<BackgroundEntry>>,
    #[serde(default)]
    interrupt: Vec<Spanned<InterruptEntry>>,
    room: Option<Spanned<RoomEntry>>,
    board: Option<Spanned<BoardEntry>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    cost: Option<String>,
    measured: Option<String>,
    period: Option<String>,
    sporadic: Option<String>,
    deadline: Option<String>,
    offset: Option<String>,
    jitter: Option<String>,
    blocking: Option<String>,
    priority: Option<u32>,
    class: Option<Class>,
    core: Option<u32>,
    #[serde(default)]
    importance: u32,
    app: Option<String>,
    /// Bytes.
    #[serde(default)]
    memory: u64,
    /// Bytes a second.
    #[serde(default)]
    bandwidth: u64,
    entry: Option<String>,
    late: Option<Late>,
    most: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackgroundEntry {
    name: String,
    cost: String,
    period: String,
    core: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterruptEntry {
    name: String,
    flag: Option<String>,
    service: String,
    gap: Option<String>,
    core: Option<u32>,
    entry: Option<String>,
    most: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoomEntry {
    memory: Option<u64>,
    bandwidth: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoardEntry {
    name: String,
}

/// Reads TOML. `measured` finds the longest value of a run that a task names. Errors: the line, or
/// the entry by its name.
pub fn from_toml(text: &str, measured: Measured) -> Result<Workload, FileError> {
    let document: Document = toml::from_str(text).map_err(|error| {
        let mut reason = in_a_line(text, &error);
        const TEXT: &str = "a text in quotes";
        let is_name = ["name", "flag", "app", "entry"]
            .iter()
            .any(|key| reason.contains(&format!(", {key} =")));
        if let Some(at) = reason.find(TEXT).filter(|_| !is_name) {
            reason.truncate(at + TEXT.len());
            reason += "; a time has its unit: \"5 ms\"";
        }
        FileError::Syntax { reason }
    })?;
    if document.task.is_empty() {
        return Err(FileError::NoTasks);
    }
    let time = time_base(document.times(), text)?;
    let mut tasks = Vec::with_capacity(document.task.len());
    let mut own_deadlines = Vec::new();
    let mut names = BTreeMap::new();
    for (index, entry) in document.task.into_iter().enumerate() {
        if entry.as_ref().deadline.is_some() {
            own_deadlines.push(index);
        }
        tasks.push(in_line(text, entry, |entry| {
            named("task", &entry.name)?;
            if names.insert(entry.name.clone(), index).is_some() {
                return Err(bad("task", &entry.name, "this name occurs twice: rename one"));
            }
            let place = format!("task {}", entry.name);
            entry.task(time, measured).map_err(|reason| FileError::Entry { place, reason })
        })?);
    }
    let Chains { triggered: chains, sampled } =
        chains::read(document.chain, text, time, &tasks, (&names, &own_deadlines))?;
    let background =
        document.background.into_iter().map(|entry| in_line(text, entry, |entry| entry.work(time)));
    let background = background.collect::<Result<_, _>>()?;
    let interrupts = document
        .interrupt
        .into_iter()
        .map(|entry| in_line(text, entry, |entry| entry.interrupt(time)));
    let interrupts = interrupts.collect::<Result<_, _>>()?;
    let room = document.room.map(Spanned::into_inner).map_or_else(Room::default, |room| Room {
        memory_bytes: room.memory,
        bandwidth: room.bandwidth,
    });
    let board = document.board.map(|entry| {
        in_line(text, entry, |entry| named("board", &entry.name).map(|()| entry.name))
    });
    let board = board.transpose()?;
    Ok(Workload { time, tasks, chains, sampled, background, interrupts, room, board })
}

/// Ticks in which each of these times is whole. A text that is not a duration is refused later, by
/// the name of its field.
fn time_base<'a>(
    times: impl Iterator<Item = &'a String>,
    file: &str,
) -> Result<TimeBase, FileError> {
    let mut time = TimeBase::NANOSECONDS;
    for text in times {
        let Ok(duration) = text.parse::<ExactDuration>() else { continue };
        time = time.including(duration).ok_or_else(|| {
            let line = file.lines().position(|line| has_value(line, text));
            FileError::TimeBase { line: line.unwrap_or(0) + 1, text: shown(text) }
        })?;
    }
    Ok(time)
}

/// Does a line have this value, as more than a part of another one or of a comment?
fn has_value(line: &str, value: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '.' || c == '/';
    let line = line.split('#').next().unwrap_or(line);
    line.match_indices(value).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + value.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

impl Document {
    /// All times, as written.
    fn times(&self) -> impl Iterator<Item = &String> {
        let tasks = self.task.iter().flat_map(|entry| entry.as_ref().times());
        let chains = self.chain.iter().flat_map(|entry| entry.as_ref().times());
        let background = self.background.iter().map(Spanned::as_ref);
        let background = background.flat_map(|entry| [&entry.cost, &entry.period]);
        let interrupts = self.interrupt.iter().map(Spanned::as_ref).flat_map(|entry| {
            [Some(&entry.service), entry.gap.as_ref(), entry.flag.as_ref()].into_iter().flatten()
        });
        tasks.chain(chains).chain(background).chain(interrupts)
    }
}

impl Entry {
    /// Its times, as written.
    fn times(&self) -> impl Iterator<Item = &String> {
        let all = [&self.cost, &self.period, &self.sporadic, &self.deadline, &self.offset];
        all.into_iter().chain([&self.jitter, &self.blocking, &self.most]).flatten()
    }

    fn task(self, time: TimeBase, measured: Measured) -> Result<Task, String> {
        let of = |field, text: &String| ticks(time, field, text);
        let some =
            |field, text: &Option<String>| text.as_ref().map(|text| of(field, text)).transpose();
        let cost = match (&self.cost, &self.measured) {
            (Some(cost), None) => Cost::Guaranteed(of("cost", cost)?),
            (None, Some(run)) => {
                let longest = ExactDuration::from_ns(measured(run)?);
                let ticks = time.ticks(longest).ok_or_else(|| too_long(time, "measured"))?;
                Cost::Measured { ticks, run: run.clone() }
            }
            _ => return Err("give either cost or measured".to_owned()),
        };
        let (period_ticks, arrival) = match (&self.period, &self.sporadic) {
            (Some(period), None) => (of("period", period)?, Arrival::Periodic),
            (None, Some(least)) => (of("sporadic", least)?, Arrival::Sporadic),
            _ => return Err("give either period or sporadic".to_owned()),
        };
        let offset_ticks = some("offset", &self.offset)?;
        if offset_ticks.is_some() && arrival == Arrival::Sporadic {
            return Err("offset: a sporadic task has none: leave it out".to_owned());
        }
        if let Some(priority) = self.priority.filter(|priority| !(1..=99).contains(priority)) {
            return Err(format!("priority: {priority} is not one of SCHED_FIFO's: use 1 to 99"));
        }
        if self.app.as_ref().is_some_and(|app| !is_name(app)) {
            return Err(format!("app: {NAME}"));
        }
        check_entry(self.entry.as_ref())?;
        let most_ticks = some("most", &self.most)?;
        if most_ticks.is_some_and(|most| most < cost.ticks()) {
            return Err("most: it is below the cost, so that each whole job would be stopped: \
                        raise it"
                .to_owned());
        }
        let task = Task {
            deadline_ticks: some("deadline", &self.deadline)?.unwrap_or(period_ticks),
            cost,
            period_ticks,
            arrival,
            offset_ticks,
            jitter_ticks: some("jitter", &self.jitter)?.unwrap_or(0),
            blocking_ticks: some("blocking", &self.blocking)?.unwrap_or(0),
            priority: self.priority,
            class: self.class.unwrap_or(Class::High),
            core: self.core,
            importance: self.importance,
            app: self.app,
            memory_bytes: self.memory,
            bandwidth: self.bandwidth,
            entry: self.entry,
            late: self.late.unwrap_or_default(),
            most_ticks,
            name: self.name,
        };
        // The place says which task.
        crate::check::check(std::slice::from_ref(&task)).map_err(|error| match error {
            Inapplicable::Zero { what, .. } => format!("{what} is 0"),
            Inapplicable::TooLong { what, .. } => too_long(time, what),
            other => other.to_string(),
        })?;
        Ok(task)
    }
}

impl BackgroundEntry {
    fn work(self, time: TimeBase) -> Result<Background, FileError> {
        named("background", &self.name)?;
        let of = |field, text| above_0(time, "background", &self.name, field, text);
        let (cost_ticks, period_ticks) = (of("cost", &self.cost)?, of("period", &self.period)?);
        Ok(Background { cost_ticks, period_ticks, core: self.core, name: self.name })
    }
}

impl InterruptEntry {
    fn interrupt(self, time: TimeBase) -> Result<Interrupt, FileError> {
        named("interrupt", &self.name)?;
        let of = |field, text| above_0(time, "interrupt", &self.name, field, text);
        let flag_ticks = self.flag.as_ref().map(|flag| of("flag", flag)).transpose()?.unwrap_or(0);
        let service_ticks = of("service", &self.service)?;
        let gap_ticks = self.gap.as_ref().map(|gap| of("gap", gap)).transpose()?;
        let wrong = |reason: String| bad("interrupt", &self.name, reason);
        check_entry(self.entry.as_ref()).map_err(wrong)?;
        match (gap_ticks, self.most) {
            (None, None) => {
                let what =
                    "nothing limits how often it comes: give gap, the least time between two";
                return Err(wrong(format!("{what}, or most, the raises at which it is masked")));
            }
            (_, Some(0)) => return Err(wrong("most is 0: it would never be served".to_owned())),
            _ => {}
        }
        Ok(Interrupt {
            flag_ticks,
            service_ticks,
            gap_ticks,
            core: self.core,
            entry: self.entry,
            most: self.most,
            name: self.name,
        })
    }
}

fn check_entry(entry: Option<&String>) -> Result<(), String> {
    match entry.filter(|entry| !is_c_name(entry)) {
        Some(entry) => Err(format!(
            "entry: {:?} is no name of a function of C: use up to 31 letters, digits and _, first \
             no digit, and no word of C",
            shown(entry)
        )),
        None => Ok(()),
    }
}

fn in_row(line: usize, reason: String) -> FileError {
    FileError::Entry { place: format!("line {}", line + 1), reason }
}

/// Reads CSV: a header of field names, then a task a line. Empty fields are left out; lines that
/// are empty or begin with `#` are skipped.
pub fn from_csv(text: &str, measured: Measured) -> Result<Workload, FileError> {
    let entries = rows(text)?;
    let time = time_base(entries.iter().flat_map(|(_, entry)| entry.times()), text)?;
    let task = |(line, entry): (usize, Entry)| {
        entry.task(time, measured).map_err(|reason| in_row(line, reason))
    };
    let tasks = entries.into_iter().map(task).collect::<Result<_, _>>()?;
    Ok(Workload { time, tasks, ..Workload::default() })
}

/// The tasks of a CSV, each with the number of its line, from 0.
fn rows(text: &str) -> Result<Vec<(usize, Entry)>, FileError> {
    // What spreadsheets put in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let Some((first, header)) = lines.next() else {
        return Err(FileError::NoTasks);
    };
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    for (index, column) in columns.iter().enumerate() {
        if columns[..index].contains(column) {
            return Err(in_row(first, format!("column {column} occurs twice")));
        }
        Entry::default().set(column, "").map_err(|reason| in_row(first, reason))?;
    }
    let mut entries: Vec<(usize, Entry)> = Vec::new();
    let mut names = BTreeMap::new();
    for (line, row) in lines {
        if row.contains('"') {
            return Err(in_row(line, "remove the quotes: fields cannot contain commas".to_owned()));
        }
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        if fields.len() != columns.len() {
            return Err(in_row(
                line,
                format!("{} fields, the header has {}", fields.len(), columns.len()),
            ));
        }
        let mut entry = Entry::default();
        for (column, field) in columns.iter().zip(fields) {
            entry.set(column, field).map_err(|reason| in_row(line, reason))?;
        }
        if entry.name.is_empty() {
            entry.name = format!("task{}", entries.len() + 1);
        }
        named("task", &entry.name).map_err(|error| in_row(line, error.to_string()))?;
        if names.insert(entry.name.clone(), line).is_some() {
            return Err(in_row(line, format!("the name {} occurs twice: rename one", entry.name)));
        }
        entries.push((line, entry));
    }
    if entries.is_empty() {
        return Err(FileError::NoTasks);
    }
    Ok(entries)
}

impl Entry {
    /// One CSV field; empty: not given.
    fn set(&mut self, column: &str, field: &str) -> Result<(), String> {
        fn number<T: std::str::FromStr>(column: &str, field: &str) -> Result<T, String> {
            field.parse().map_err(|_| format!("{column}: {field:?} is not a number, or too large"))
        }
        let text = || (!field.is_empty()).then(|| field.to_owned());
        let given = !field.is_empty();
        match column {
            "name" => self.name = field.to_owned(),
            "cost" => self.cost = text(),
            "measured" => self.measured = text(),
            "period" => self.period = text(),
            "sporadic" => self.sporadic = text(),
            "deadline" => self.deadline = text(),
            "offset" => self.offset = text(),
            "jitter" => self.jitter = text(),
            "blocking" => self.blocking = text(),
            "app" => self.app = text(),
            "entry" => self.entry = text(),
            "most" => self.most = text(),
            "late" if given => {
                self.late = Some(match field {
                    "finish" => Late::Finish,
                    "skip" => Late::Skip,
                    "fault" => Late::Fault,
                    _ => return Err(format!("late: {field:?} is none of finish, skip and fault")),
                });
            }
            "priority" if given => self.priority = Some(number(column, field)?),
            "core" if given => self.core = Some(number(column, field)?),
            "importance" if given => self.importance = number(column, field)?,
            "memory" if given => self.memory = number(column, field)?,
            "bandwidth" if given => self.bandwidth = number(column, field)?,
            "class" if given => {
                self.class = Some(match field {
                    "high" => Class::High,
                    "low" => Class::Low,
                    _ => return Err(format!("class: {field:?} is neither high nor low")),
                });
            }
            "priority" | "core" | "importance" | "memory" | "bandwidth" | "class" | "late" => {}
            _ => {
                return Err(format!(
                    "unknown column {column:?}: use the fields of [[task]], separated by commas: \
                     name,cost,period"
                ));
            }
        }
        Ok(())
    }
}
