// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a separate address space costs: one event, handled by a thread of the kernel and by a
//! thread of user space (L4RTL section 4, its figures 3 and 4; there RTLinux and L4RTL). Pure but
//! for the drawing.
//!
//! Both runs have the same tracer, timerlat, which takes three times from the instant of the event:
//! when the interrupt's handler ran (irq), when the woken thread ran in the kernel (thread), and
//! when it had been in user space (user). `user - thread` is paired, activation by activation, but
//! it is only the way back into the address space: the switch to it lies before `thread`. So the
//! cost of the address space is computed from the two runs: latency of the user thread less latency
//! of the kernel thread, figure by figure, and once more from the interrupt on, which leaves out
//! what blocked interrupts cost both. A program that sleeps by `clock_nanosleep` stands beside
//! them, not paired with anything.

use crate::compare::{self, Difference};
use crate::plot::{self, Series};
use crate::run::{Experiment, Kind, Run, Source};
use crate::sample::Sample;
use crate::summary::Summary;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where an event is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A thread of the kernel.
    Kernel,
    /// A thread with an address space of its own.
    User,
    /// The same by the plain call, and with no help of the tracer.
    Program,
}

/// One run as one line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Handler {
    pub place: Place,
    pub dir: String,
    pub samples: u64,
    pub lost: u64,
    pub overruns: u64,
    pub partial: Option<String>,
    /// To the interrupt's handler.
    pub irq: Option<Summary>,
    /// To the thread, still in the kernel.
    pub thread: Option<Summary>,
    /// To user space and back by one system call.
    pub user: Option<Summary>,
    /// user - thread of the same activation.
    pub user_less_thread: Option<Summary>,
}

/// Latency of the user thread less that of the kernel thread.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    pub median: Option<Difference>,
    pub p99: Option<Difference>,
    pub max_ns: i64,
}

/// All of one kind under one load.
#[derive(Debug, Clone, Serialize)]
pub struct Space {
    pub load: String,
    pub kind: Kind,
    pub handlers: Vec<Handler>,
    /// `None` where a run is missing.
    pub cost: Option<Cost>,
    /// The same from the interrupt on: without the time until its handler ran.
    pub cost_from_interrupt: Option<Cost>,
}

/// The runs of one kind under one load in one directory.
struct Group<'a> {
    runs: Vec<(Place, &'a Run)>,
}

impl<'a> Group<'a> {
    fn of(&self, place: Place) -> Option<&'a Run> {
        self.runs.iter().find(|(of, _)| *of == place).map(|(_, run)| *run)
    }

    fn first(&self) -> &'a Run {
        self.runs[0].1
    }
}

/// Groups with a run of a kernel thread; others are no comparison of spaces.
fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let key = |run: &Run| -> (PathBuf, Kind, _) {
        (
            run.dir.parent().unwrap_or(Path::new("")).to_owned(),
            run.provenance.kind,
            run.provenance.load,
        )
    };
    let mut keys: Vec<_> = runs.iter().filter(|run| run.is_of_kernel_thread()).map(key).collect();
    keys.sort();
    keys.dedup();
    let group = |of: &(PathBuf, Kind, _)| Group {
        runs: runs
            .iter()
            .filter(|run| key(run) == *of && run.provenance.experiment == Experiment::Latency)
            .filter_map(|run| {
                let place = match run.provenance.source {
                    Source::TimerlatKernel => Place::Kernel,
                    Source::Timerlat => Place::User,
                    Source::Nanosleep => Place::Program,
                    Source::Loop | Source::Import => return None,
                };
                Some((place, run))
            })
            .collect(),
    };
    keys.iter().map(group).collect()
}

/// The runs that are in no such table.
pub fn others(runs: &[Run]) -> Vec<&Run> {
    let groups = groups(runs);
    let is_in = |run: &Run| {
        groups.iter().flat_map(|group| &group.runs).any(|(_, of)| std::ptr::eq(*of, run))
    };
    runs.iter().filter(|run| !is_in(run)).collect()
}

/// The table's figures.
pub fn spaces(runs: &[Run]) -> Vec<Space> {
    let space = |group: Group| {
        let mut handlers: Vec<Handler> =
            group.runs.iter().map(|(place, run)| handler(*place, run)).collect();
        handlers.sort_by_key(|handler| handler.place as u8);
        let both = group.of(Place::Kernel).zip(group.of(Place::User));
        let cost_of = |value: Value| {
            let values = |run: &Run| run.samples.iter().filter_map(value).collect::<Vec<u64>>();
            both.and_then(|(kernel, user)| cost(&values(kernel), &values(user)))
        };
        let provenance = &group.first().provenance;
        Space {
            load: provenance.load.to_string(),
            kind: provenance.kind,
            handlers,
            cost: cost_of(|sample| Some(sample.value_ns)),
            cost_from_interrupt: cost_of(from_interrupt),
        }
    };
    groups(runs).into_iter().map(space).collect()
}

/// A time of a sample, where it was taken.
type Value = fn(&Sample) -> Option<u64>;

fn from_interrupt(sample: &Sample) -> Option<u64> {
    Some(sample.value_ns.saturating_sub(sample.handler_ns?))
}

fn handler(place: Place, run: &Run) -> Handler {
    let provenance = &run.provenance;
    let summary = |value: Value| {
        let values: Vec<u64> = run.samples.iter().filter_map(value).collect();
        Summary::of(&values, provenance.lost)
    };
    let user = |value: Value| if place == Place::Kernel { None } else { summary(value) };
    Handler {
        place,
        dir: run.dir.display().to_string(),
        samples: provenance.samples,
        lost: provenance.lost,
        overruns: provenance.overruns,
        partial: provenance.partial.clone(),
        irq: summary(|sample| sample.handler_ns),
        thread: summary(|sample| sample.thread_ns),
        user: user(|sample| Some(sample.value_ns)),
        user_less_thread: user(|sample| Some(sample.value_ns.saturating_sub(sample.thread_ns?))),
    }
}

fn cost(kernel: &[u64], user: &[u64]) -> Option<Cost> {
    let max = |values: &[u64]| values.iter().max().map(|ns| *ns as i64);
    Some(Cost {
        median: compare::quantile(kernel, user, 0.5),
        p99: compare::quantile(kernel, user, 0.99)
            .filter(|_| kernel.len() >= 100 && user.len() >= 100),
        max_ns: max(user)? - max(kernel)?,
    })
}

/// The table as text, in microseconds; nothing where there is no run of a kernel thread.
pub fn text(spaces: &[Space]) -> String {
    let mut text = String::new();
    let mut kind = None;
    for space in spaces {
        if kind != Some(space.kind) {
            let gap = if kind.is_some() { "\n" } else { "" };
            let _ = writeln!(
                text,
                "{gap}From an event to its handler, {} (in microseconds)",
                space.kind
            );
            let _ = writeln!(
                text,
                "{:<30}{:>27}{:>27}{:>27}{:>27}",
                "", "irq", "thread", "user", "user - thread"
            );
            let _ = write!(text, "{:<7}{:<9}{:>8}{:>6}", "Load", "Handler", "n", "lost");
            let _ = writeln!(text, "{}", format!("{:>9}{:>9}{:>9}", "p50", "p99", "max").repeat(4));
            kind = Some(space.kind);
        }
        for handler in &space.handlers {
            let name = match handler.place {
                Place::Kernel => "kernel",
                Place::User => "user",
                Place::Program => "program",
            };
            let _ =
                write!(text, "{:<7}{name:<9}{:>8}{:>6}", space.load, handler.samples, handler.lost);
            for summary in [&handler.irq, &handler.thread, &handler.user, &handler.user_less_thread]
            {
                text.push_str(&three(summary.as_ref()));
            }
            let _ = writeln!(text, "{}", if handler.partial.is_some() { "  partial" } else { "" });
        }
        for (what, cost) in [
            ("cost of the address space", &space.cost),
            ("from the interrupt on", &space.cost_from_interrupt),
        ] {
            let figures = cost.as_ref().map_or_else(|| "n/a: a run is missing".to_owned(), told);
            let _ = writeln!(text, "{:<7}{what}: {figures}", "");
        }
    }
    if !text.is_empty() {
        text.push_str(LEGEND);
    }
    text
}

const LEGEND: &str = "\
kernel: a kernel thread, timerlat/N; user: a thread with an address space of its own, at the same
priority (timerlat_fd); program: by clock_nanosleep, by its own clock. user - thread is paired; the
cost, user's latency - kernel thread's, is of two runs: [95 % of the bootstrap], `~`: may be chance.
It holds the switch to the address space, which is part of user's `thread`, and is an upper bound:
user holds the tracer's own line and one system call's entry as well.
";

fn three(summary: Option<&Summary>) -> String {
    let us =
        |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
    let of = |at: usize| us(summary.and_then(|summary| summary.percentiles_ns[at]));
    format!("{:>9}{:>9}{:>9}", of(0), of(1), us(summary.map(|summary| summary.max_ns)))
}

fn told(cost: &Cost) -> String {
    let us = |ns: i64| format!("{:+.1}", ns as f64 / 1e3);
    let figure = |name: &str, difference: Option<Difference>| match difference {
        None => format!("{name} too few"),
        Some(one) => {
            let chance = if one.is_sure() { "" } else { " ~" };
            format!(
                "{name} {} [{} .. {}]{chance}",
                us(one.difference_ns),
                us(one.low_ns),
                us(one.high_ns)
            )
        }
    };
    format!("{}, {}, max {}", figure("p50", cost.median), figure("p99", cost.p99), us(cost.max_ns))
}

/// A figure with its heading and the runs it shows.
pub struct Figure<'a> {
    pub svg: String,
    pub runs: Vec<&'a Run>,
}

/// The paper's figures: for each kind and load three densities, of the time to enter the kernel,
/// the time from there to the handler, and the whole. Errors: a figure could not be drawn.
pub fn figures(runs: &[Run]) -> Result<Vec<Figure<'_>>, Box<dyn std::error::Error>> {
    let panels: [(&str, Value); 3] = [
        ("time to enter the kernel", |sample| sample.handler_ns),
        ("time from there to the handler", from_interrupt),
        ("whole time", |sample| Some(sample.value_ns)),
    ];
    let mut figures = Vec::new();
    for group in groups(runs) {
        let run = group.first();
        for (what, value) in panels {
            let named: Vec<(&str, &Run, Vec<u64>)> = [
                (Place::Kernel, "handler in the kernel"),
                (Place::User, "handler in a separate address space"),
            ]
            .into_iter()
            .filter_map(|(place, name)| Some((name, group.of(place)?)))
            .map(|(name, run)| (name, run, run.samples.iter().filter_map(value).collect()))
            .filter(|(_, _, values): &(_, _, Vec<u64>)| !values.is_empty())
            .collect();
            let series: Vec<Series> =
                named.iter().map(|(name, _, values_ns)| Series { name, values_ns }).collect();
            if series.is_empty() {
                continue;
            }
            let title = format!(
                "Event to handler, {}/{}: {what}",
                run.provenance.load, run.provenance.kind
            );
            let runs = named.iter().map(|(_, run, _)| *run).collect();
            figures.push(Figure { svg: plot::density(&title, &series)?, runs });
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Load, Size};
    use crate::run::{Machine, Provenance, RUN_SCHEMA, Totals};
    use asmp_host::Schedule;

    /// A thousand samples: the interrupt after 1..=1000 us, the thread `thread_us` later, the end
    /// `end_us` later.
    fn run(source: Source, load: Load, thread_us: u64, end_us: u64) -> Run {
        let timerlat = source != Source::Nanosleep;
        let sample = |turn: u64| {
            let irq_ns = (turn * 7919 % 1000 + 1) * 1000;
            Sample {
                due_ns: turn,
                value_ns: irq_ns + end_us * 1000,
                handler_ns: timerlat.then_some(irq_ns),
                thread_ns: timerlat.then_some(irq_ns + thread_us * 1000),
                ..Sample::default()
            }
        };
        let machine = Machine {
            kernel: "7.2".into(),
            kernel_version: String::new(),
            cpu_model: String::new(),
            online_cpus: "0-3".into(),
            boot_parameters: String::new(),
            hypervisor: true,
        };
        let provenance = Provenance {
            schema: RUN_SCHEMA,
            tool: "test".into(),
            command_line: vec![],
            experiment: Experiment::Latency,
            kind: Kind::Rb,
            source,
            load,
            load_size: Size { per_cpu: 1, cpus: 4 },
            load_commands: vec![],
            flood: false,
            machine,
            cpu: Some(3),
            schedule: Schedule::Fifo { priority: 80 },
            memory_locked: true,
            cpu_latency_held: true,
            period_ns: Some(2_003_000),
            warm_up_samples: 0,
            started_s: 1,
            duration_ns: 1,
            samples: 1000,
            lost: 2,
            overruns: 3,
            lost_records: 0,
            partial: None,
            base_ns: None,
            not_recorded: None,
            settings: vec![],
            totals: Totals::default(),
            worst: vec![],
        };
        let dir = PathBuf::from(format!("runs/{load}-{source:?}"));
        Run { dir, provenance, samples: (0..1000).map(sample).collect() }
    }

    fn three_places(load: Load) -> Vec<Run> {
        vec![
            run(Source::Nanosleep, load, 0, 70),
            run(Source::Timerlat, load, 40, 60),
            run(Source::TimerlatKernel, load, 30, 30),
        ]
    }

    #[test]
    fn the_cost_of_the_address_space_is_the_user_thread_less_the_kernel_thread() {
        let runs = three_places(Load::Mix);
        let [space] = spaces(&runs).try_into().unwrap();
        let places: Vec<Place> = space.handlers.iter().map(|handler| handler.place).collect();
        assert_eq!(places, [Place::Kernel, Place::User, Place::Program]);
        let cost = space.cost.unwrap();
        let (median, p99) = (cost.median.unwrap(), cost.p99.unwrap());
        assert_eq!(
            (median.difference_ns, p99.difference_ns, cost.max_ns),
            (30_000, 30_000, 30_000)
        );
        assert!(!median.is_sure(), "30 us of 1000 may be chance: {median:?}");
        // Without the time until the interrupt all samples are alike, and the difference is sure.
        let cost = space.cost_from_interrupt.unwrap();
        assert_eq!((cost.median.unwrap().difference_ns, cost.max_ns), (30_000, 30_000));
        assert!(cost.median.unwrap().is_sure());
        let paired = space.handlers[1].user_less_thread.clone().unwrap();
        assert_eq!((paired.min_ns, paired.max_ns, paired.samples), (20_000, 20_000, 1000));
        assert!(space.handlers[0].user.is_none(), "a kernel thread has no latency of user space");
    }

    #[test]
    fn each_load_is_a_few_lines_of_the_table() {
        let runs = [three_places(Load::Idl), three_places(Load::Flood)].concat();
        let table = text(&spaces(&runs));
        let line = |start: &str| {
            let found = table
                .lines()
                .find(|line| line.starts_with(start))
                .unwrap_or_else(|| panic!("{table}"));
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let irq = "500.0 990.0 1000.0";
        assert_eq!(
            line("IDL    kernel"),
            format!("IDL kernel 1000 2 {irq} 530.0 1020.0 1030.0 - - - - - -")
        );
        assert_eq!(
            line("FLOOD  user"),
            format!(
                "FLOOD user 1000 2 {irq} 540.0 1030.0 1040.0 560.0 1050.0 1060.0 20.0 20.0 20.0"
            )
        );
        assert_eq!(
            line("FLOOD  program"),
            "FLOOD program 1000 2 - - - - - - 570.0 1060.0 1070.0 - - -"
        );
        assert!(table.contains("cost of the address space: p50 +30.0 ["), "{table}");
        assert!(
            table.contains("from the interrupt on: p50 +30.0 [+30.0 .. +30.0], p99"),
            "{table}"
        );
    }

    #[test]
    fn what_is_missing_is_not_invented() {
        let both = three_places(Load::Idl);
        assert!(spaces(&both[..2]).is_empty(), "latency alone is no comparison of spaces");
        assert_eq!(others(&both[..2]).len(), 2);
        assert!(others(&both).is_empty());
        let [space] = spaces(&both[2..]).try_into().unwrap();
        assert!(space.cost.is_none());
        assert!(text(&[space]).contains("n/a: a run is missing"));
        // Of another directory or load it is no partner.
        let mut apart = three_places(Load::Idl);
        apart[1].dir = "elsewhere/IDL-Rb-user".into();
        apart[0].provenance.load = Load::Mix;
        let [space] = spaces(&apart).try_into().unwrap();
        assert_eq!((space.handlers.len(), space.cost.is_none()), (1, true));
    }

    #[test]
    fn the_papers_three_figures_are_drawn_for_each_load() {
        let runs = [three_places(Load::Idl), three_places(Load::Flood)].concat();
        let figures = figures(&runs).unwrap();
        assert_eq!(figures.len(), 6);
        for figure in figures {
            for name in
                ["handler in the kernel", "handler in a separate address space", "Event to handler"]
            {
                assert!(figure.svg.contains(name), "{name}");
            }
            assert_eq!(figure.runs.len(), 2);
        }
    }
}
