// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guard of shared partitions: which CPUs, whether this machine can, and what happens when it
//! ends.
//!
//! The CPUs of a *shared* partition stay in the cpuset of all tasks. A scheduler in BPF
//! (`crates/artis`) guards them: a task that enters the kernel there is taken to a system CPU
//! before the body of the system call or fault. Interrupts, timers and unbound kernel work stay
//! away as from an isolated partition, and real-time tasks that are not its own are confined to
//! other CPUs.

use crate::mode::Mode;
use crate::partition::{Partition, Refusal, State};
use crate::request::Request;
use asmp_host::architecture;
use asmp_host::sharing::{self, Sharing};
use asmp_host::task::{self, Task};
use asmp_host::{CpuSet, Error, Facts, Kernel};
use std::path::Path;

/// The CPUs that the scheduler must guard for these partitions.
pub(crate) fn guarded(partitions: &[Partition]) -> CpuSet {
    let shared = partitions.iter().filter(|one| one.mode == Mode::Shared);
    shared.fold(CpuSet::new(), |all, one| all.union(&one.cpus))
}

/// The CPUs that other tasks share with these partitions, guarded or not.
pub(crate) fn shared(partitions: &[Partition]) -> CpuSet {
    let shared = partitions.iter().filter(|one| !one.mode.is_isolated());
    shared.fold(CpuSet::new(), |all, one| all.union(&one.cpus))
}

/// Every process, and of its other threads those that may not be on shared CPUs as they are:
/// real-time ones, and those whose affinity names no other CPU. Cpusets keep all threads of others
/// from isolated CPUs.
pub(crate) fn tasks(kernel: &dyn Kernel, partitions: &[Partition]) -> Result<Vec<Task>, Error> {
    let mut tasks = task::read_all(kernel)?;
    let shared = shared(partitions);
    if shared.is_empty() {
        return Ok(tasks);
    }
    let matters = |tid: i32| {
        kernel.schedule(tid).is_ok_and(|now| now.is_real_time())
            || kernel.online_affinity(tid).is_ok_and(|cpus| cpus.is_subset(&shared))
    };
    let mut threads = Vec::new();
    for process in tasks.iter().filter(|task| !task.kernel_thread) {
        let process = process.id.tid;
        let all = task::thread_numbers(kernel, process).unwrap_or_default();
        let others = all.into_iter().filter(|tid| *tid != process && matters(*tid));
        threads.extend(others.filter_map(|tid| task::read(kernel, tid).ok()));
    }
    tasks.extend(threads);
    Ok(tasks)
}

/// The CPUs that these partitions take from all other tasks.
pub(crate) fn exclusive(partitions: &[Partition]) -> CpuSet {
    partitions.iter().fold(CpuSet::new(), |all, one| all.union(&one.exclusive()))
}

/// All partitions once `name` has another mode. Errors: `NoPartition`, `CannotShare`.
pub(crate) fn set(
    facts: &Facts,
    state: &State,
    name: &str,
    mode: Mode,
) -> Result<Vec<Partition>, Refusal> {
    check(facts, mode, &state.partition(name)?.cpus)?;
    let mut after = state.partitions.clone();
    after.iter_mut().filter(|one| one.name == name).for_each(|one| one.mode = mode);
    Ok(after)
}

/// Shared partitions whose scheduler was ended are isolated from this change on, but for those
/// whose mode the request sets. `before`: the partitions in force.
pub(crate) fn fall_back(
    facts: &Facts,
    before: &[Partition],
    after: &mut [Partition],
    request: &Request,
) {
    let lost = |one: &Partition| {
        let was = before.iter().find(|old| old.name == one.name);
        was.is_some_and(|old| lost_guard(facts, old)) && !request.sets_mode(&one.name)
    };
    for partition in after.iter_mut().filter(|one| one.mode == Mode::Shared && lost(one)) {
        partition.mode = Mode::Isolated;
    }
}

/// Is this a shared partition in force, whose CPUs the scheduler does not guard?
pub(crate) fn lost_guard(facts: &Facts, partition: &Partition) -> bool {
    partition.mode == Mode::Shared
        && (!facts.sharing.is_hidden || facts.sharing.hooks_stand_still)
        && !partition.cpus.is_subset(&facts.sharing.guarded)
}

/// Does the scheduler guard exactly these CPUs? One that has ended leaves its files behind.
pub(crate) fn is_guarded(kernel: &dyn Kernel, cpus: &CpuSet) -> bool {
    let leaves_files = || kernel.exists(Path::new(sharing::DIR));
    Sharing::read(kernel).guarded == *cpus && !(cpus.is_empty() && leaves_files())
}

/// Has the scheduler guard exactly these CPUs. Errors: what its loader printed.
pub(crate) fn set_guard(kernel: &dyn Kernel, cpus: &CpuSet) -> Result<(), Error> {
    kernel.share(cpus).map_err(Error::io(Path::new(sharing::CPUS), "guard CPUs by"))
}

/// The same on the way back of a change. The loader runs in any case: one that a killed asmp has
/// left at work has its lock, and changes what is guarded after we have looked. A scheduler that
/// cannot be loaded again keeps nothing else from being undone: its partitions are isolated with
/// the next change.
pub(crate) fn guard_again(kernel: &dyn Kernel, cpus: &CpuSet) -> Result<(), Error> {
    set_guard(kernel, cpus).or_else(|error| match cpus.is_empty() {
        true => Err(error),
        false => Ok(()),
    })
}

/// What stops fentry and fexit programs, which most hooks of the scheduler are.
const HOOKS_STAND_STILL: &str = "kernel.ftrace_enabled is 0: hooks of functions stand still";

/// Of a shared partition that the scheduler does not guard any more: what that means.
pub(crate) fn unguarded(
    kernel: &dyn Kernel,
    facts: &Facts,
    partition: &Partition,
) -> Option<(String, String)> {
    lost_guard(facts, partition).then(|| {
        let name = &partition.name;
        let unguarded = partition.cpus.difference(&facts.sharing.guarded);
        let runs = format!("other tasks' kernel code runs on CPU {unguarded}");
        if facts.sharing.hooks_stand_still {
            let cure = format!("set it to 1, or `asmp repair {name}` isolates");
            return (format!("{HOOKS_STAND_STILL}: {runs}"), cure);
        }
        let happened = match &facts.sharing.lost_file {
            Some(file) => format!("has lost {file}"),
            None => {
                let why = sharing::ended(kernel);
                format!("has ended{}", why.map_or_else(String::new, |why| format!(" ({why})")))
            }
        };
        let what = format!("the scheduler of shared partitions {happened}: {runs}");
        (what, format!("`asmp repair {name}` isolates it; then `asmp mode {name} shared`"))
    })
}

/// What keeps this machine from sharing `cpus` under the guarantee, and the cure; `None`: nothing
/// that is known before the scheduler is loaded.
pub fn hindrance(facts: &Facts, cpus: &CpuSet) -> Option<(String, String)> {
    let because = |what: &str, cure: &str| Some((what.to_owned(), cure.to_owned()));
    let sharing = &facts.sharing;
    if !architecture::named(&facts.architecture).is_some_and(|known| known.shares) {
        let what = format!("asmp-artis does not know {}", facts.architecture);
        return Some((what, "share as best effort".to_owned()));
    }
    if !sharing.has_sched_ext {
        return because(
            "this kernel has no sched_ext",
            "boot a kernel of 7.1 or newer with CONFIG_SCHED_CLASS_EXT",
        );
    }
    if facts.version() < (7, 1) {
        let what = format!(
            "kernel {} cannot take a task back from a CPU at once (SCX_ENQ_IMMED)",
            facts.release
        );
        return Some((what, "boot 7.1 or newer".to_owned()));
    }
    if !sharing.has_btf {
        let what = "this kernel does not describe its types (/sys/kernel/btf/vmlinux)";
        return because(what, "boot a kernel with CONFIG_DEBUG_INFO_BTF");
    }
    if sharing.hooks_stand_still {
        return because(HOOKS_STAND_STILL, "sysctl kernel.ftrace_enabled=1");
    }
    if let Some(word @ ("none" | "voluntary")) = sharing.preemption.as_deref() {
        let what = format!("preempt={word}: a task in the kernel is not taken off a CPU at once");
        return Some((what, "boot with preempt=full or preempt=lazy".to_owned()));
    }
    if facts.lockdown.as_deref() == Some("confidentiality") {
        let what = "the kernel is locked down (confidentiality): it lets no BPF program look at it";
        return because(what, "boot with lockdown=integrity");
    }
    if sharing.loader.is_none() {
        return because(
            "asmp-artis, which loads the scheduler of shared partitions, is not installed",
            "build it with tests/artis.sh, and install it beside asmp",
        );
    }
    if let Some(other) = &sharing.other {
        let what = format!("another scheduler in BPF runs: {other}");
        return Some((what, "stop it".to_owned()));
    }
    if !facts.cpus.boot_isolated.is_empty() {
        let what =
            format!("sched_ext does not run beside isolcpus= (CPU {})", facts.cpus.boot_isolated);
        return Some((what, "boot without isolcpus=".to_owned()));
    }
    let unseen = cpus.difference(&facts.cpus.nohz_full);
    (!unseen.is_empty()).then(|| {
        let what = format!("CPU {unseen} is not in nohz_full=: the kernel tells of no entry there");
        if unseen.contains(0) {
            return (what, KEEPS_TIME.to_owned());
        }
        let all = facts.cpus.nohz_full.union(cpus);
        let cure =
            format!("boot with nohz_full={all} rcu_nocbs={all} (asmp boot enable --cpus {all})");
        (what, cure)
    })
}

/// The cure where CPU 0 is no candidate: it cannot become one.
pub(crate) const KEEPS_TIME: &str = "CPU 0 keeps the time for the others: choose other CPUs";

/// May these CPUs have this mode? Errors: `CannotShare`.
pub(crate) fn check(facts: &Facts, mode: Mode, cpus: &CpuSet) -> Result<(), Refusal> {
    match hindrance(facts, cpus).filter(|_| mode == Mode::Shared) {
        Some((what, cure)) => Err(Refusal::CannotShare { what, cure }),
        None => Ok(()),
    }
}
