// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task set as the table that yartek runs: checked, in ticks of a board, and as a file of C.
//!
//! The table is one translation unit: `yk_table` of `yartek/include/yartek.h`, with all that it
//! points to. Its own names begin with `yk_`; entries of the application must not.

use crate::clock::{Clock, ClockError, Rate, Times};
use asmp_analysis::{About, Arrival, Late, Task, Workload, is_c_name};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// As in yartek.h: a bit a task.
pub const MAX_TASKS: usize = 32;
pub const MAX_LINES: usize = 32;

/// Why a board cannot run a task set, whether it is schedulable or not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{count} tasks, and a board runs {MAX_TASKS} at most: join some")]
    Tasks { count: usize },
    #[error("{count} interrupts, and a board serves {MAX_LINES} at most: leave some out")]
    Lines { count: usize },
    #[error("{clock}")]
    Clock { clock: Box<ClockError> },
    #[error(
        "task {task}: jitter: a board releases each job at its start: leave it out, or shorten the \
         deadline by it"
    )]
    Jitter { task: String },
    #[error("task {task} is on another core than task {other}: a board has one: write two files")]
    Cores { task: String, other: String },
    #[error(
        "chain {chain}: on a board no task releases another: give its tasks offsets, and leave the \
         chain out"
    )]
    Chain { chain: String },
    #[error("{of} and {other} both have the entry {entry}: write a function for each")]
    SameEntry { of: Owner, other: Owner, entry: String },
    #[error("{of}: entry: C or the kernel has {entry} for itself: use another name")]
    Reserved { of: Owner, entry: String },
    #[error(
        "interrupt {interrupt} has neither gap nor most, so that nothing limits how often it \
         comes: give one of them"
    )]
    NoLimit { interrupt: String },
    #[error("task {task}: most: interrupts included, a job may take {least}: give that or more")]
    Most { task: String, least: String },
}

/// Whose an entry is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Owner {
    #[error("task {0}")]
    Task(String),
    #[error("interrupt {0}")]
    Interrupt(String),
}

impl From<ClockError> for Refusal {
    fn from(clock: ClockError) -> Self {
        Self::Clock { clock: clock.into() }
    }
}

impl Refusal {
    /// Which entry of the file the error is about, and which of its keys. An empty key stands for
    /// the whole entry.
    pub fn about(&self) -> (About, &'static str) {
        let of = |owner: &Owner, key| match owner {
            Owner::Task(name) => (About::Task(name.clone()), key),
            Owner::Interrupt(name) => (About::Interrupt(name.clone()), key),
        };
        match self {
            Self::Tasks { .. } => (About::TaskAt(MAX_TASKS), ""),
            Self::Lines { .. } => (About::File, ""),
            Self::Clock { clock } => {
                let given = clock.given();
                (About::Task(given.task.clone()), given.key)
            }
            Self::Jitter { task } => (About::Task(task.clone()), "jitter"),
            Self::Cores { task, .. } => (About::Task(task.clone()), "core"),
            Self::Chain { chain } => (About::Chain(chain.clone()), ""),
            Self::SameEntry { other, .. } => of(other, "entry"),
            Self::Reserved { of: owner, .. } => of(owner, "entry"),
            Self::NoLimit { interrupt } => (About::Interrupt(interrupt.clone()), ""),
            Self::Most { task, .. } => (About::Task(task.clone()), "most"),
        }
    }
}

/// A task of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableTask {
    pub name: String,
    pub times: Times,
    pub is_sporadic: bool,
    /// `None`: it spins for its cost.
    pub entry: Option<String>,
    pub late: Late,
    pub most_ticks: Option<u64>,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLine {
    pub name: String,
    /// `None`: there is nothing to do.
    pub entry: Option<String>,
    pub most: Option<u32>,
}

/// A task set on a board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub clock: Clock,
    pub tasks: Vec<TableTask>,
    pub lines: Vec<TableLine>,
}

impl Table {
    /// The table of a set. Errors: what the board cannot do.
    pub fn of(workload: &Workload, rate: Rate) -> Result<Self, Refusal> {
        check(workload)?;
        let (clock, times) = Clock::of(&workload.tasks, workload.time, rate)?;
        let task = |(task, times): (&Task, &Times)| {
            let most_ticks = task.most_ticks.map(|most| clock.cost("most", task, most));
            Ok(TableTask {
                name: task.name.clone(),
                times: *times,
                is_sporadic: task.arrival == Arrival::Sporadic,
                entry: task.entry.clone(),
                late: task.late,
                most_ticks: most_ticks.transpose()?,
            })
        };
        let tasks = workload.tasks.iter().zip(&times).map(task);
        let tasks = tasks.collect::<Result<_, ClockError>>()?;
        let lines = workload.interrupts.iter().map(|interrupt| TableLine {
            name: interrupt.name.clone(),
            entry: interrupt.entry.clone(),
            most: interrupt.most,
        });
        Ok(Self { clock, tasks, lines: lines.collect() })
    }

    /// As a file of C. `proof`: what is known of the set, for a banner of the image.
    pub fn source(&self, proof: Option<&str>) -> String {
        let mut text = "/* Made by asmp yartek: do not edit. Times are in ticks. */\n".to_owned();
        text += "#include \"yartek.h\"\n\n";
        for entry in self.tasks.iter().filter_map(|task| task.entry.as_ref()) {
            let _ = writeln!(text, "void {entry}(const struct yk_job *job);");
        }
        for entry in self.lines.iter().filter_map(|line| line.entry.as_ref()) {
            let _ = writeln!(text, "void {entry}(uint32_t raises);");
        }
        if self.lines.iter().any(|line| line.entry.is_none()) {
            text += "static void yk_table_done(uint32_t raises)\n{\n\t(void)raises;\n}\n";
        }
        let tasks_count = self.tasks.len();
        let sporadic = self.tasks.iter().filter(|task| task.is_sporadic).count();
        if sporadic > 0 {
            let _ = writeln!(text, "static struct yk_arrivals yk_table_arrivals[{sporadic}];");
        }
        let _ = writeln!(text, "static struct yk_task yk_table_tasks[{tasks_count}];");
        text += "static const struct yk_task_def yk_table_task_defs[] = {\n";
        let mut arrivals = 0;
        for (number, task) in self.tasks.iter().enumerate() {
            let _ = write!(text, "\t/* {number}: {} */\n\t{{", in_comment(&task.name));
            let run = task.entry.as_deref().unwrap_or("yk_spin");
            let _ = write!(text, " .run = {run}, .late = {},", late(task.late));
            if task.is_sporadic {
                let _ = write!(text, " .arrivals = &yk_table_arrivals[{arrivals}],");
                arrivals += 1;
            }
            let Times { period_ticks, deadline_ticks, offset_ticks, cost_ticks } = task.times;
            for (field, ticks) in [
                ("period", period_ticks),
                ("offset", offset_ticks),
                ("deadline", deadline_ticks),
                ("budget", cost_ticks),
                ("most", task.most_ticks.unwrap_or(0)),
            ] {
                let _ = write!(text, "\n\t  .{field} = UINT64_C({ticks}),");
            }
            text += " },\n";
        }
        text += "};\n";
        let lines_count = self.lines.len();
        let (mut defs, mut lines) = ("0", "0");
        if lines_count > 0 {
            (defs, lines) = ("yk_table_line_defs", "yk_table_lines");
            let _ = writeln!(text, "static struct yk_line {lines}[{lines_count}];");
            let _ = writeln!(text, "static const struct yk_line_def {defs}[] = {{");
            for (number, line) in self.lines.iter().enumerate() {
                let service = line.entry.as_deref().unwrap_or("yk_table_done");
                let (name, most) = (in_comment(&line.name), line.most.unwrap_or(0));
                let _ = writeln!(text, "\t/* {number}: {name} */");
                let _ = writeln!(text, "\t{{ .service = {service}, .most = {most}u }},");
            }
            text += "};\n";
        }
        let _ = write!(
            text,
            "const struct yk_table yk_table = {{\n\
             \t.task_defs = yk_table_task_defs,\n\
             \t.tasks = yk_table_tasks,\n\
             \t.tasks_count = {tasks_count},\n\
             \t.line_defs = {defs},\n\
             \t.lines = {lines},\n\
             \t.lines_count = {lines_count},\n}};\n"
        );
        // Linked only where something reads them.
        text += &names("task", self.tasks.iter().map(|task| &*task.name));
        text += &names("line", self.lines.iter().map(|line| &*line.name));
        if let Some(proof) = proof.map(in_comment) {
            let banner = format!("yartek: {tasks_count} tasks, {proof}");
            let _ = writeln!(text, "const char yk_banner[] = \"{banner}\";");
        }
        text
    }
}

/// An array of names, if there are any.
fn names<'a>(of: &str, names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("\"{}\"", in_comment(name))).collect();
    match quoted.as_slice() {
        [] => String::new(),
        _ => format!("const char *const yk_{of}_names[] = {{ {} }};\n", quoted.join(", ")),
    }
}

fn check(workload: &Workload) -> Result<(), Refusal> {
    let (tasks, interrupts) = (&workload.tasks, &workload.interrupts);
    if tasks.len() > MAX_TASKS {
        return Err(Refusal::Tasks { count: tasks.len() });
    }
    if interrupts.len() > MAX_LINES {
        return Err(Refusal::Lines { count: interrupts.len() });
    }
    if let Some(chain) = workload.chains.first() {
        return Err(Refusal::Chain { chain: chain.name.clone() });
    }
    for task in tasks {
        if task.jitter_ticks > 0 {
            return Err(Refusal::Jitter { task: task.name.clone() });
        }
        if task.core != tasks[0].core {
            let (task, other) = (task.name.clone(), tasks[0].name.clone());
            return Err(Refusal::Cores { task, other });
        }
    }
    let no_limit = |interrupt: &&asmp_analysis::simulate::Interrupt| {
        interrupt.gap_ticks.is_none() && interrupt.most.is_none()
    };
    if let Some(interrupt) = interrupts.iter().find(no_limit) {
        return Err(Refusal::NoLimit { interrupt: interrupt.name.clone() });
    }
    let of_tasks = tasks.iter().map(|task| (Owner::Task(task.name.clone()), &task.entry));
    let of_lines = interrupts.iter().map(|line| (Owner::Interrupt(line.name.clone()), &line.entry));
    let mut known: BTreeMap<&str, Owner> = BTreeMap::new();
    for (of, entry) in of_tasks.chain(of_lines) {
        let Some(entry) = entry else { continue };
        if !is_c_name(entry) || is_reserved(entry) {
            return Err(Refusal::Reserved { of, entry: entry.clone() });
        }
        if let Some(first) = known.insert(entry, of.clone()) {
            return Err(Refusal::SameEntry { of: first, other: of, entry: entry.clone() });
        }
    }
    Ok(())
}

/// Names of the kernel, of the start of a program, of C at file scope (C11, 7.1.3), and of stdint.h
/// (7.20, 7.31.10) and stdbool.h, which yartek.h includes.
fn is_reserved(name: &str) -> bool {
    let of_stdint = ["int", "uint", "INT", "UINT"].iter().any(|start| name.starts_with(start))
        && ["_t", "_C"].iter().any(|end| name.ends_with(end));
    let is_one = ["main", "bool", "true", "false", "NULL"].contains(&name);
    let of_limits = name.ends_with("_MAX") || name.ends_with("_MIN");
    let starts = ["_", "yk_", "YK_"].iter().any(|start| name.starts_with(start));
    // What compilers make calls of by themselves.
    let of_memory = ["memcpy", "memset", "memmove", "memcmp"].contains(&name);
    of_stdint || is_one || of_limits || starts || of_memory
}

const fn late(late: Late) -> &'static str {
    match late {
        Late::Finish => "YK_FINISH",
        Late::Skip => "YK_SKIP",
        Late::Fault => "YK_FAULT",
    }
}

/// A text that ends no comment and no literal.
fn in_comment(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " _-.,:%".contains(c);
    text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}
