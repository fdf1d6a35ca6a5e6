// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a separate address space costs: one event, handled by a thread of the kernel and by a
//! thread of user space (L4RTL section 4, its figures 3 and 4; there RTLinux and L4RTL). Pure.
//!
//! Both runs have the same tracer, timerlat, which takes three times from the instant of the event:
//! when the interrupt's handler ran (irq), when the woken thread ran in the kernel (thread), and
//! when it had been in user space (user). `user - thread` is paired, activation by activation, but
//! it is only the way back into the address space: the switch to it lies before `thread`. So the
//! cost of the address space is computed from the two runs: latency of the user thread less latency
//! of the kernel thread, figure by figure, and once more from the interrupt on, which leaves out
//! what blocked interrupts cost both. A program that sleeps by `clock_nanosleep` stands beside
//! them, not paired with anything.
//!
//! All times here are of samples, so that columns can be subtracted: an instant that was missed has
//! a latency, and neither an interrupt nor a thread of its own. They are counted beside.

use crate::compare::{self, Difference, Figure};
use crate::histogram::Latencies;
use crate::load::Load;
use crate::run::{Experiment, Kind, Provenance, Run, Source};
use crate::settings::Setting;
use crate::summary::Summary;
use crate::told::grouped;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

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

impl Place {
    /// As tables, figures and the directories of runs have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
            Self::Program => "program",
        }
    }
}

/// One run as one line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Handler {
    pub place: Place,
    pub dir: String,
    pub samples: u64,
    /// Instants that passed while the thread was late for an earlier one.
    pub missed: u64,
    pub lost: u64,
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

/// Latency of the user thread less that of the kernel thread, figure by figure; empty where a run
/// is missing. Sure only of several series (see [`compare`]).
pub type Cost = Vec<Difference>;

/// All of one kind under one load.
#[derive(Debug, Clone, Serialize)]
pub struct Space {
    pub load: String,
    pub kind: Kind,
    pub handlers: Vec<Handler>,
    pub cost: Cost,
    /// The same from the interrupt on: without the time until its handler ran.
    pub cost_from_interrupt: Cost,
}

/// The runs of one kind under one load, all with the same settings: a round for each directory.
struct Group<'a> {
    runs: Vec<(Place, &'a Run)>,
}

impl<'a> Group<'a> {
    fn of(&self, place: Place) -> Option<&'a Run> {
        self.all(place).into_iter().next()
    }

    fn all(&self, place: Place) -> Vec<&'a Run> {
        self.runs.iter().filter(|(of, _)| *of == place).map(|(_, run)| *run).collect()
    }

    /// Rounds that have both: the times of the kernel thread, and those of the user thread.
    fn rounds(&self, time: Time) -> (Vec<Latencies>, Vec<Latencies>) {
        let parent = |run: &Run| run.dir.parent().map(Path::to_owned);
        let whole = |place: Place| -> Vec<&'a Run> {
            let all = self.all(place).into_iter();
            all.filter(|run| run.provenance.partial.is_none()).collect()
        };
        let users = whole(Place::User);
        let pair = |kernel: &'a Run| {
            let user = users.iter().find(|user| parent(user) == parent(kernel))?;
            Some((time(kernel), time(user)))
        };
        whole(Place::Kernel).into_iter().filter_map(pair).unzip()
    }

    fn first(&self) -> &'a Run {
        self.runs[0].1
    }
}

/// Groups with a run of a kernel thread; others are no comparison of spaces.
fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    // Who took the times is what is compared; a run that ended early is shown, and no round.
    let same = |one: &Run, other: &Run| {
        let (one, other) = (&one.provenance, &other.provenance);
        // A program of kind normal is free to move, and a thread of the tracer is not.
        Setting::differing(one, other).into_iter().all(|setting| {
            [Setting::Source, Setting::Completeness].contains(&setting)
                || setting.follows_of_the_kind(one, other)
        })
    };
    let beside = |one: &Run, other: &Run| one.dir.parent() == other.dir.parent();
    let mut groups: Vec<Group> = Vec::new();
    let kernel = |run: &&Run| run.is_of_kernel_thread();
    let mut kernels: Vec<&Run> = runs.iter().filter(kernel).collect();
    kernels.sort_by_key(|run| (run.provenance.kind, run.provenance.load, &run.dir));
    for kernel in kernels {
        let place = |run: &Run| match run.provenance.source {
            Source::TimerlatKernel => Some(Place::Kernel),
            Source::Timerlat => Some(Place::User),
            Source::Nanosleep => Some(Place::Program),
            Source::Loop | Source::Import => None,
        };
        let of_kernel = runs
            .iter()
            .filter(|run| run.provenance.experiment == Experiment::Latency)
            .filter(|run| beside(run, kernel) && same(run, kernel))
            .filter_map(|run| Some((place(run)?, run)));
        match groups.iter_mut().find(|group| same(group.first(), kernel)) {
            Some(group) => {
                let known = |run: &Run| group.runs.iter().any(|(_, of)| std::ptr::eq(*of, run));
                let new: Vec<_> = of_kernel.filter(|(_, run)| !known(run)).collect();
                group.runs.extend(new);
            }
            None => groups.push(Group { runs: of_kernel.collect() }),
        }
    }
    groups
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
        let cost_of = |time: Time| {
            let (kernel, user) = group.rounds(time);
            let [kernel, user] = [&kernel, &user].map(|side| side.iter().collect::<Vec<_>>());
            compare::differences(&kernel, &user, &FIGURES)
        };
        let provenance = &group.first().provenance;
        Space {
            load: provenance.load.to_string(),
            kind: provenance.kind,
            handlers,
            cost: cost_of(|run| run.latencies.of_samples()),
            cost_from_interrupt: cost_of(|run| run.times.from_interrupt.clone()),
        }
    };
    let mut spaces: Vec<Space> = groups(runs).into_iter().map(space).collect();
    compare::judge(
        spaces
            .iter_mut()
            .flat_map(|space| space.cost.iter_mut().chain(&mut space.cost_from_interrupt)),
    );
    spaces
}

const FIGURES: [Figure; 3] = [Figure::Median, Figure::P99, Figure::Worst];

/// A time of each sample of a run.
type Time = fn(&Run) -> Latencies;

fn handler(place: Place, run: &Run) -> Handler {
    let provenance = &run.provenance;
    let summary =
        |latencies: &Latencies| (latencies.instants() > 0).then(|| Summary::of(latencies));
    let user = |latencies| if place == Place::Kernel { None } else { summary(latencies) };
    Handler {
        place,
        dir: run.dir.display().to_string(),
        samples: provenance.samples,
        missed: run.latencies.missed(),
        lost: run.latencies.lost(),
        partial: provenance.partial.clone(),
        irq: summary(&run.times.irq),
        thread: summary(&run.times.thread),
        user: user(&run.latencies.of_samples()),
        user_less_thread: user(&run.times.from_thread),
    }
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
                "{:<41}{:>27}{:>27}{:>27}{:>27}",
                "", "irq", "thread", "user", "user - thread"
            );
            let _ = write!(
                text,
                "{:<10}{:<9}{:>8}{:>8}{:>6}",
                "Load", "Handler", "n", "missed", "lost"
            );
            let _ = writeln!(text, "{}", format!("{:>9}{:>9}{:>9}", "p50", "p99", "max").repeat(4));
            kind = Some(space.kind);
        }
        for handler in &space.handlers {
            let name = handler.place.word();
            let _ = write!(
                text,
                "{:<10}{name:<9}{:>8}{:>8}",
                space.load, handler.samples, handler.missed
            );
            let _ = write!(text, "{:>6}", handler.lost);
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
            let figures: Vec<String> = cost.iter().map(|one| one.told()).collect();
            let figures = match figures.is_empty() {
                true => "n/a: a run is missing, partial or too short".to_owned(),
                false => figures.join("; "),
            };
            let _ = writeln!(text, "{:<10}{what}: {figures}", "");
        }
    }
    if !text.is_empty() {
        text.push_str(LEGEND);
    }
    missed_told(spaces).into_iter().for_each(|told| text += &(told + "\n"));
    text
}

/// A sentence on the instants that are in no column of times, where there are any.
pub fn missed_told(spaces: &[Space]) -> Option<String> {
    let handlers = spaces.iter().flat_map(|space| &space.handlers);
    let missed = handlers.map(|handler| handler.missed).fold(0, u64::saturating_add);
    let were = if missed == 1 { "instant was" } else { "instants were" };
    let told = format!("{} {were} missed, and no column of times has them.", grouped(missed));
    (missed > 0).then_some(told)
}

const LEGEND: &str = "\
kernel: a kernel thread, timerlat/N; user: a thread with an address space of its own, at the same
priority (timerlat_fd); program: by clock_nanosleep, by its own clock. user - thread is paired; the
cost, user's latency - kernel thread's, is of two runs a directory, over all directories: sure takes
several. It holds the switch to the address space, which is part of user's `thread`, and is an upper
bound: user holds the tracer's own line and one system call's entry as well.
";

fn three(summary: Option<&Summary>) -> String {
    let us =
        |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
    let of = |name: &str| us(summary.and_then(|summary| Some(summary.percentile(name)?.ns)));
    format!("{:>9}{:>9}{:>9}", of("p50"), of("p99"), us(summary.and_then(|one| one.max_ns)))
}

/// What the paper's figures show, of one kind under one load.
#[derive(Debug)]
pub struct Drawing<'a> {
    pub load: Load,
    pub kind: Kind,
    pub panels: Vec<Panel>,
    pub runs: Vec<&'a Run>,
}

/// One of its times, of each handler.
#[derive(Debug)]
pub struct Panel {
    pub name: &'static str,
    /// From the instant of the event on, and not a part of that.
    pub is_whole: bool,
    pub times: Vec<(Place, Latencies)>,
}

/// The paper's figures: the time to enter the kernel, the time from there to the handler, and the
/// whole.
pub fn figures(runs: &[Run]) -> Vec<Drawing<'_>> {
    let drawings = groups(runs).into_iter().map(drawing);
    drawings.filter(|drawing| !drawing.panels.is_empty()).collect()
}

fn drawing(group: Group) -> Drawing {
    let times: [(&str, bool, Time); 3] = [
        ("time to enter the kernel", false, |run| run.times.irq.clone()),
        ("time from there to the handler", false, |run| run.times.from_interrupt.clone()),
        ("whole time", true, |run| run.latencies.of_samples()),
    ];
    let of = [Place::Kernel, Place::User].map(|place| Some((place, group.of(place)?)));
    let panel = |(name, is_whole, time): (&'static str, bool, Time)| {
        let times = of.into_iter().flatten().map(|(place, run)| (place, time(run)));
        Panel { name, is_whole, times: times.filter(|(_, time)| time.instants() > 0).collect() }
    };
    let Provenance { load, kind, .. } = group.first().provenance;
    let panels = times.map(panel).into_iter().filter(|panel| !panel.times.is_empty()).collect();
    let runs = of.into_iter().flatten().map(|(_, run)| run).collect();
    Drawing { load, kind, panels, runs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Times;
    use crate::run::tests::provenance;
    use std::path::PathBuf;

    /// A thousand samples in a directory: the interrupt after 1..=1000 us, the thread `thread_us`
    /// later, the end `end_us` later.
    fn run_in(dir: &str, source: Source, load: Load, thread_us: u64, end_us: u64) -> Run {
        let of = |from_us: u64, later_us: u64| {
            Latencies::of((from_us..from_us + 1000).map(|us| (us + later_us) * 1000))
        };
        let mut times = Times::default();
        if source != Source::Nanosleep {
            let again = |us: u64| Latencies::of(std::iter::repeat_n(us * 1000, 1000));
            times.irq = of(1, 0);
            times.thread = of(1, thread_us);
            times.from_interrupt = again(end_us);
            times.from_thread = again(end_us - thread_us);
        }
        let mut latencies = of(1, end_us);
        latencies.lose(2);
        Run {
            dir: PathBuf::from(format!("{dir}/{load}-{source:?}")),
            provenance: Provenance {
                source,
                load,
                kind: Kind::Fifo,
                period_ns: Some(2_003_000),
                samples: 1000,
                ..provenance()
            },
            latencies,
            times,
            system_max_ns: None,
        }
    }

    fn run(source: Source, load: Load, thread_us: u64, end_us: u64) -> Run {
        run_in("runs", source, load, thread_us, end_us)
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
        let runs = three_places(Load::Mixed);
        let [space] = spaces(&runs).try_into().unwrap();
        let places: Vec<Place> = space.handlers.iter().map(|handler| handler.place).collect();
        assert_eq!(places, [Place::Kernel, Place::User, Place::Program]);
        for cost in [&space.cost, &space.cost_from_interrupt] {
            let about: Vec<i64> = cost.iter().map(|one| one.difference_ns).collect();
            assert_eq!(about.len(), 3, "median, p99, worst: {cost:?}");
            assert!(about.iter().all(|ns| ns.abs_diff(30_000) < 1100), "{about:?}");
            assert!(cost.iter().all(|one| !one.is_sure), "one series is never sure");
        }
        let paired = space.handlers[1].user_less_thread.clone().unwrap();
        let ends = (paired.min_ns, paired.max_ns, paired.samples);
        assert_eq!(ends, (Some(20_000), Some(20_000), 1000));
        assert!(space.handlers[0].user.is_none(), "a kernel thread has no latency of user space");
    }

    #[test]
    fn the_cost_of_several_series_is_sure_where_it_is_there_in_all() {
        let round = |turn: u64| {
            let dir = format!("round-{turn}");
            let of = |source, thread_us, end_us| {
                run_in(&dir, source, Load::Mixed, thread_us + turn, end_us + turn)
            };
            [of(Source::Timerlat, 40, 160), of(Source::TimerlatKernel, 30, 30)]
        };
        let runs: Vec<Run> = (0..6).flat_map(round).collect();
        let [space] = spaces(&runs).try_into().unwrap();
        assert_eq!((space.handlers.len(), space.cost[0].rounds), (12, [6, 6]));
        assert!(space.cost.iter().all(|one| one.is_sure), "{:?}", space.cost);
        // What has no partner in its directory is no round.
        let [space] = spaces(&runs[..11]).try_into().unwrap();
        assert_eq!(space.cost[0].rounds, [5, 5]);
    }

    #[test]
    fn each_load_is_a_few_lines_of_the_table() {
        let runs = [three_places(Load::Idle), three_places(Load::Cache)].concat();
        let table = text(&spaces(&runs));
        let line = |start: &str| {
            let found = table
                .lines()
                .find(|line| line.starts_with(start))
                .unwrap_or_else(|| panic!("{table}"));
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        // A percentile is rounded up to the end of its bucket.
        let irq = "500.2 990.2 1000.0";
        assert_eq!(
            line("idle      kernel"),
            format!("idle kernel 1000 0 2 {irq} 530.4 1020.4 1030.0 - - - - - -")
        );
        assert_eq!(
            line("cache     user"),
            format!(
                "cache user 1000 0 2 {irq} 540.2 1030.1 1040.0 560.1 1050.6 1060.0 20.0 20.0 20.0"
            )
        );
        assert_eq!(
            line("cache     program"),
            "cache program 1000 0 2 - - - - - - 570.4 1060.9 1070.0 - - -"
        );
        assert!(table.contains("cost of the address space: median +29."), "{table}");
        assert!(table.contains("from the interrupt on: median +30.0 us (one run each)"), "{table}");
    }

    #[test]
    fn all_columns_are_of_samples_and_missed_instants_are_counted_beside_them() {
        // 501 samples, one of which took 40 ms.
        let mut runs = three_places(Load::Idle);
        let (user, period_ns) = (&mut runs[1], 1_000_000);
        let late = |ns: u64| Latencies::of(std::iter::repeat_n(ns, 500).chain([40_000_000]));
        user.times = Times {
            irq: late(10_000),
            thread: late(20_000),
            from_interrupt: Latencies::of(std::iter::repeat_n(20_000, 501)),
            from_thread: Latencies::of(std::iter::repeat_n(10_000, 501)),
        };
        user.latencies = Latencies::of(std::iter::repeat_n(30_000, 500));
        user.latencies.record_late(40_000_000, period_ns);
        user.provenance.samples = 501;
        let [space] = spaces(&runs).try_into().unwrap();
        let user = &space.handlers[1];
        assert_eq!((user.samples, user.missed), (501, 39));
        let columns = [&user.irq, &user.thread, &user.user, &user.user_less_thread];
        for (column, p99_us) in columns.into_iter().zip([10, 20, 30, 10]) {
            let column = column.as_ref().unwrap();
            let p99_ns = column.percentile("p99").unwrap().ns;
            assert!(column.instants == 501 && p99_ns.abs_diff(p99_us * 1000) < 30, "{column:?}");
        }
        // The cost is that of the columns.
        let p99 = space.cost.iter().find(|one| one.figure == Figure::P99).unwrap();
        let kernel_ns = space.handlers[0].thread.as_ref().unwrap().percentile("p99").unwrap().ns;
        assert!(p99.difference_ns.abs_diff(30_000 - kernel_ns as i64) < 50, "{p99:?}");
        let says = "39 instants were missed, and no column of times has them.";
        assert!(text(std::slice::from_ref(&space)).ends_with(&format!("{says}\n")));
        assert!(crate::page::html(&runs, None).unwrap().contains(says));
        let table = text(&spaces(&three_places(Load::Idle)));
        assert!(!table.contains("instants were missed"), "{table}");
    }

    #[test]
    fn what_is_missing_is_not_invented() {
        let both = three_places(Load::Idle);
        assert!(spaces(&both[..2]).is_empty(), "latency alone is no comparison of spaces");
        assert_eq!(others(&both[..2]).len(), 2);
        assert!(others(&both).is_empty());
        let [space] = spaces(&both[2..]).try_into().unwrap();
        assert!(space.cost.is_empty());
        assert!(text(&[space]).contains("n/a: a run is missing"));
        let mut partial = three_places(Load::Idle);
        partial[1].provenance.partial = Some("interrupted".into());
        let [space] = spaces(&partial).try_into().unwrap();
        assert_eq!((space.handlers.len(), space.cost.is_empty()), (3, true));
        // Of another directory or load it is no partner.
        let mut apart = three_places(Load::Idle);
        apart[1].dir = "elsewhere/idle-fifo-user".into();
        apart[0].provenance.load = Load::Mixed;
        let [space] = spaces(&apart).try_into().unwrap();
        assert_eq!((space.handlers.len(), space.cost.is_empty()), (1, true));
    }

    #[test]
    fn the_papers_three_times_are_there_for_each_load() {
        let runs = [three_places(Load::Idle), three_places(Load::Cache)].concat();
        let drawings = figures(&runs);
        assert_eq!(drawings.len(), 2);
        for drawing in drawings {
            assert_eq!((drawing.panels.len(), drawing.runs.len()), (3, 2));
            for panel in drawing.panels {
                let places: Vec<Place> = panel.times.iter().map(|(place, _)| *place).collect();
                assert_eq!(places, [Place::Kernel, Place::User], "{}", panel.name);
            }
        }
    }
}
