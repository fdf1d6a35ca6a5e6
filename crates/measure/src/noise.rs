// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Noise: what disturbed CPUs during a window, in counts and in time. A row of zeros, beside the
//! same counts without the partition, shows that a partition holds.
//!
//! Counters (interrupts, softirqs) are read before and after; who ran is recorded by a private
//! trace instance. Units: counts in the window unless a name says otherwise; time in ns of the
//! monotonic clock.

mod ran;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use table::shown;
pub use table::table;

use asmp_host::counters::{self, Interrupts, Row};
use asmp_host::task::{self, Runnable};
use asmp_host::tracefs::timers::{self, Timers};
use asmp_host::tracefs::{Contents, EventBuffer};
use asmp_host::{Cpu, CpuSet, Error, Kernel, cgroup, clock, facts};
use ran::{Next, OnCpu, Ran, Task};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Version of the layout of `asmp noise --json`, which is [`Report`] and more. 2: times of tasks.
/// 3: `mode` and `shared`.
pub const NOISE_SCHEMA: u32 = 3;

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
///
/// The times of foreign, kernel and own tasks, of idle and unknown time add up to the window.
/// Interrupts count as time of the task that they interrupt.
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
    /// Switches to tasks that do not belong here (user tasks), by `command/tid`. One that had the
    /// CPU as the window opened counts once for that.
    pub foreign_switches: Option<BTreeMap<String, u64>>,
    /// How long each of them had the CPU.
    pub foreign_ns: Option<BTreeMap<String, u64>>,
    /// Switches to kernel threads, by `command/tid`.
    pub kernel_switches: Option<BTreeMap<String, u64>>,
    /// How long each of them had the CPU.
    pub kernel_ns: Option<BTreeMap<String, u64>>,
    /// Switches to tasks that belong here.
    pub own_switches: Option<u64>,
    /// How long they had the CPU.
    pub own_ns: Option<u64>,
    /// How long no task had the CPU.
    pub idle_ns: Option<u64>,
    /// Time in which it is not known who had the CPU: events were lost, or one of several tasks
    /// had it all the time.
    pub unknown_ns: Option<u64>,
    /// Tasks moved onto or off this CPU, by `command/tid`.
    pub migrations: Option<BTreeMap<String, u64>>,
    /// `None` where the architecture has no event for page faults.
    pub user_page_faults: Option<u64>,
    pub kernel_page_faults: Option<u64>,
}

/// Counters at one instant.
struct Counters {
    at_ns: u64,
    interrupts: Vec<Row>,
    softirqs: BTreeMap<String, BTreeMap<Cpu, u64>>,
    timers: Option<Timers>,
}

fn counters(kernel: &dyn Kernel, timers: Option<Timers>) -> Result<Counters, Error> {
    let (interrupts, softirqs) = (counters::interrupts(kernel)?, counters::softirqs(kernel)?);
    Ok(Counters { at_ns: clock::monotonic_ns(), interrupts, softirqs, timers })
}

/// A window that has opened and counts until it is dropped.
pub struct Watch<'a> {
    kernel: &'a dyn Kernel,
    request: &'a Request,
    /// `Err`: why tasks cannot be recorded.
    buffer: Result<EventBuffer<'a>, String>,
    before: Counters,
    seen: Seen,
}

/// What is known of tasks, from the window's opening on.
#[derive(Default)]
struct Seen {
    ran: Ran,
    own: BTreeSet<i32>,
    kernel_threads: BTreeMap<i32, bool>,
    has_page_faults: bool,
    /// Events that found no room.
    lost: u64,
}

impl<'a> Watch<'a> {
    /// Opens the window. Errors: a counter file cannot be read. Where tasks cannot be recorded (no
    /// tracefs, not root), the reports say so.
    pub fn begin(kernel: &'a dyn Kernel, request: &'a Request) -> Result<Self, Error> {
        let mut own = members(kernel, request);
        // A task that ends is no member any more, but is still switched to: it is known from
        // before, or by its fork.
        let mut prepare = || {
            let buffer = EventBuffer::prepare(kernel, &request.cpus)?;
            buffer.start()?;
            // Patching the tracepoints in interrupts all CPUs; let that settle before the window
            // opens.
            std::thread::sleep(Duration::from_millis(50));
            buffer.open_window()?;
            // Only now: a member's child that is forked later has an event that tells of it.
            own.extend(members(kernel, request));
            Ok(buffer)
        };
        let user = facts::user(kernel);
        let buffer = prepare().map_err(|error| why_not_recorded(&error, user));
        let timers = buffer.as_ref().ok().and_then(EventBuffer::timers);
        let before = counters(kernel, timers)?;
        let ran = Ran::since(request.cpus.iter(), before.at_ns);
        Ok(Self { kernel, request, buffer, before, seen: Seen { ran, own, ..Seen::default() } })
    }

    /// Reads what the kernel recorded so far, so that its buffers have room, and asks who those
    /// tasks are as long as they live.
    pub fn drain(&mut self) {
        let Self { kernel, request, buffer, seen, .. } = self;
        let now_ns = clock::monotonic_ns();
        if let Ok(buffer) = buffer
            // The next look meets the error again, and tells it.
            && let Ok(contents) = buffer.take()
        {
            let members = members(*kernel, request);
            seen.take(contents, now_ns, members, &[], |tid| is_kernel_thread(*kernel, tid));
        }
    }

    /// The counts since the window opened; it stays open. Errors: a counter file cannot be read.
    pub fn look(&mut self) -> Result<Report, Error> {
        let Self { kernel, request, buffer, before, seen } = self;
        let kernel = *kernel;
        let timers = buffer.as_ref().ok().and_then(EventBuffer::timers);
        let after = counters(kernel, timers)?;
        // Who has a CPU of which no event speaks. This takes a while: of who comes and goes
        // meanwhile there are events, which are taken after it, and tell (`holder`).
        let unseen: CpuSet = seen.ran.unseen().collect();
        let there = match unseen.is_empty() || buffer.is_err() {
            true => Vec::new(),
            false => task::runnable_on(kernel, &unseen),
        };
        let taken = match buffer {
            Ok(buffer) => buffer.take().map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        let unavailable = match taken {
            Ok(contents) => {
                let members = members(kernel, request);
                let is_thread = |tid| is_kernel_thread(kernel, tid);
                seen.take(contents, after.at_ns, members, &there, is_thread);
                None
            }
            Err(reason) => Some(reason),
        };
        let path = Path::new("/proc/sys/kernel/osrelease");
        let release = kernel.text(path).unwrap_or_default();
        Ok(report(release, &request.cpus, (before, &after), seen, &there, unavailable))
    }
}

/// What is missing, and what to do. Others than root see no tracefs, and cannot mount it.
fn why_not_recorded(error: &Error, user: Option<u32>) -> String {
    match (user, error.is_missing()) {
        (Some(0) | None, true) => format!("{error}: mount -t tracefs none /sys/kernel/tracing"),
        (Some(0) | None, false) => error.to_string(),
        (Some(_), _) => "only root can record them: use sudo".to_owned(),
    }
}

/// Is this task a kernel thread? One that has ended counts as none: /proc no longer tells.
fn is_kernel_thread(kernel: &dyn Kernel, tid: i32) -> bool {
    task::read(kernel, tid).is_ok_and(|task| task.kernel_thread)
}

/// Tasks of the groups and of those that tasks made below them.
fn members(kernel: &dyn Kernel, request: &Request) -> BTreeSet<i32> {
    request
        .groups
        .iter()
        .flat_map(|group| cgroup::threads_below(kernel, group).unwrap_or_default())
        .collect()
}

impl Seen {
    /// A portion of what was recorded. Learns which tasks belong here, and of each that is new
    /// whether it is a kernel thread: at each portion, as it may have ended before the next.
    fn take(
        &mut self,
        contents: Contents,
        now_ns: u64,
        members: BTreeSet<i32>,
        there: &[Runnable],
        is_kernel_thread: impl Fn(i32) -> bool,
    ) {
        self.has_page_faults = contents.has_page_faults;
        self.lost = contents.lost;
        self.ran.take(contents.events, now_ns);
        self.own.extend(members);
        self.ran.with_children(&mut self.own);
        let ran = self.ran.cpus.values().flat_map(OnCpu::tids);
        let leaves = self.ran.cpus.keys().filter_map(|cpu| match self.ran.next(*cpu) {
            Next::Leaves((tid, _)) => Some(tid),
            Next::Nothing | Next::Unreadable => None,
        });
        let there = there.iter().map(|task| task.tid);
        let all: BTreeSet<i32> = ran.chain(leaves).chain(there).collect();
        for tid in all.into_iter().filter(|tid| *tid != 0) {
            self.kernel_threads.entry(tid).or_insert_with(|| is_kernel_thread(tid));
        }
    }
}

/// The first priority of SCHED_OTHER, as [`Runnable`] has it: from here on all take turns, of any
/// nice.
const FAIR: i64 = 0;

/// Who has had this CPU all the time, as no event of the window says: who left it first after the
/// window. As long as no one has, of those that run or wait there the one that goes before all
/// others. `None`: that does not tell.
fn holder(seen: &Seen, there: &[Runnable], cpu: Cpu) -> Option<Task> {
    match seen.ran.next(cpu) {
        Next::Leaves(task) => return Some(task),
        Next::Unreadable => return None,
        Next::Nothing => {}
    }
    let mut here: Vec<&Runnable> = there.iter().filter(|task| task.cpu == cpu).collect();
    here.sort_by_key(|task| task.priority);
    match here.as_slice() {
        [] => Some((0, "idle".to_owned())),
        [first, second, ..] if first.priority == second.priority => None,
        // One of them has come just now, or there would have been a switch.
        [first, _, ..] if first.priority >= FAIR => None,
        [first, ..] => Some((first.tid, first.command.clone())),
    }
}

/// Counts from two readings and what was seen. Pure.
fn report(
    kernel: String,
    cpus: &CpuSet,
    (before, after): (&Counters, &Counters),
    seen: &Seen,
    there: &[Runnable],
    tasks_unavailable: Option<String>,
) -> Report {
    let of_cpu = |cpu: Cpu| {
        let mut noise = interrupts_of(cpu, before, after);
        if tasks_unavailable.is_none() {
            tasks_of(&mut noise, seen, cpu, after.at_ns, there);
        }
        (cpu, noise)
    };
    Report {
        schema: NOISE_SCHEMA,
        kernel,
        duration_ns: after.at_ns.saturating_sub(before.at_ns),
        lost_events: seen.lost + seen.ran.unreadable,
        cpus: cpus.iter().map(of_cpu).collect(),
        tasks_unavailable,
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

fn tasks_of(noise: &mut CpuNoise, seen: &Seen, cpu: Cpu, now_ns: u64, there: &[Runnable]) {
    let Some(on_cpu) = seen.ran.cpus.get(&cpu) else { return };
    let (tasks, unknown_ns) = on_cpu.until(now_ns, holder(seen, there, cpu).as_ref());
    let (mut foreign, mut foreign_ns) = (BTreeMap::new(), BTreeMap::new());
    let (mut threads, mut threads_ns) = (BTreeMap::new(), BTreeMap::new());
    let (mut own, mut own_ns, mut idle_ns) = (0, 0, 0);
    for ((tid, command), share) in tasks {
        let is_thread = seen.kernel_threads.get(&tid).copied().unwrap_or(false);
        // Who was there is news only where it does not belong there.
        let switches = share.switches - u64::from(share.was_there);
        let (counts, times, count) = match tid {
            0 => {
                idle_ns += share.ran_ns;
                continue;
            }
            tid if seen.own.contains(&tid) => {
                own += switches;
                own_ns += share.ran_ns;
                continue;
            }
            _ if is_thread => (&mut threads, &mut threads_ns, switches),
            _ => (&mut foreign, &mut foreign_ns, share.switches),
        };
        let name = format!("{command}/{tid}");
        for (map, count) in [(counts, count), (times, share.ran_ns)] {
            if count > 0 {
                *map.entry(name.clone()).or_default() += count;
            }
        }
    }
    let named = |((tid, command), count): (&Task, &u64)| (format!("{command}/{tid}"), *count);
    noise.foreign_switches = Some(foreign);
    noise.foreign_ns = Some(foreign_ns);
    noise.kernel_switches = Some(threads);
    noise.kernel_ns = Some(threads_ns);
    noise.own_switches = Some(own);
    noise.own_ns = Some(own_ns);
    noise.idle_ns = Some(idle_ns);
    noise.unknown_ns = Some(unknown_ns);
    noise.migrations = Some(on_cpu.migrations.iter().map(named).collect());
    noise.user_page_faults = seen.has_page_faults.then_some(on_cpu.user_page_faults);
    noise.kernel_page_faults = seen.has_page_faults.then_some(on_cpu.kernel_page_faults);
}
