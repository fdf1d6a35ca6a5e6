// SPDX-License-Identifier: Apache-2.0 OR MIT
//! noise: the proof in counts. On a terminal a table, refreshed every second; elsewhere JSON. Both
//! have the totals since the window opened, and the window has no gap. A signal ends the window.

use crate::args::Noise;
use crate::exit::of_signal;
use crate::signals::Noted;
use anyhow::{Context, Result};
use asmp_host::sharing::{self, Sharing};
use asmp_host::{CpuSet, Facts, Kernel, clock, task};
use asmp_measure::noise::{Report, Request, Watch, table};
use asmp_shield::plan::Base;
use asmp_shield::text::shown_lines;
use asmp_shield::{Mode, Refusal, Shield, State, check_tree};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// So many bound tasks are named in the table; the others are counted.
const MOST_NAMED: usize = 8;

/// A report for programs: what the table says below it, too.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// Of the partition that was named; `null` with --cpus.
    mode: Option<Mode>,
    /// `null` where the CPUs were not shared and guarded all the time.
    shared: Option<Guests>,
}

/// What foreign tasks did on all shared CPUs meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Guests {
    /// How often they began a system call or a page fault there.
    entered: u64,
    /// How often they left these CPUs while in the kernel, for whichever reason.
    left: u64,
    /// Foreign tasks that were seen and may run on no other CPUs. Their system calls run there, and
    /// are in neither count.
    bound: Vec<Bound>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Bound {
    /// `command/tid`
    task: String,
    cpus: CpuSet,
}

/// How often the kernel's buffers are read, and the table is refreshed.
const TURN: Duration = Duration::from_secs(1);

/// Counts for a time, or until a signal comes. Exit code: 0, or of the signal.
pub fn noise(shield: &Shield, noise: &Noise) -> Result<u8> {
    // The end of this process alone would leave the kernel recording, on shielded CPUs too.
    let noted = Noted::take().context("take signals")?;
    count(shield, noise, &|| noted.signal())
}

/// `came` is a signal that has come.
fn count(shield: &Shield, noise: &Noise, came: &dyn Fn() -> Option<i32>) -> Result<u8> {
    let facts = Facts::read(shield.kernel())?;
    // Elsewhere the tasks that belong on the CPUs cannot be told from others.
    check_tree(&facts)?;
    let request = request(shield, &facts, noise)?;
    let state = shield.state()?;
    let shared = shared(&state, &request.cpus);
    let before = if shared.is_empty() { None } else { guests(shield.kernel()) };
    let watched = std::io::stdout().is_terminal() && !noise.json && !noise.table;
    let mut watch = Watch::begin(shield.kernel(), &request)?;
    let end = Instant::now() + noise.time;
    let mut clear = "";
    let signal = loop {
        let left = end.saturating_duration_since(Instant::now());
        // A signal ends the sleep. One that comes right before it waits a turn at most.
        let signal = came().or_else(|| {
            clock::sleep_until(clock::monotonic_ns() + left.min(TURN).as_nanos() as u64);
            came()
        });
        if watched {
            let text = table(&[("", &watch.look()?)]);
            let mut out = std::io::stdout().lock();
            write!(out, "{clear}{}", shown_lines(&text))?;
            out.flush()?;
            // Home and clear below, so that the table is refreshed in place.
            clear = "\x1b[H\x1b[J";
        } else {
            watch.drain();
        }
        if signal.is_some() || left <= TURN {
            break signal;
        }
    };
    if !watched {
        let report = watch.look()?;
        let guests = before.zip(guests(shield.kernel())).map(|(before, after)| {
            let [entered, left] = [0, 1].map(|at: usize| after[at].saturating_sub(before[at]));
            let bound = bound(shield.kernel(), &facts.cpus.online, &shared, &report);
            Guests { entered, left, bound }
        });
        if noise.table {
            print!("{}", table(&[("", &report)]));
            if !shared.is_empty() {
                lines(guests.as_ref()).iter().for_each(|line| println!("shared CPUs: {line}"));
            }
        } else {
            let named = noise.name.as_deref().and_then(|name| state.partition(name).ok());
            let mode = named.map(|one| one.mode);
            crate::print::json(&Shown { report: &report, mode, shared: guests })?;
        }
    }
    Ok(signal.map_or(0, of_signal))
}

/// Those of `cpus` that foreign tasks share under the guarantee: all CPUs of their partitions.
fn shared(state: &State, cpus: &CpuSet) -> CpuSet {
    let all = state.partitions.iter().filter(|one| one.mode == Mode::Shared);
    let all = all.fold(CpuSet::new(), |all, one| all.union(&one.cpus));
    if all.intersects(cpus) { all } else { CpuSet::new() }
}

/// Foreign tasks of the report that may run on shared CPUs alone.
fn bound(kernel: &dyn Kernel, online: &CpuSet, shared: &CpuSet, report: &Report) -> Vec<Bound> {
    let seen = report.cpus.iter().filter(|(cpu, _)| shared.contains(**cpu));
    let seen = seen.filter_map(|(_, noise)| noise.foreign_switches.as_ref()).flatten();
    let of = |name: &String| {
        let tid = name.rsplit_once('/')?.1.parse().ok()?;
        let cpus = task::allowed_cpus(kernel, tid)?.intersection(online);
        cpus.is_subset(shared).then(|| (name.clone(), cpus))
    };
    let all: BTreeMap<String, CpuSet> = seen.filter_map(|(name, _)| of(name)).collect();
    all.into_iter().map(|(task, cpus)| Bound { task, cpus }).collect()
}

/// What there is to say of the tasks on shared CPUs; `None`: they were not guarded all the time, as
/// far as this user may see.
fn lines(guests: Option<&Guests>) -> Vec<String> {
    let Some(Guests { entered, left, bound }) = guests else {
        return vec![
            "not guarded all the time: foreign tasks may have been in the kernel there (`asmp \
             status`)"
                .to_owned(),
        ];
    };
    let named = bound.iter().take(MOST_NAMED).map(|Bound { task, cpus }| {
        format!("{task} is bound to CPU {cpus}: its system calls run there, and are not counted")
    });
    let mut lines: Vec<String> = named.collect();
    if bound.len() > MOST_NAMED {
        lines.push(format!("so are {} more tasks", bound.len() - MOST_NAMED));
    }
    let who = if bound.is_empty() { "foreign tasks" } else { "other foreign tasks" };
    lines.push(format!(
        "{who} are there in user mode; they entered the kernel {entered} times, and left these \
         CPUs {left} times while in it"
    ));
    lines
}

/// How often tasks entered the kernel on guarded CPUs, and left one on the way in; `None`: no CPU
/// is guarded, or this user may not see it.
fn guests(kernel: &dyn Kernel) -> Option<[u64; 2]> {
    if Sharing::read(kernel).guarded.is_empty() {
        return None;
    }
    let counts = sharing::counts(kernel)?;
    Some([sharing::entered(&counts)?, sharing::count_of(&counts, "left_in_kernel")?])
}

fn request(shield: &Shield, facts: &Facts, noise: &Noise) -> Result<Request> {
    let state = shield.state()?;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let group = |name: &str| base.groups(name).rt;
    if let Some(name) = &noise.name {
        let partition = state.partition(name)?;
        return Ok(Request { cpus: partition.shielded(), groups: vec![group(name)] });
    }
    let online = &facts.cpus.online;
    let cpus: CpuSet = noise.cpus.as_ref().map(|spec| spec.resolve(online)).unwrap_or_default();
    asmp_shield::online_cpus(facts, &cpus)?;
    // Tasks of a partition on these CPUs belong there.
    let groups = state
        .partitions
        .iter()
        .filter(|partition| partition.shielded().intersects(&cpus))
        .map(|partition| group(&partition.name))
        .collect();
    Ok(Request { cpus, groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::fake::FakeKernel;
    use asmp_host::store::Store;
    use asmp_shield::{Caller, Spec};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn a_signal_ends_the_count_and_what_was_counted_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Arc::new(FakeKernel::new());
        kernel.set_file("/proc/softirqs", "CPU0 CPU1 CPU2 CPU3\nTIMER: 1 2 3 4\n");
        let shield = Shield::new(kernel, Store::at(dir.path()));
        let long = Duration::from_secs(150);
        let cpus = Some("3".parse().unwrap());
        let noise = Noise { name: None, cpus, time: long, json: true, table: false };
        crate::print::recorded();
        let (begun, looks) = (Instant::now(), AtomicUsize::new(0));
        // It comes while it sleeps.
        let second = || (looks.fetch_add(1, Relaxed) >= 1).then_some(libc::SIGINT);
        assert_eq!(count(&shield, &noise, &second).unwrap(), 130);
        assert!(begun.elapsed() < long / 2);
        let report: serde_json::Value = serde_json::from_str(&crate::print::recorded()).unwrap();
        let counted_ns = report["duration_ns"].as_u64().unwrap();
        assert!(counted_ns > 0 && Duration::from_nanos(counted_ns) < long / 2, "{report}");
        // A count that no signal ends has its whole time.
        let short = Noise { time: Duration::from_millis(10), ..noise };
        assert_eq!(count(&shield, &short, &|| None).unwrap(), 0);
    }

    #[test]
    fn tasks_that_are_bound_to_shared_cpus_are_named_and_not_said_to_be_in_user_mode() {
        let kernel = FakeKernel::new();
        let cpus: CpuSet = "2-3".parse().unwrap();
        for (tid, may_run) in [(228, "3"), (229, "1,3")] {
            kernel.start(tid, tid, "sysloop", asmp_host::Schedule::Other { nice: 0 });
            kernel.give_at_boot(tid, &may_run.parse().unwrap());
        }
        let seen = ["sysloop/228", "sysloop/229", "ended/77"].map(|name| (name.to_owned(), 1));
        let noise = asmp_measure::noise::CpuNoise {
            foreign_switches: Some(seen.into()),
            ..Default::default()
        };
        let report = Report {
            schema: asmp_measure::noise::NOISE_SCHEMA,
            kernel: "k".into(),
            duration_ns: 1,
            lost_events: 0,
            tasks_unavailable: None,
            cpus: [(3, noise)].into(),
        };
        let bound = bound(&kernel, &kernel.online(), &cpus, &report);
        let guests = Guests { entered: 3, left: 2, bound };
        assert_eq!(
            lines(Some(&guests)),
            [
                "sysloop/228 is bound to CPU 3: its system calls run there, and are not counted",
                "other foreign tasks are there in user mode; they entered the kernel 3 times, and \
                 left these CPUs 2 times while in it"
            ]
        );
        let free = Guests { bound: Vec::new(), ..guests.clone() };
        assert!(lines(Some(&free))[0].starts_with("foreign tasks are there in user mode; "));
        assert!(lines(None)[0].starts_with("not guarded all the time: "));
        let many = Guests { bound: vec![guests.bound[0].clone(); 10], ..guests };
        assert_eq!(lines(Some(&many))[8], "so are 2 more tasks");
    }

    #[test]
    fn json_has_the_mode_of_the_partition_and_what_was_counted_there() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Arc::new(FakeKernel::new());
        kernel.can_share();
        kernel.set_file("/proc/softirqs", "CPU0 CPU1 CPU2 CPU3\nTIMER: 1 2 3 4\n");
        let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
        let spec = Spec {
            mode: Mode::Shared,
            ..Spec::with(asmp_shield::Cpus::Named("2-3".parse().unwrap()))
        };
        let create = asmp_shield::Request::Create { name: "motion".into(), spec };
        shield.change(&create, &Caller::now(0, "root", "test")).unwrap();
        let stats = "calls_from_rt 7\nfaults_from_rt 1\nleft_in_kernel 8";
        kernel.set_file(sharing::STATS, stats);
        let counted = |name: Option<&str>, cpus: Option<&str>| {
            crate::print::recorded();
            let noise = Noise {
                name: name.map(str::to_owned),
                cpus: cpus.map(|cpus| cpus.parse().unwrap()),
                time: Duration::from_millis(1),
                json: true,
                table: false,
            };
            assert_eq!(count(&shield, &noise, &|| None).unwrap(), 0);
            let said = crate::print::recorded();
            serde_json::from_str::<serde_json::Value>(&said).unwrap()
        };
        let none = serde_json::json!({ "entered": 0, "left": 0, "bound": [] });
        let report = counted(Some("motion"), None);
        assert_eq!((&report["mode"], &report["shared"]), (&"shared".into(), &none));
        assert_eq!(
            (&report["schema"], &report["cpus"]["3"]["went_offline"]),
            (&3.into(), &false.into())
        );
        let report = counted(None, Some("3"));
        assert_eq!((report["mode"].is_null(), &report["shared"]), (true, &none));
        let report = counted(None, Some("1"));
        assert!(report["mode"].is_null() && report["shared"].is_null(), "{report}");
        kernel.enable_ftrace(false);
        assert!(counted(Some("motion"), None)["shared"].is_null());
    }
}
