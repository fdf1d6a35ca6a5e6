// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The nouns: a partition, the state of all partitions, and the reasons for refusing a change.

pub use crate::aspect::Aspect;
use crate::grant::Grant;
use crate::mode::Mode;
use crate::state::STATE_SCHEMA;
use asmp_host::facts::Cpus;
use asmp_host::knob::{self, Knob};
use asmp_host::masks::Mask;
use asmp_host::task::{Member, TaskId};
use asmp_host::tracefs::timerlat;
use asmp_host::{Cpu, CpuSet, Schedule, Shape};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What the user wants of the local timer tick.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tick {
    /// Off where this boot allows it; where not, the result says so and what to boot with.
    #[default]
    Off,
    /// Leave the tick alone.
    Keep,
    /// Off and proven by counting on every CPU, else the partition is not made.
    RequireOff,
}

impl FromStr for Tick {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "keep" => Ok(Self::Keep),
            "require-off" => Ok(Self::RequireOff),
            _ => Err(format!("invalid tick setting {text:?}: use off, keep or require-off")),
        }
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Keep => "keep",
            Self::RequireOff => "require-off",
        })
    }
}

/// What happens to the other hardware threads of a shielded core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smt {
    /// They are shielded too and nothing runs on them.
    #[default]
    Idle,
    /// The system goes on using them, and disturbs the partition through the shared core.
    Share,
}

impl FromStr for Smt {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "idle" => Ok(Self::Idle),
            "share" => Ok(Self::Share),
            _ => Err(format!("invalid SMT setting {text:?}: use idle or share")),
        }
    }
}

/// A kernel thread whose policy a partition sets, and its policy before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoostedThread {
    pub task: TaskId,
    pub command: String,
    pub by: Service,
    pub before: Schedule,
    /// SCHED_FIFO priority while the partition is in force.
    pub priority: u32,
}

/// What a kernel thread does for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Handles this IRQ line (PREEMPT_RT, `threadirqs`).
    Irq(u32),
    /// `ktimers/N`: runs the timers of this CPU (PREEMPT_RT).
    Timers(Cpu),
}

/// Priority of `ktimers/N` on shielded CPUs. The kernel starts it at 1, where any busy real-time
/// task starves it. One expired timer that waits for the thread keeps the tick running for ever
/// (measured: 0 ticks in the first 2 s, then 250 a second; with the thread above the task: 0).
pub const TIMER_PRIORITY: u32 = 98;

/// CPUs, IRQ lines and tasks that one partition has for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    pub name: String,
    /// CPUs its tasks run on.
    pub cpus: CpuSet,
    /// SMT siblings of `cpus` that were taken out of use.
    pub idle_cpus: CpuSet,
    pub smt: Smt,
    pub tick: Tick,
    /// Anything that refuses to leave the partition is an error.
    pub strict: bool,
    /// Steps of the plan that were not wanted.
    #[serde(default)]
    pub without: Vec<Aspect>,
    /// IRQ lines that belong to it.
    pub irqs: Vec<u32>,
    /// SCHED_FIFO priority for the handler threads of `irqs`.
    pub irq_priority: Option<u32>,
    /// Kernel threads whose policy it sets.
    pub served: Vec<BoostedThread>,
    pub tasks: Vec<Member>,
    /// Seconds since 1970-01-01 UTC.
    pub created_s: u64,
    /// Who made it: user and command line.
    pub created_by: String,
    /// The `asmp run` that made it and destroys it at its end; `status` tells if that was killed.
    pub owner: Option<TaskId>,
    /// What its user was granted, where that is not root. Since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Grant>,
    /// Who may use its CPUs. Since schema 2.
    #[serde(default, skip_serializing_if = "Mode::is_isolated")]
    pub mode: Mode,
}

impl Partition {
    /// Every CPU that interrupts, timers and unbound kernel work of the system must leave alone.
    pub fn shielded(&self) -> CpuSet {
        self.cpus.union(&self.idle_cpus)
    }

    /// Every CPU that all other tasks must leave alone.
    pub fn exclusive(&self) -> CpuSet {
        match self.mode.is_isolated() {
            true => self.shielded(),
            false => self.idle_cpus.clone(),
        }
    }
}

/// Every CPU shielded by any of these partitions.
pub fn shielded(partitions: &[Partition]) -> CpuSet {
    partitions.iter().fold(CpuSet::new(), |all, partition| all.union(&partition.shielded()))
}

/// Settings of the system outside the partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The CPUs that device interrupts keep to; `None`: all CPUs of the system.
    #[serde(default)]
    pub irq_home: Option<CpuSet>,
    /// How the kernel's timerlat tracer works; `None`: as it was.
    #[serde(default)]
    pub timerlat: Option<timerlat::Settings>,
}

/// The text a setting had before we first changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Original {
    pub shape: Shape,
    pub text: String,
    /// CPUs that were offline when an IRQ line named all others: a driver that follows hotplug
    /// (virtio_net) leaves them out, and adds them as they come online.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub offline: CpuSet,
}

impl Original {
    pub fn of(knob: &Knob, text: String, cpus: &Cpus) -> Self {
        let is_line = knob::irq_of(&knob.path).is_some();
        let named = knob.cpus(&text).unwrap_or_default();
        let offline = match is_line && cpus.online.is_subset(&named) {
            true => cpus.possible.difference(&named),
            false => CpuSet::new(),
        };
        Self { shape: knob.shape, text, offline }
    }

    /// With those of them that the line names by now: its driver has added them.
    pub(crate) fn widen(&mut self, knob: &Knob, affinity: &CpuSet) {
        let came = self.offline.intersection(affinity);
        if let Ok(named) = knob.cpus(&self.text)
            && !came.is_empty()
        {
            self.text = knob.spell(&named.union(&came));
            self.offline = self.offline.difference(&came);
        }
    }
}

/// What is in force, as kept in `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub schema: u32,
    /// Number of the last transaction that was committed.
    pub transaction: u64,
    pub partitions: Vec<Partition>,
    /// The CPUs that the system's device interrupts keep to, where that is less than all of its
    /// CPUs.
    #[serde(default)]
    pub irq_home: Option<CpuSet>,
    /// How timerlat works while something measures with it. Since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timerlat: Option<timerlat::Settings>,
    /// Each stays until it was written back, or its file is gone for good.
    pub originals: BTreeMap<PathBuf, Original>,
    /// Settings that the kernel refused to change, with its reason.
    pub refused: BTreeMap<PathBuf, String>,
    /// What the kernel's own threads and process 1 had before the first partition, or before
    /// `repair` moved them. Since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    /// Kernel threads that no partition needs any more and that did not take their policy back.
    /// Since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies_left: Vec<BoostedThread>,
    /// Settings whose originals went with an earlier state, each with the value that it was found
    /// with. They stay until they are given up. Since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// The interrupt lines of the last change: number and [`asmp_host::irq::identity`]. Since
    /// schema 2.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lines: BTreeMap<u32, String>,
    /// The group of our partitions is there without any, because a CPU is offline or because
    /// another program made a group in it. Since schema 2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_base: bool,
    /// CPUs that went offline in a partition and ended with it. Since schema 2.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub returning: CpuSet,
}

impl Default for State {
    fn default() -> Self {
        Self {
            schema: STATE_SCHEMA,
            transaction: 0,
            partitions: Vec::new(),
            irq_home: None,
            timerlat: None,
            originals: BTreeMap::new(),
            refused: BTreeMap::new(),
            masks: Vec::new(),
            policies_left: Vec::new(),
            lost: Vec::new(),
            lines: BTreeMap::new(),
            keeps_base: false,
            returning: CpuSet::new(),
        }
    }
}

impl State {
    /// Nothing of ours is in force.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.system() == System::default()
    }

    /// Nothing of ours is in force, and nothing waits to be given back.
    pub fn owes_nothing(&self) -> bool {
        let no_setting = self.originals.is_empty() && self.policies_left.is_empty();
        let none_lost = self.lost.is_empty() && !self.keeps_base;
        self.is_empty() && no_setting && self.masks.is_empty() && none_lost
    }

    /// Notes settings whose originals are lost. The first note of one counts.
    pub(crate) fn note_lost(&mut self, found: &[String]) {
        let new: Vec<_> = found.iter().filter(|one| !self.lost.contains(one)).cloned().collect();
        self.lost.extend(new);
    }

    /// Notes what tasks had before they were moved. The first note of a task counts.
    pub(crate) fn note_masks(&mut self, masks: &[Mask]) {
        let set = masks.iter().filter(|mask| mask.was_set).map(|mask| mask.task);
        let set: BTreeSet<TaskId> = set.collect();
        for known in &mut self.masks {
            known.was_set |= set.contains(&known.task);
        }
        let known: BTreeSet<TaskId> = self.masks.iter().map(|mask| mask.task).collect();
        self.masks.extend(masks.iter().filter(|mask| !known.contains(&mask.task)).cloned());
    }

    /// Settings of the system outside the partitions.
    pub fn system(&self) -> System {
        System { irq_home: self.irq_home.clone(), timerlat: self.timerlat.clone() }
    }

    pub(crate) fn set_system(&mut self, system: &System) {
        self.irq_home.clone_from(&system.irq_home);
        self.timerlat.clone_from(&system.timerlat);
    }

    /// Errors: `NoPartition`, with the names there are.
    pub fn partition(&self, name: &str) -> Result<&Partition, Refusal> {
        self.partitions.iter().find(|partition| partition.name == name).ok_or_else(|| {
            Refusal::NoPartition { name: name.to_owned(), known: self.known_names() }
        })
    }

    /// Which partitions there are, for messages.
    pub fn known_names(&self) -> String {
        match self.partitions.is_empty() {
            true => "there are none".to_owned(),
            false => {
                let names: Vec<&str> = self.partitions.iter().map(|p| p.name.as_str()).collect();
                format!("known are: {}", names.join(", "))
            }
        }
    }
}

fn words_of_free(free: &CpuSet) -> String {
    if free.is_empty() { "none is free".to_owned() } else { format!("CPU {free} is free") }
}

/// Why a change is refused before anything is touched: the cause, then the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("only root may change partitions: use sudo")]
    NotRoot,
    #[error("{what} is not granted: {granted}")]
    NotGranted { what: String, granted: String },
    #[error(
        "cgroup v2 is not mounted: mount it (mount -t cgroup2 none /sys/fs/cgroup) or boot with \
         systemd.unified_cgroup_hierarchy=1"
    )]
    NoCgroupV2,
    #[error(
        "cgroup v1 at {mount} holds the cpuset controller: unmount it, or boot with \
         systemd.unified_cgroup_hierarchy=1",
        mount = mount.display()
    )]
    CpusetV1 { mount: PathBuf },
    #[error(
        "the root of cgroup v2 offers no cpuset controller: use a kernel with CONFIG_CPUSETS, \
         and run outside containers"
    )]
    NoCpuset,
    #[error(
        "kernel {release} has no remote isolated partitions (cpuset.cpus.exclusive): boot 6.7 or \
         newer"
    )]
    KernelTooOld { release: String },
    #[error(
        "the cgroup tree here is not the machine's own but a container's: run asmp on the host"
    )]
    InContainer,
    #[error(
        "the tasks here are not the machine's but a container's: run asmp on the host, or share \
         the host's PID namespace"
    )]
    ContainedPids,
    #[error("the list selects no CPU: name at least one of {online}")]
    NoCpus { online: CpuSet },
    #[error("CPU {cpus} does not exist: this machine has {possible}")]
    UnknownCpus { cpus: CpuSet, possible: CpuSet },
    #[error(
        "CPU {cpus} is offline: bring it online first (echo 1 > \
         /sys/devices/system/cpu/cpu{first}/online), or choose from {online}",
        first = cpus.first().unwrap_or_default()
    )]
    OfflineCpus { cpus: CpuSet, online: CpuSet },
    #[error(
        "CPU {cpus} already belongs to partition {owner}: choose other CPUs, or free it with \
         `asmp resize {owner}` or `asmp destroy {owner}`"
    )]
    TakenCpus { cpus: CpuSet, owner: String },
    #[error(
        "another program's cpuset partition isolates CPU {cpus}: set its cpuset.cpus.partition \
         to member first"
    )]
    ForeignIsolated { cpus: CpuSet },
    #[error(
        "group {group} has CPU {cpus} exclusively: set its cpuset.cpus.partition to member and \
         empty its cpuset.cpus.exclusive first, or choose other CPUs"
    )]
    ExclusiveElsewhere { group: String, cpus: CpuSet },
    #[error(
        "--strict: {first}{more}: give it other CPUs, or choose others for the partition",
        more = if *more == 0 { String::new() } else { format!(" (and {more} more)") }
    )]
    Displaces { first: String, more: usize },
    #[error(
        "SCHED_DEADLINE tasks of the system ({first}{more}) have booked {booked_percent} % of a \
         CPU, and CPU {cpus} would have {room_percent} % for them: end some, or leave the system \
         more CPUs",
        more = if *count == 1 { String::new() } else { format!(" and {} more", count - 1) }
    )]
    NoRoomForDeadlines {
        count: usize,
        first: String,
        booked_percent: u64,
        cpus: CpuSet,
        room_percent: u64,
    },
    #[error("{what}: {cure}, or share without a guarantee (best-effort)")]
    CannotShare { what: String, cure: String },
    #[error("the system would have no CPU: leave at least one of {online} outside all partitions")]
    LastCpu { online: CpuSet },
    #[error(
        "CPU {cpu} shares its core with CPU {sibling}, which {why}: choose whole cores, or \
         accept the disturbance with --smt share"
    )]
    Sibling { cpu: u32, sibling: u32, why: String },
    #[error(
        "{count} {are} asked for, and at most {most} can be given: {free}, and the system keeps \
         one{held}; ask for fewer, or free CPUs (`asmp resize`, `asmp destroy`)",
        are = if *count == 1 { "CPU is" } else { "CPUs are" },
        free = words_of_free(free)
    )]
    TooFewCpus { count: usize, most: usize, free: CpuSet, held: String },
    #[error(
        "{count} is no number of CPUs of whole cores, which have {threads} threads each: ask for a \
         count of {instead}"
    )]
    UnevenCores { count: usize, threads: String, instead: String },
    #[error(
        "whole cores give at most {most} of {count} CPUs: {free}, and the system keeps one{held}; \
         do not ask for whole cores, or free some",
        free = words_of_free(free)
    )]
    NoWholeCores { count: usize, most: usize, free: CpuSet, held: String },
    #[error("near {name:?}: this machine has no such device, IRQ line or node; it has {known}")]
    UnknownPlace { name: String, known: String },
    #[error("{name} is near no CPU: it has no device behind it; name the device that carries it")]
    VirtualPlace { name: String },
    #[error(
        "{name} is near no CPU: {what} has none that is online; choose another node or \
         device, or bring its CPUs online"
    )]
    EmptyPlace { name: String, what: String },
    #[error(
        "invalid partition name {name:?}: use 1 to 64 letters, digits, '-' or '_', \
         beginning with a letter or digit, and not \"holder\""
    )]
    BadName { name: String },
    #[error(
        "partition {name} already exists: choose another name, or use `asmp resize`, `asmp add` \
         or `asmp destroy`"
    )]
    NameTaken { name: String },
    #[error(
        "asmp made {groups} and does not know its state any more (/run/asmp was lost): run \
         `asmp restore`, which removes it"
    )]
    Orphans { groups: String },
    #[error(
        "{kworker} has work and gets no time of CPU {cpu}, and this kernel may wait for it: let \
         the busy real-time task there sleep now and then, or take it out of the partition first"
    )]
    StarvedKworker { cpu: Cpu, kworker: String },
    /// Nor can `--abandon` help: it undoes what it can first.
    #[error(
        "a change was cut short and cannot be undone yet: {kworker} has work and gets no time of \
         CPU {cpu}, and this kernel may wait for it: end the busy real-time task there or make it \
         sleep (`chrt -o -p 0 TID` makes it an ordinary task), then run `asmp repair`"
    )]
    StarvedUndo { cpu: Cpu, kworker: String },
    #[error("no partition {name}: {known}")]
    NoPartition { name: String, known: String },
    #[error("task {tid} does not exist: it may have ended")]
    UnknownTask { tid: i32 },
    #[error(
        "task {tid} ({command}) is a kernel thread bound to its CPU: the kernel refuses to move \
         it; choose user tasks"
    )]
    BoundKernelThread { tid: i32, command: String },
    #[error(
        "process {tid} keeps asmp's groups under systemd (asmp-holder.service): choose another one"
    )]
    Holder { tid: i32 },
    #[error(
        "task {tid} ({command}) is the last of {scope}, and systemd ends an empty scope: start it \
         in the partition, or use --force"
    )]
    EmptiesScope { tid: i32, command: String, scope: String },
    #[error("task {tid} ({command}) does not belong to partition {partition}")]
    NotInside { tid: i32, command: String, partition: String },
    #[error(
        "task {tid} belongs to process {process}, which has other threads in partition \
         {partition}: the threads of a process are in one partition; move the process (--pid \
         {process})"
    )]
    Inseparable { tid: i32, process: i32, partition: String },
    #[error(
        "{tasks} became real-time inside {partition} and would starve the system's CPUs outside: \
         end it first, or use --force to make it SCHED_OTHER"
    )]
    RealTimeInside { tasks: String, partition: String },
    /// `hint`: the lines of the device that has this name; empty where there are none.
    #[error("no IRQ {name}: use a number or a handler's name from /proc/interrupts{hint}")]
    UnknownIrq { name: String, hint: String },
    #[error("each CPU has IRQ {irq} for itself: it cannot move; choose a device's line")]
    PerCpuIrq { irq: String },
    #[error(
        "IRQ {irq} already belongs to partition {owner}: free it with `asmp remove {owner} --irq \
         {irq}`"
    )]
    TakenIrq { irq: u32, owner: String },
    #[error("IRQ {irq} does not belong to partition {partition}")]
    IrqNotInside { irq: u32, partition: String },
    #[error(
        "the tick of CPU {cpus} cannot stop in this boot: boot with nohz_full={cpus} \
         rcu_nocbs={cpus} (`asmp boot enable --cpus {cpus}`), or use --tick off"
    )]
    TickNotCandidate { cpus: CpuSet },
    #[error(
        "this kernel cannot stop a tick: boot one with CONFIG_NO_HZ_FULL (Debian's have it), or \
         use --tick off"
    )]
    TickNeverStops,
    #[error(
        "this kernel has no timerlat tracer: boot a PREEMPT_RT kernel of a distribution that \
         builds it"
    )]
    NoTimerlat,
    #[error(
        "{users}: a change of its settings would kill the threads that wait for it; end that \
         program (rtla, for example), or write nop to its current_tracer"
    )]
    TracerInUse { users: String },
    #[error(
        "another `asmp measure` sets timerlat or moves interrupts: try again when it has ended"
    )]
    Measuring,
    /// Of an entry of a file: which partition of the file, from 0, which of its tasks, which key.
    #[error("{reason}")]
    BadDeclaration {
        partition: usize,
        task: Option<usize>,
        key: Option<&'static str>,
        reason: String,
    },
    /// Of one partition of a file.
    #[error("partition {partition}: {cause}")]
    Declared { partition: String, cause: Box<Refusal> },
    #[error("invalid IRQ priority {priority}: use 1 to 99")]
    BadPriority { priority: u32 },
}
