//! Task sets as text: TOML and CSV. Unknown fields and columns are refused; so is what contradicts itself.
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

use crate::chain::{Chain, predecessors};
use crate::place::Room;
use crate::simulate::{Background, Interrupt};
use crate::task::{Arrival, Class, Cost, Task};
use crate::units::parse_ns;
use crate::verdict::Inapplicable;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    pub tasks: Vec<Task>,
    pub chains: Vec<Chain>,
    pub background: Vec<Background>,
    pub interrupts: Vec<Interrupt>,
    pub room: Room,
}

/// Why a text is no task set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("{reason}")]
    Syntax { reason: String },
    #[error("{place}: {reason}")]
    Entry { place: String, reason: String },
}

/// Says how long a measurement run's longest value is, in nanoseconds.
pub type Measured<'a> = &'a dyn Fn(&str) -> Result<u64, String>;

/// Where no measurement can be read.
pub fn no_measurement(run: &str) -> Result<u64, String> {
    Err(format!("measurement runs are not read here: {run}"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    task: Vec<Entry>,
    #[serde(default)]
    chain: Vec<ChainEntry>,
    #[serde(default)]
    background: Vec<BackgroundEntry>,
    #[serde(default)]
    interrupt: Vec<InterruptEntry>,
    room: Option<RoomEntry>,
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
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainEntry {
    name: String,
    tasks: Vec<String>,
    deadline: String,
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
    gap: String,
    core: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoomEntry {
    memory: Option<u64>,
    bandwidth: Option<u64>,
}

/// Reads TOML.
pub fn from_toml(text: &str, measured: Measured) -> Result<Workload, FileError> {
    let document: Document =
        toml::from_str(text).map_err(|error| FileError::Syntax { reason: in_a_line(text, &error) })?;
    let mut tasks = Vec::with_capacity(document.task.len());
    let mut names = BTreeMap::new();
    for entry in document.task {
        named("task", &entry.name)?;
        if names.insert(entry.name.clone(), tasks.len()).is_some() {
            return Err(bad("task", &entry.name, "the name is there twice: rename one"));
        }
        let place = format!("task {}", entry.name);
        tasks.push(entry.task(measured).map_err(|reason| FileError::Entry { place, reason })?);
    }
    let chains: Vec<Chain> =
        document.chain.into_iter().map(|entry| entry.chain(&names)).collect::<Result<_, _>>()?;
    predecessors(&tasks, &chains).map_err(|error| FileError::Syntax { reason: error.to_string() })?;
    let background = document.background.into_iter().map(BackgroundEntry::work).collect::<Result<_, _>>()?;
    let interrupts =
        document.interrupt.into_iter().map(InterruptEntry::interrupt).collect::<Result<_, _>>()?;
    let room = document
        .room
        .map_or_else(Room::default, |room| Room { memory_bytes: room.memory, bandwidth: room.bandwidth });
    Ok(Workload { tasks, chains, background, interrupts, room })
}

/// What is wrong with a TOML text: the number of the line, its beginning and the reason, in one line.
pub(crate) fn in_a_line(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let number = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let line: String = text.lines().nth(number).unwrap_or("").trim().chars().take(60).collect();
    let message = error.message().replace('\n', ", ");
    let cure = match message.contains("expected a string") {
        true => "; texts and times stand in quotes: \"5 ms\"",
        false => "",
    };
    format!("line {}, {line:?}: {message}{cure}", number + 1)
}

fn named(kind: &str, name: &str) -> Result<(), FileError> {
    match crate::graph::is_name(name) {
        true => Ok(()),
        false => {
            let reason = "this is no name: 1 to 64 characters, none of them a control character";
            Err(FileError::Entry { place: format!("{kind} {name:?}"), reason: reason.to_owned() })
        }
    }
}

fn bad(kind: &str, name: &str, reason: impl Into<String>) -> FileError {
    FileError::Entry { place: format!("{kind} {name}"), reason: reason.into() }
}

/// A duration of a field, with the field named in the error.
fn ns(field: &str, text: &str) -> Result<u64, String> {
    parse_ns(text).map_err(|error| format!("{field}: {error}"))
}

fn optional_ns(field: &str, text: Option<&String>) -> Result<Option<u64>, String> {
    text.map(|text| ns(field, text)).transpose()
}

impl Entry {
    fn task(self, measured: Measured) -> Result<Task, String> {
        let cost = match (&self.cost, &self.measured) {
            (Some(cost), None) => Cost::Guaranteed(ns("cost", cost)?),
            (None, Some(run)) => Cost::Measured { ns: measured(run)?, run: run.clone() },
            _ => return Err("it has either cost or measured".to_owned()),
        };
        let (period_ns, arrival) = match (&self.period, &self.sporadic) {
            (Some(period), None) => (ns("period", period)?, Arrival::Periodic),
            (None, Some(least)) => (ns("sporadic", least)?, Arrival::Sporadic),
            _ => return Err("it has either period or sporadic".to_owned()),
        };
        let offset_ns = optional_ns("offset", self.offset.as_ref())?;
        if offset_ns.is_some() && arrival == Arrival::Sporadic {
            return Err("a sporadic task has no offset".to_owned());
        }
        let task = Task {
            deadline_ns: optional_ns("deadline", self.deadline.as_ref())?.unwrap_or(period_ns),
            cost,
            period_ns,
            arrival,
            offset_ns,
            jitter_ns: optional_ns("jitter", self.jitter.as_ref())?.unwrap_or(0),
            blocking_ns: optional_ns("blocking", self.blocking.as_ref())?.unwrap_or(0),
            priority: self.priority,
            class: self.class.unwrap_or(Class::High),
            core: self.core,
            importance: self.importance,
            app: self.app,
            memory_bytes: self.memory,
            bandwidth: self.bandwidth,
            name: self.name,
        };
        // The place says which task.
        crate::check::check(std::slice::from_ref(&task)).map_err(|error| match error {
            Inapplicable::Zero { what, .. } => format!("{what} is 0"),
            Inapplicable::TooLong { what, .. } => format!("{what} is longer than 36 years"),
            other => other.to_string(),
        })?;
        Ok(task)
    }
}

impl ChainEntry {
    fn chain(self, names: &BTreeMap<String, usize>) -> Result<Chain, FileError> {
        named("chain", &self.name)?;
        let find = |name: &String| {
            names
                .get(name)
                .copied()
                .ok_or_else(|| bad("chain", &self.name, format!("there is no task {name}")))
        };
        let tasks = self.tasks.iter().map(find).collect::<Result<_, _>>()?;
        let deadline_ns = some_ns("chain", &self.name, "deadline", &self.deadline)?;
        Ok(Chain { name: self.name, tasks, deadline_ns })
    }
}

/// At least a nanosecond, no more than the tests take.
fn some_ns(kind: &str, name: &str, field: &str, text: &str) -> Result<u64, FileError> {
    let value = ns(field, text).map_err(|reason| bad(kind, name, reason))?;
    if value == 0 || value > crate::task::MAX_NS {
        return Err(bad(kind, name, format!("{field}: {text} is not between 1 ns and 36 years")));
    }
    Ok(value)
}

impl BackgroundEntry {
    fn work(self) -> Result<Background, FileError> {
        named("background", &self.name)?;
        let of = |field, text| some_ns("background", &self.name, field, text);
        let (cost_ns, period_ns) = (of("cost", &self.cost)?, of("period", &self.period)?);
        Ok(Background { cost_ns, period_ns, core: self.core, name: self.name })
    }
}

impl InterruptEntry {
    fn interrupt(self) -> Result<Interrupt, FileError> {
        named("interrupt", &self.name)?;
        let of = |field, text| some_ns("interrupt", &self.name, field, text);
        let flag_ns = self.flag.as_ref().map(|flag| of("flag", flag)).transpose()?.unwrap_or(0);
        let (service_ns, gap_ns) = (of("service", &self.service)?, of("gap", &self.gap)?);
        Ok(Interrupt { flag_ns, service_ns, gap_ns, core: self.core, name: self.name })
    }
}

/// Reads CSV: a header of field names, then a task a line. Empty fields are left out; lines that are empty or begin with `#`
/// are skipped.
pub fn from_csv(text: &str, measured: Measured) -> Result<Workload, FileError> {
    // What spreadsheets put in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let at = |line: usize, reason: String| FileError::Entry { place: format!("line {}", line + 1), reason };
    let Some((first, header)) = lines.next() else {
        return Err(FileError::Syntax { reason: "there is no header line".to_owned() });
    };
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    for (index, column) in columns.iter().enumerate() {
        if columns[..index].contains(column) {
            return Err(at(first, format!("column {column} is there twice")));
        }
        Entry::default().set(column, "").map_err(|reason| at(first, reason))?;
    }
    let mut tasks: Vec<Task> = Vec::new();
    let mut names = BTreeMap::new();
    for (line, row) in lines {
        if row.contains('"') {
            return Err(at(line, "quotes are not read: names have no commas".to_owned()));
        }
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        if fields.len() != columns.len() {
            return Err(at(line, format!("{} fields, the header has {}", fields.len(), columns.len())));
        }
        let mut entry = Entry::default();
        for (column, field) in columns.iter().zip(fields) {
            entry.set(column, field).map_err(|reason| at(line, reason))?;
        }
        if entry.name.is_empty() {
            entry.name = format!("task{}", tasks.len() + 1);
        }
        named("task", &entry.name).map_err(|error| at(line, error.to_string()))?;
        if names.insert(entry.name.clone(), line).is_some() {
            return Err(at(line, format!("task {} is there twice", entry.name)));
        }
        tasks.push(entry.task(measured).map_err(|reason| at(line, reason))?);
    }
    Ok(Workload { tasks, ..Workload::default() })
}

impl Entry {
    /// One CSV field; empty: not given.
    fn set(&mut self, column: &str, field: &str) -> Result<(), String> {
        fn number<T: std::str::FromStr>(column: &str, field: &str) -> Result<T, String> {
            field.parse().map_err(|_| format!("{column}: {field:?} is no number that fits"))
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
            "priority" | "core" | "importance" | "memory" | "bandwidth" | "class" => {}
            _ => {
                return Err(format!(
                    "{column:?} is no column of a task set; it has those of [[task]], with commas between: name,cost,period"
                ));
            }
        }
        Ok(())
    }
}
