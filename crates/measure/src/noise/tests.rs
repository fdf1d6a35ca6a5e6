// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of noise, from readings and events.

use super::*;
use asmp_host::counters::InterruptKind;
use asmp_host::tracefs::{Event, EventKind};

/// The window: 1 s from here on.
const BEGIN_NS: u64 = 5_000_000_000;

fn row(kind: InterruptKind, counts: &[(Cpu, u64)]) -> Row {
    Row { kind, counts: counts.iter().copied().collect() }
}

/// On CPU 3, 100 ms after the one before.
fn events(kinds: Vec<EventKind>) -> Vec<Event> {
    let at = |at: usize| BEGIN_NS + 100_000_000 * (at as u64 + 1);
    let kinds = kinds.into_iter().enumerate();
    kinds.map(|(index, kind)| Event { at_ns: at(index), cpu: 3, kind }).collect()
}

fn switch(from_tid: i32, to_tid: i32) -> EventKind {
    let (from_prio, to_prio) = (120, 120);
    EventKind::Switch { from_tid, from: "x".into(), from_prio, to_tid, to: "x".into(), to_prio }
}

/// Each task from the one before it.
fn switches(tids: &[i32]) -> Vec<EventKind> {
    tids.windows(2).map(|two| switch(two[0], two[1])).collect()
}

fn at(at_ns: u64, interrupts: Vec<Row>) -> Counters {
    Counters { at_ns, interrupts, softirqs: BTreeMap::new(), timers: None }
}

fn contents(kinds: Vec<EventKind>) -> Contents {
    Contents { events: events(kinds), has_page_faults: true, lost: 0 }
}

#[test]
fn who_is_not_root_is_told_that_first_and_root_how_to_mount_what_is_missing() {
    let io = |kind: std::io::ErrorKind| {
        let path = "/sys/kernel/tracing/instances".into();
        Error::Io { path, operation: "create", cause: kind.into() }
    };
    let missing = io(std::io::ErrorKind::NotFound);
    let root = why_not_recorded(&missing, Some(0));
    assert!(root.ends_with("mount -t tracefs none /sys/kernel/tracing"), "{root}");
    for error in [missing, io(std::io::ErrorKind::PermissionDenied)] {
        assert_eq!(why_not_recorded(&error, Some(1000)), "only root can record them: use sudo");
    }
}

/// CPU 3, where 10 belongs, 12 is a kernel thread, and these are runnable.
fn beside(recorded: Result<Contents, String>, there: &[Runnable]) -> CpuNoise {
    let before = at(BEGIN_NS, vec![row(InterruptKind::LocalTimer, &[(3, 100)])]);
    let after = at(
        BEGIN_NS + 1_000_000_000,
        vec![
            row(InterruptKind::LocalTimer, &[(3, 107)]),
            row(InterruptKind::Device("24 eth0".into()), &[(3, 5)]),
            row(InterruptKind::Ipi("function call".into()), &[(3, 0)]),
        ],
    );
    let mut seen = Seen { ran: Ran::since([3], BEGIN_NS), ..Seen::default() };
    let take = |contents| {
        seen.take(contents, after.at_ns, BTreeSet::from([10]), there, |tid| tid == 12);
    };
    let unavailable = recorded.map(take).err();
    let cpus = "3".parse().unwrap();
    let report = report("k".into(), &cpus, (&before, &after), &seen, there, unavailable);
    let noise = report.cpus[&3].clone();
    if let Some(foreign) = &noise.foreign_ns {
        let all = foreign.values().chain(noise.kernel_ns.as_ref().unwrap().values());
        let others = [noise.own_ns, noise.idle_ns, noise.unknown_ns].map(Option::unwrap);
        let all: u64 = all.chain(&others).sum();
        assert_eq!(all, report.duration_ns, "no time is lost: {noise:?}");
    }
    noise
}

fn one(recorded: Result<Contents, String>) -> CpuNoise {
    beside(recorded, &[])
}

fn names(names: &[(&str, u64)]) -> Option<BTreeMap<String, u64>> {
    Some(names.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
}

#[test]
fn tasks_are_told_apart_into_own_foreign_and_kernel() {
    let noise = one(Ok(contents(switches(&[0, 10, 11, 0, 11, 12, 0]))));
    assert_eq!((noise.own_switches, noise.own_ns), (Some(1), Some(100_000_000)));
    assert_eq!(noise.foreign_switches, names(&[("x/11", 2)]));
    assert_eq!(noise.foreign_ns, names(&[("x/11", 200_000_000)]));
    assert_eq!(noise.kernel_switches, names(&[("x/12", 1)]));
    assert_eq!(noise.kernel_ns, names(&[("x/12", 100_000_000)]));
    assert_eq!((noise.idle_ns, noise.unknown_ns), (Some(600_000_000), Some(0)));
}

#[test]
fn a_foreign_task_that_has_the_cpu_when_the_count_begins_is_counted() {
    let counted = |tids: &[i32]| {
        let noise = one(Ok(contents(switches(tids))));
        (noise.foreign_switches, noise.kernel_switches)
    };
    assert_eq!(counted(&[11, 10, 0]), (names(&[("x/11", 1)]), names(&[])));
    for begins in [0, 10, 12] {
        assert_eq!(counted(&[begins, 0]), (names(&[]), names(&[])));
    }
}

#[test]
fn a_task_that_has_the_cpu_all_the_time_is_named_with_that_time() {
    let runnable = |tid: i32, cpu: Cpu, priority: i64| {
        let command = "spin".to_owned();
        Runnable { tid, command, cpu, priority }
    };
    let whole = 1_000_000_000;
    let all = |there: &[Runnable]| {
        let noise = beside(Ok(contents(vec![])), there);
        let others = (noise.own_ns.unwrap(), noise.idle_ns.unwrap(), noise.unknown_ns.unwrap());
        (noise.foreign_switches, noise.foreign_ns, noise.kernel_ns, others)
    };
    let spin = || (names(&[("spin/11", 1)]), names(&[("spin/11", whole)]), names(&[]), (0, 0, 0));
    assert_eq!(all(&[runnable(11, 3, 20), runnable(13, 2, 20)]), spin());
    let none = names(&[]);
    assert_eq!(all(&[]), (none.clone(), none.clone(), none.clone(), (0, whole, 0)));
    let own = [runnable(10, 3, 20)];
    assert_eq!(all(&own), (none.clone(), none.clone(), none.clone(), (whole, 0, 0)));
    let thread = [runnable(12, 3, 20)];
    let of_kernel = names(&[("spin/12", whole)]);
    assert_eq!(all(&thread), (none.clone(), none.clone(), of_kernel, (0, 0, 0)));
    // The one that goes before the others had it; of equals none is told from the other.
    assert_eq!(all(&[runnable(12, 3, 20), runnable(11, 3, -81)]), spin());
    let equals = [runnable(11, 3, 20), runnable(13, 3, 20)];
    assert_eq!(all(&equals), (none.clone(), none.clone(), none, (0, 0, whole)));
}

/// /proc is read after the window has ended, and that takes tens of milliseconds.
#[test]
fn who_comes_or_goes_while_proc_is_read_changes_nothing_of_the_window() {
    let whole = 1_000_000_000;
    let after = |ms: u64, kind| Event { at_ns: BEGIN_NS + whole + ms * 1_000_000, cpu: 3, kind };
    let all = |events: Vec<Event>, there: &[(i32, i64)]| {
        let task = |&(tid, priority): &(i32, i64)| {
            let command = "spin".to_owned();
            Runnable { tid, command, cpu: 3, priority }
        };
        let there: Vec<Runnable> = there.iter().map(task).collect();
        let contents = Contents { events, has_page_faults: true, lost: 0 };
        let noise = beside(Ok(contents), &there);
        (noise.foreign_ns, noise.kernel_ns, noise.idle_ns, noise.unknown_ns)
    };
    let idle = || (names(&[]), names(&[]), Some(whole), Some(0));
    let spins = |name| (names(&[(name, whole)]), names(&[]), Some(0), Some(0));
    let unknown = || (names(&[]), names(&[]), Some(0), Some(whole));
    let came = vec![after(5, switch(0, 11)), after(7, switch(11, 0))];
    assert_eq!(all(came, &[(11, 20)]), idle(), "it came after the window");
    assert_eq!(all(vec![after(5, switch(11, 0))], &[]), spins("x/11"), "it left after the window");
    // Of a kernel thread that has left it is known what it is, too.
    let thread = all(vec![after(5, switch(12, 0))], &[]);
    assert_eq!(thread, (names(&[]), names(&[("x/12", whole)]), Some(0), Some(0)));
    // A task of better nice wakes beside the spinner, and has or has not the CPU yet.
    let beside = [(11, 20), (13, 15)];
    assert_eq!(all(vec![after(5, switch(11, 13))], &beside), spins("x/11"));
    assert_eq!(all(vec![], &beside), unknown(), "neither is known to have been there");
    let unreadable = vec![after(2, EventKind::Unreadable), after(5, switch(11, 0))];
    assert_eq!(all(unreadable, &[]), unknown(), "a switch may have been before");
    let elsewhere = Event { cpu: 2, ..after(5, switch(13, 0)) };
    assert_eq!(all(vec![elsewhere], &[(11, 20)]), spins("spin/11"));
}

#[test]
fn a_task_that_came_before_the_window_and_stays_is_told_apart_too() {
    let times = |tid: i32| {
        let came = Event { at_ns: BEGIN_NS - 1, cpu: 3, kind: switch(0, tid) };
        let noise = one(Ok(Contents { events: vec![came], has_page_faults: true, lost: 0 }));
        (noise.foreign_ns, noise.kernel_ns, noise.own_ns)
    };
    let (whole, none) = (1_000_000_000, names(&[]));
    assert_eq!(times(11), (names(&[("x/11", whole)]), none.clone(), Some(0)));
    assert_eq!(times(12), (none.clone(), names(&[("x/12", whole)]), Some(0)));
    assert_eq!(times(10), (none.clone(), none, Some(whole)));
}

#[test]
fn children_of_own_tasks_are_own_and_those_of_others_are_not() {
    let fork = |parent, child| EventKind::Fork { parent, child };
    let kinds = vec![
        fork(10, 20),
        switch(0, 20),
        fork(20, 21),
        switch(20, 21),
        fork(11, 22),
        switch(21, 22),
    ];
    let noise = one(Ok(contents(kinds)));
    assert_eq!(noise.own_switches, Some(2));
    assert_eq!(noise.foreign_switches, names(&[("x/22", 1)]));
}

#[test]
fn a_task_that_ends_within_the_window_stays_what_it_was_in_an_earlier_portion() {
    let mut seen = Seen { ran: Ran::since([3], BEGIN_NS), ..Seen::default() };
    let (own, end_ns) = (BTreeSet::from([10]), BEGIN_NS + 1_000_000_000);
    let first = contents(switches(&[0, 10, 12, 0]));
    seen.take(first, end_ns - 1, own, &[], |tid| tid == 12);
    // Of 10, 12 and 13 nothing is left by then.
    let event = |ms: u64, kind| Event { at_ns: BEGIN_NS + ms * 1_000_000, cpu: 3, kind };
    let events = vec![event(500, switch(0, 13)), event(600, switch(13, 0))];
    let second = Contents { events, has_page_faults: true, lost: 0 };
    seen.take(second, end_ns, BTreeSet::new(), &[], |_| false);
    let mut noise = CpuNoise::default();
    tasks_of(&mut noise, &seen, 3, end_ns, &[]);
    assert_eq!((noise.kernel_switches, noise.own_switches), (names(&[("x/12", 1)]), Some(1)));
    assert_eq!(noise.foreign_switches, names(&[("x/13", 1)]), "nothing tells what it was");
}

#[test]
fn tasks_in_a_group_that_a_task_made_inside_belong_there() {
    let root = tempfile::tempdir().unwrap();
    for (group, tids) in [("rt", "10\n"), ("rt/sub", "11\n12\n"), ("rest", "13\n")] {
        let dir = root.path().join("motion").join(group);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("cgroup.procs"), "").unwrap();
        std::fs::write(dir.join("cgroup.threads"), tids).unwrap();
    }
    let request = Request { cpus: CpuSet::new(), groups: vec!["/motion/rt".into()] };
    let kernel = asmp_host::Linux::below(root.path());
    assert_eq!(members(&kernel, &request), BTreeSet::from([10, 11, 12]));
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
        let mut counters = at(0, vec![row(InterruptKind::LocalTimer, &[(3, 100 + watchdog)])]);
        counters.timers = Some(Timers::from([(3, BTreeMap::from(timers))]));
        counters
    };
    let table_of = |before: &Counters, after: &Counters| {
        let cpus = "3".parse().unwrap();
        let of = report("k".into(), &cpus, (before, after), &Seen::default(), &[], None);
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
    let before = at(0, vec![row(InterruptKind::LocalTimer, &[(3, 100)])]);
    let after = at(0, vec![row(InterruptKind::LocalTimer, &[(0, 100)])]);
    let cpus = "3".parse().unwrap();
    let report = report("k".into(), &cpus, (&before, &after), &Seen::default(), &[], None);
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

#[test]
fn the_table_says_how_long_tasks_ran_the_longest_first() {
    let noise = one(Ok(contents(switches(&[0, 11, 13, 0, 12, 0]))));
    let report = Report {
        schema: NOISE_SCHEMA,
        kernel: "k".into(),
        duration_ns: 1_000_000_000,
        lost_events: 0,
        tasks_unavailable: None,
        cpus: BTreeMap::from([(3, noise)]),
    };
    let text = table(&[("", &report)]);
    let row = |label: &str| {
        let line = text.lines().find(|line| line.starts_with(label)).unwrap_or_else(|| {
            panic!("no {label} in\n{text}");
        });
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(row("foreign tasks ran, us"), "200000");
    assert_eq!(row("kernel threads ran, us"), "100000");
    assert_eq!((row("own tasks ran, us"), row("who ran is unknown, us")), ("0".into(), "0".into()));
    assert!(text.contains("CPU 3 foreign: x/11 1 (100000.0 us), x/13 1 (100000.0 us)\n"), "{text}");
    assert!(text.contains("CPU 3 kernel threads: x/12 1 (100000.0 us)\n"), "{text}");
}
