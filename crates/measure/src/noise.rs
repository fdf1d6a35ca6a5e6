// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Noise: what disturbed CPUs during a window, in counts. A row of zeros, beside the same counts
//! without the partition, shows that a partition holds.
//!
//! Counters (interrupts, softirqs) are read before and after; who ran is recorded by a private
//! trace instance. Units: counts in the window unless a name says otherwise; time in ns of the
//! monotonic clock.

use asmp_host::architecture::TIMER_CURES;
use asmp_host::counters::{self, Interrupts, Row};
use asmp_host::task;
use asmp_host::tracefs::timers::{self, Timers};
use asmp_host::tracefs::{Contents, EventBuffer, EventKind};
use asmp_host::{Cpu, CpuSet, Error, Kernel, cgroup};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Version of the layout of [`Report`] in JSON.
pub const NOISE_SCHEMA: u32 = 1;

/// What to count.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub cpus: CpuSet,
    /// Groups whose tasks belong on these CPUs; without any, every task but idle is foreign.
    pub groups: Vec<PathBuf>,
}

/// Counts of one window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub schema: u32,
    pub kernel: String,
    /// Length of the window, measured.
    pub duration_ns: u64,
    /// Trace events that found no room or cannot be read; then the counts of tasks are lower
    /// bounds.
    pub lost_events: u64,
    /// Why tasks could not be recorded, where they could not.
    pub tasks_unavailable: Option<String>,
    pub cpus: BTreeMap<Cpu, CpuNoise>,
}

/// Counts of one CPU. A count that could not be read is `null`, never 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuNoise {
    /// The CPU went offline during the window; the counts are void.
    pub went_offline: bool,
    /// Local timer interrupts.
    /// `None`: which interrupt is the timer's is not known on this machine.
    pub ticks: Option<u64>,
    /// Interrupts of devices, by line and handler; only those that came.
    pub device_interrupts: BTreeMap<String, u64>,
    /// Interrupts from other CPUs, by kind; only those that came.
    pub ipis: BTreeMap<String, u64>,
    /// Machine checks, NMIs and the like; only those that came.
    pub other_interrupts: BTreeMap<String, u64>,
    /// Softirqs by kind; only those that came.
    pub softirqs: BTreeMap<String, u64>,
    /// Timers that expired, by the function of the kernel that each calls; only those that came.
    /// The tick is one (`tick_nohz_handler`).
    pub timers: Option<BTreeMap<String, u64>>,
    /// Switches to tasks that do not belong here (user tasks), by `command/tid`.
    pub foreign_switches: Option<BTreeMap<String, u64>>,
    /// Switches to kernel threads, by `command/tid`.
    pub kernel_switches: Option<BTreeMap<String, u64>>,
    /// Switches to tasks that belong here.
    pub own_switches: Option<u64>,
    /// Tasks moved onto or off this CPU, by `command/tid`.
    pub migrations: Option<BTreeMap<String, u64>>,
    /// `None` where the architecture has no event for page faults.
    pub user_page_faults: Option<u64>,
    pub kernel_page_faults: Option<u64>,
}

/// Counters at one instant.
struct Counters {
    at: Instant,
    interrupts: Vec<Row>,
    softirqs: BTreeMap<String, BTreeMap<Cpu, u64>>,
    timers: Option<Timers>,
}

fn counters(kernel: &dyn Kernel, timers: Option<Timers>) -> Result<Counters, Error> {
    let (interrupts, softirqs) = (counters::interrupts(kernel)?, counters::softirqs(kernel)?);
    Ok(Counters { at: Instant::now(), interrupts, softirqs, timers })
}

/// Counts while `wait` runs. Errors: a counter file cannot be read. Where tasks cannot be recorded
/// (no tracefs, not root), the report says so.
pub fn observe(
    kernel: &dyn Kernel,
    request: &Request,
    wait: impl FnOnce(),
) -> Result<Report, Error> {
    let buffer = EventBuffer::prepare(kernel, &request.cpus);
    // A task that ends is no member any more, but is still switched to: it is known from before, or
    // by its fork.
    let mut own = members(kernel, request);
    let started = buffer.as_ref().map_err(ToString::to_string).and_then(|buffer| {
        buffer.start().map_err(|error| error.to_string())?;
        // Patching the tracepoints in interrupts all CPUs; let that settle before the window opens.
        std::thread::sleep(Duration::from_millis(50));
        own.extend(members(kernel, request));
        buffer.open_window().map_err(|error| error.to_string())
    });
    let timers = || buffer.as_ref().ok().and_then(EventBuffer::timers);
    let before = counters(kernel, timers())?;
    wait();
    let after = counters(kernel, timers())?;
    let recorded = match (&started, &buffer) {
        (Ok(()), Ok(buffer)) => buffer.stop().map_err(|error| error.to_string()),
        (Err(reason), _) => Err(reason.clone()),
        (Ok(()), Err(error)) => Err(error.to_string()),
    };
    drop(buffer);
    own.extend(members(kernel, request));
    let release =
        kernel.text(std::path::Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    let is_kernel_thread = |tid: i32| task::read(kernel, tid).is_ok_and(|task| task.kernel_thread);
    Ok(report(release, &request.cpus, &before, &after, recorded, &own, &is_kernel_thread))
}

fn members(kernel: &dyn Kernel, request: &Request) -> BTreeSet<i32> {
    request
        .groups
        .iter()
        .flat_map(|group| cgroup::threads_of(kernel, group).unwrap_or_default())
        .collect()
}

/// Counts from two readings and a trace. Pure, except that `is_kernel_thread` asks the kernel.
fn report(
    kernel: String,
    cpus: &CpuSet,
    before: &Counters,
    after: &Counters,
    recorded: Result<Contents, String>,
    own: &BTreeSet<i32>,
    is_kernel_thread: &dyn Fn(i32) -> bool,
) -> Report {
    let mut noise: BTreeMap<Cpu, CpuNoise> =
        cpus.iter().map(|cpu| (cpu, interrupts_of(cpu, before, after))).collect();
    let (lost_events, tasks_unavailable) = match &recorded {
        Ok(contents) => {
            tasks_of(&mut noise, contents, own, is_kernel_thread);
            (contents.lost, None)
        }
        Err(reason) => (0, Some(reason.clone())),
    };
    Report {
        schema: NOISE_SCHEMA,
        kernel,
        duration_ns: u64::try_from((after.at - before.at).as_nanos()).unwrap_or(u64::MAX),
        lost_events,
        tasks_unavailable,
        cpus: noise,
    }
}

fn interrupts_of(cpu: Cpu, before: &Counters, after: &Counters) -> CpuNoise {
    let Some(came) = Interrupts::between(&before.interrupts, &after.interrupts, cpu) else {
        return CpuNoise { went_offline: true, ..CpuNoise::default() };
    };
    let mut noise = CpuNoise {
        ticks: came.ticks,
        device_interrupts: came.devices,
        ipis: came.ipis,
        other_interrupts: came.others,
        ..CpuNoise::default()
    };
    if let (Some(before), Some(after)) = (&before.timers, &after.timers) {
        noise.timers = Some(timers::since(before, after, cpu));
    }
    for (kind, counts) in &after.softirqs {
        let then =
            before.softirqs.get(kind).and_then(|counts| counts.get(&cpu)).copied().unwrap_or(0);
        let count = counts.get(&cpu).copied().unwrap_or(0).saturating_sub(then);
        if count > 0 {
            noise.softirqs.insert(kind.clone(), count);
        }
    }
    noise
}

fn tasks_of(
    noise: &mut BTreeMap<Cpu, CpuNoise>,
    contents: &Contents,
    own: &BTreeSet<i32>,
    is_kernel_thread: &dyn Fn(i32) -> bool,
) {
    for cpu in noise.values_mut() {
        cpu.foreign_switches = Some(BTreeMap::new());
        cpu.kernel_switches = Some(BTreeMap::new());
        cpu.own_switches = Some(0);
        cpu.migrations = Some(BTreeMap::new());
        cpu.user_page_faults = contents.has_page_faults.then_some(0);
        cpu.kernel_page_faults = contents.has_page_faults.then_some(0);
    }
    let mut kernel_threads: BTreeMap<i32, bool> = BTreeMap::new();
    // What a task of ours makes is ours, though it may have ended before asmp could ask.
    let mut own = own.clone();
    let mut is_kernel_thread =
        |tid: i32| *kernel_threads.entry(tid).or_insert_with(|| is_kernel_thread(tid));
    let mut begun = BTreeSet::new();
    for event in &contents.events {
        match &event.kind {
            EventKind::Switch { from_tid, from, to_tid, to } => {
                let Some(cpu) = noise.get_mut(&event.cpu) else { continue };
                // Who had the CPU when the count began was switched to before. One that never
                // leaves is in no event.
                let is_first = begun.insert(event.cpu) && *from_tid != 0;
                if is_first && !own.contains(from_tid) && !is_kernel_thread(*from_tid) {
                    let had = cpu.foreign_switches.get_or_insert_default();
                    *had.entry(format!("{from}/{from_tid}")).or_default() += 1;
                }
                let counts = match *to_tid {
                    0 => continue,
                    tid if own.contains(&tid) => {
                        *cpu.own_switches.get_or_insert_default() += 1;
                        continue;
                    }
                    tid if is_kernel_thread(tid) => &mut cpu.kernel_switches,
                    _ => &mut cpu.foreign_switches,
                };
                let name = format!("{to}/{to_tid}");
                *counts.get_or_insert_default().entry(name).or_default() += 1;
            }
            EventKind::Migration { tid, command, from, to } => {
                for cpu in [from, to] {
                    if let Some(cpu) = noise.get_mut(cpu) {
                        *cpu.migrations
                            .get_or_insert_default()
                            .entry(format!("{command}/{tid}"))
                            .or_default() += 1;
                    }
                }
            }
            EventKind::Fork { parent, child } if own.contains(parent) => {
                own.insert(*child);
            }
            EventKind::PageFault { user } => {
                let Some(cpu) = noise.get_mut(&event.cpu) else { continue };
                let count =
                    if *user { &mut cpu.user_page_faults } else { &mut cpu.kernel_page_faults };
                *count.get_or_insert_default() += 1;
            }
            // The buffer enables no other event.
            _ => {}
        }
    }
}

/// A cell: what it counts, and where it is named.
type Rows = Vec<(String, Option<u64>)>;

fn sum(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

fn rows(cpu: &CpuNoise) -> Rows {
    let of = |counts: &Option<BTreeMap<String, u64>>| counts.as_ref().map(sum);
    let mut rows = vec![
        ("local timer ticks".to_owned(), cpu.ticks),
        ("device interrupts".to_owned(), Some(sum(&cpu.device_interrupts))),
        ("IPIs".to_owned(), Some(sum(&cpu.ipis))),
        ("other interrupts".to_owned(), Some(sum(&cpu.other_interrupts))),
        ("softirqs".to_owned(), Some(sum(&cpu.softirqs))),
        ("switches to foreign tasks".to_owned(), of(&cpu.foreign_switches)),
        ("switches to kernel threads".to_owned(), of(&cpu.kernel_switches)),
        ("switches to own tasks".to_owned(), cpu.own_switches),
        ("migrations".to_owned(), of(&cpu.migrations)),
        ("page faults, user".to_owned(), cpu.user_page_faults),
        ("page faults, kernel".to_owned(), cpu.kernel_page_faults),
    ];
    if cpu.went_offline {
        rows.iter_mut().for_each(|(_, count)| *count = None);
    }
    rows
}

/// A table with one column a report and CPU, and below it the names behind the counts.
pub fn table(columns: &[(&str, &Report)]) -> String {
    let mut heads = Vec::new();
    let mut cells: Vec<Rows> = Vec::new();
    for (title, report) in columns {
        for (number, cpu) in &report.cpus {
            heads.push(match title.is_empty() {
                true => format!("CPU {number}"),
                false => format!("CPU {number} {title}"),
            });
            cells.push(rows(cpu));
        }
    }
    let width = heads.iter().map(String::len).max().unwrap_or(0).max(8) + 2;
    let mut text = format!("{:28}", "in the window");
    heads.iter().for_each(|head| text.push_str(&format!("{head:>width$}")));
    text.push('\n');
    for index in 0..cells.first().map_or(0, Vec::len) {
        text.push_str(&format!("{:28}", cells[0][index].0));
        for column in &cells {
            let cell = column[index].1.map_or("-".to_owned(), |count| count.to_string());
            text.push_str(&format!("{cell:>width$}"));
        }
        text.push('\n');
    }
    for (title, report) in columns {
        let seconds = report.duration_ns as f64 / 1e9;
        text.push_str(&format!(
            "{title}{}{seconds:.2} s, kernel {}",
            if title.is_empty() { "" } else { ": " },
            report.kernel
        ));
        match &report.tasks_unavailable {
            Some(reason) => text.push_str(&format!(", tasks not recorded: {reason}")),
            None => text.push_str(&format!(", lost events {}", report.lost_events)),
        }
        text.push('\n');
        for (number, cpu) in &report.cpus {
            names(&mut text, *number, cpu);
        }
    }
    text
}

/// The name of a task begins no line of its own.
pub(crate) fn shown(name: &str) -> String {
    name.replace('\n', "\\n")
}

fn names(text: &mut String, number: Cpu, cpu: &CpuNoise) {
    if cpu.went_offline {
        text.push_str(&format!("  CPU {number}: went offline\n"));
    }
    let none = BTreeMap::new();
    let named = [
        ("devices", &cpu.device_interrupts),
        ("IPIs", &cpu.ipis),
        ("others", &cpu.other_interrupts),
        ("softirqs", &cpu.softirqs),
        ("timers", cpu.timers.as_ref().unwrap_or(&none)),
        ("foreign", cpu.foreign_switches.as_ref().unwrap_or(&none)),
        ("kernel threads", cpu.kernel_switches.as_ref().unwrap_or(&none)),
        ("migrated", cpu.migrations.as_ref().unwrap_or(&none)),
    ];
    for (label, counts) in named.into_iter().filter(|(_, counts)| !counts.is_empty()) {
        let mut most: Vec<_> = counts.iter().collect();
        most.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
        let shown: Vec<String> =
            most.iter().take(8).map(|(name, count)| format!("{} {count}", shown(name))).collect();
        let more = most.len().saturating_sub(8);
        let rest = if more == 0 { String::new() } else { format!(", and {more} more") };
        text.push_str(&format!("  CPU {number} {label}: {}{rest}\n", shown.join(", ")));
    }
    let came = |timer: &str| cpu.timers.as_ref().is_some_and(|timers| timers.contains_key(timer));
    for (timer, cure) in TIMER_CURES.into_iter().filter(|(timer, _)| came(timer)) {
        text.push_str(&format!("  CPU {number}: {timer}: {cure}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::counters::InterruptKind;
    use asmp_host::tracefs::Event;

    fn row(kind: InterruptKind, counts: &[(Cpu, u64)]) -> Row {
        Row { kind, counts: counts.iter().copied().collect() }
    }

    fn on_cpu_3(kind: EventKind) -> Event {
        Event { at_ns: 0, cpu: 3, kind }
    }

    fn switch_to(tid: i32) -> EventKind {
        EventKind::Switch { from_tid: 0, from: "swapper".into(), to_tid: tid, to: "x".into() }
    }

    fn at(interrupts: Vec<Row>) -> Counters {
        Counters { at: Instant::now(), interrupts, softirqs: BTreeMap::new(), timers: None }
    }

    fn one(recorded: Result<Contents, String>) -> CpuNoise {
        let before = at(vec![row(InterruptKind::LocalTimer, &[(3, 100)])]);
        let after = at(vec![
            row(InterruptKind::LocalTimer, &[(3, 107)]),
            row(InterruptKind::Device("24 eth0".into()), &[(3, 5)]),
            row(InterruptKind::Ipi("function call".into()), &[(3, 0)]),
        ]);
        let own = BTreeSet::from([10]);
        let cpus = "3".parse().unwrap();
        report("k".into(), &cpus, &before, &after, recorded, &own, &|tid| tid == 12).cpus[&3]
            .clone()
    }

    #[test]
    fn tasks_are_told_apart_into_own_foreign_and_kernel() {
        let switch = |tid| on_cpu_3(switch_to(tid));
        let events = vec![switch(0), switch(10), switch(11), switch(11), switch(12)];
        let noise = one(Ok(Contents { events, has_page_faults: true, lost: 0 }));
        assert_eq!(noise.own_switches, Some(1));
        assert_eq!(noise.foreign_switches, Some(BTreeMap::from([("x/11".into(), 2)])));
        assert_eq!(noise.kernel_switches, Some(BTreeMap::from([("x/12".into(), 1)])));
    }

    #[test]
    fn a_foreign_task_that_has_the_cpu_when_the_count_begins_is_counted() {
        let switch = |from_tid, to_tid| {
            on_cpu_3(EventKind::Switch { from_tid, from: "x".into(), to_tid, to: "x".into() })
        };
        let counted = |events| {
            let noise = one(Ok(Contents { events, has_page_faults: true, lost: 0 }));
            (noise.foreign_switches.unwrap(), noise.kernel_switches.unwrap())
        };
        let foreign = BTreeMap::from([("x/11".to_owned(), 1)]);
        assert_eq!(counted(vec![switch(11, 10), switch(10, 0)]), (foreign, BTreeMap::new()));
        for begins in [0, 10, 12] {
            assert_eq!(counted(vec![switch(begins, 0)]), (BTreeMap::new(), BTreeMap::new()));
        }
    }

    #[test]
    fn children_of_own_tasks_are_own_and_those_of_others_are_not() {
        let switch = |tid| on_cpu_3(switch_to(tid));
        let fork = |parent, child| on_cpu_3(EventKind::Fork { parent, child });
        let events =
            vec![fork(10, 20), switch(20), fork(20, 21), switch(21), fork(11, 22), switch(22)];
        let noise = one(Ok(Contents { events, has_page_faults: true, lost: 0 }));
        assert_eq!(noise.own_switches, Some(2));
        assert_eq!(noise.foreign_switches, Some(BTreeMap::from([("x/22".into(), 1)])));
    }

    #[test]
    fn counters_are_differences_and_a_line_that_appeared_began_at_zero() {
        let noise = one(Ok(Contents::default()));
        assert_eq!(noise.ticks, Some(7));
        assert_eq!(noise.device_interrupts, BTreeMap::from([("24 eth0".into(), 5)]));
        assert!(noise.ipis.is_empty());
    }

    #[test]
    fn page_faults_that_have_no_event_are_unknown_and_not_zero() {
        let counted = |has_page_faults| {
            let contents = Contents { has_page_faults, ..Contents::default() };
            let noise = one(Ok(contents));
            (noise.user_page_faults, noise.kernel_page_faults)
        };
        assert_eq!(counted(true), (Some(0), Some(0)));
        assert_eq!(counted(false), (None, None));
    }

    #[test]
    fn what_was_not_recorded_is_unknown_and_not_zero() {
        let noise = one(Err("no tracefs".into()));
        assert_eq!(noise.foreign_switches, None);
        assert_eq!(noise.user_page_faults, None);
    }

    #[test]
    fn timers_are_named_and_the_clocks_watchdog_has_its_cure() {
        let expired = |watchdog| {
            let timers = [("tick_nohz_handler", 3), ("clocksource_watchdog", watchdog)];
            let timers = timers.map(|(name, count)| (name.to_owned(), count));
            let mut counters = at(vec![row(InterruptKind::LocalTimer, &[(3, 100 + watchdog)])]);
            counters.timers = Some(Timers::from([(3, BTreeMap::from(timers))]));
            counters
        };
        let table_of = |before: &Counters, after: &Counters| {
            let cpus = "3".parse().unwrap();
            let trace = Ok(Contents::default());
            let of = report("k".into(), &cpus, before, after, trace, &BTreeSet::new(), &|_| false);
            table(&[("", &of)])
        };
        let (before, after) = (expired(1), expired(5));
        let text = table_of(&before, &after);
        assert!(text.contains("  CPU 3 timers: clocksource_watchdog 4\n"), "{text}");
        assert!(text.contains("tsc=reliable at boot"), "{text}");
        let text = table_of(&after, &after);
        assert!(!text.contains("clocksource_watchdog"), "{text}");
        let noise = one(Ok(Contents::default()));
        assert_eq!(noise.timers, None, "not counted, and not zero");
    }

    #[test]
    fn a_cpu_that_went_offline_has_no_counts() {
        let before = at(vec![row(InterruptKind::LocalTimer, &[(3, 100)])]);
        let after = at(vec![row(InterruptKind::LocalTimer, &[(0, 100)])]);
        let cpus = "3".parse().unwrap();
        let trace = Ok(Contents::default());
        let report =
            report("k".into(), &cpus, &before, &after, trace, &BTreeSet::new(), &|_| false);
        assert!(report.cpus[&3].went_offline);
        assert!(table(&[("", &report)]).contains("went offline"));
    }

    #[test]
    fn the_table_puts_columns_side_by_side() {
        let noise = one(Ok(Contents::default()));
        let report = Report {
            schema: 1,
            kernel: "k".into(),
            duration_ns: 1_000_000_000,
            lost_events: 0,
            tasks_unavailable: None,
            cpus: BTreeMap::from([(3, noise)]),
        };
        let text = table(&[("before", &report), ("shielded", &report)]);
        assert!(text.contains("CPU 3 before") && text.contains("CPU 3 shielded"), "{text}");
        assert!(text.contains("24 eth0 5"), "{text}");
    }
}
