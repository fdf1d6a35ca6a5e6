// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What root writes to the tree of files: from the bytes to an [`Ask`], and from that to requests
//! to the shield. One write(2) is one change, made whole or not at all.
//!
//! Source: ASMP-Linux, section 5.5. Its `localtimer` took any factor by which the tick is slowed
//! down; a stock kernel only keeps its tick or stops it.

use crate::came;
use crate::tree::{CpuFile, Made, Node, PartitionFile, View};
use crate::work::Refused;
use asmp_host::{Cpu, CpuSet, CpuSpec};
use asmp_shield::code::{self, NO_PARTITION, NOT_INSIDE, NOT_UNDONE, UNEXPECTED, USAGE};
use asmp_shield::declaration::{Declaration, Declared, IrqName};
use asmp_shield::{Caller, Members, Mode, Partition, Refusal, Request, Shield, Spec, Tick};
use rustix::io::Errno;

/// No write is longer. The kernel cuts longer ones to pieces, and a piece is not what was meant.
pub const MOST_BYTES: usize = 4096;

/// Looks beside changes that follow one another.
const MOST_LOOKS: usize = 8;

/// A write, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The file, from the root of the tree.
    pub file: String,
    pub ask: Ask,
    /// The partition of the file; `None` of a file of a CPU.
    pub made: Option<Made>,
    /// Number of the process that wrote.
    pub pid: u32,
}

/// What a write asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Shield(Cpu),
    Unshield(Cpu),
    Tick(Place, Tick),
    /// The tick slowed down.
    Factor,
    Join(Place, Members),
    Leave(Place, Members),
    Resize(String, CpuSpec),
    Mode(String, Mode),
}

impl Ask {
    /// The partition whose file was written.
    fn partition(&self) -> Option<&str> {
        match self {
            Self::Tick(Place::Partition(name), _)
            | Self::Join(Place::Partition(name), _)
            | Self::Leave(Place::Partition(name), _)
            | Self::Resize(name, _)
            | Self::Mode(name, _) => Some(name),
            _ => None,
        }
    }
}

/// The directory of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Cpu(Cpu),
    Partition(String),
}

/// Reads what was written to a file. `None`: it means nothing there (EINVAL).
pub fn ask(node: &Node, bytes: &[u8]) -> Option<Ask> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MOST_BYTES)?.trim();
    match node {
        Node::OfCpu(cpu, file) => {
            let place = Place::Cpu(*cpu);
            match (file, text) {
                (CpuFile::Shielded, "1") => Some(Ask::Shield(*cpu)),
                (CpuFile::Shielded, "0") => Some(Ask::Unshield(*cpu)),
                (CpuFile::Shielded, _) => None,
                (CpuFile::LocalTimer, "0") => Some(Ask::Tick(place, Tick::Off)),
                (CpuFile::LocalTimer, "1") => Some(Ask::Tick(place, Tick::Keep)),
                (CpuFile::LocalTimer, other) => other.parse::<f64>().ok().map(|_| Ask::Factor),
                (CpuFile::Pids, _) => tasks(place, text, false),
                (CpuFile::Irqs, _) => irqs(place, text),
            }
        }
        Node::OfPartition(name, file) => {
            let place = Place::Partition(name.clone());
            match file {
                PartitionFile::Cpus => Some(Ask::Resize(name.clone(), text.parse().ok()?)),
                PartitionFile::Mode => Some(Ask::Mode(name.clone(), text.parse().ok()?)),
                PartitionFile::Pids => tasks(place, text, false),
                PartitionFile::Tids => tasks(place, text, true),
                PartitionFile::Irqs => irqs(place, text),
                PartitionFile::Tick => match text.parse().ok()? {
                    // To count ticks keeps other changes waiting.
                    Tick::RequireOff => None,
                    tick => Some(Ask::Tick(place, tick)),
                },
                PartitionFile::Policy | PartitionFile::Violations | PartitionFile::Noise => None,
            }
        }
        _ => None,
    }
}

/// Digits alone: `+3` is no number here.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Numbers with white space between them, all to be added or, with `-` before each, removed.
fn numbers(text: &str) -> Option<(bool, Vec<u32>)> {
    let leaves = text.starts_with('-');
    let of_word = |word: &str| match (word.strip_prefix('-'), leaves) {
        (Some(rest), true) => number(rest),
        (None, false) => number(word),
        _ => None,
    };
    let mut found: Vec<u32> = text.split_ascii_whitespace().map(of_word).collect::<Option<_>>()?;
    found.sort_unstable();
    found.dedup();
    (!found.is_empty()).then_some((leaves, found))
}

fn tasks(place: Place, text: &str, alone: bool) -> Option<Ask> {
    let (leaves, found) = numbers(text)?;
    // 0 is no task, and a write(2) to a cgroup takes it for the caller.
    let task = |number: u32| i32::try_from(number).ok().filter(|number| *number > 0);
    let all: Vec<i32> = found.into_iter().map(task).collect::<Option<_>>()?;
    let members = match alone {
        true => Members { tids: all, ..Members::default() },
        false => Members { pids: all, ..Members::default() },
    };
    Some(moved(place, leaves, members))
}

fn irqs(place: Place, text: &str) -> Option<Ask> {
    let (leaves, found) = numbers(text)?;
    let irqs = found.iter().map(ToString::to_string).collect();
    Some(moved(place, leaves, Members { irqs, ..Members::default() }))
}

fn moved(place: Place, leaves: bool, members: Members) -> Ask {
    match leaves {
        true => Ask::Leave(place, members),
        false => Ask::Join(place, members),
    }
}

/// The name of the partition that a file of this CPU makes: of a name that is taken the next one,
/// `cpu3-2`.
fn name_of(view: &View, cpu: Cpu) -> String {
    let names =
        std::iter::once(format!("cpu{cpu}")).chain((2_u32..).map(|n| format!("cpu{cpu}-{n}")));
    let mut free = names.filter(|name| view.state.partition(name).is_err());
    free.next().unwrap_or_default()
}

fn wrong(code: u8, why: impl Into<String>) -> Refused {
    Refused { code, why: why.into() }
}

/// The request that does it; `None`: it is so already.
pub fn request(view: &View, ask: &Ask) -> Result<Option<Request>, Refused> {
    match ask {
        Ask::Shield(cpu) => match view.partition_of(*cpu) {
            Some(_) => Ok(None),
            None => Ok(Some(Request::Create { name: name_of(view, *cpu), spec: spec(*cpu) })),
        },
        Ask::Unshield(cpu) => match view.partition_of(*cpu) {
            None => Ok(None),
            Some(partition) => {
                let name = Some(alone(partition, *cpu)?.name.clone());
                Ok(Some(Request::Destroy { name, demote: false }))
            }
        },
        Ask::Tick(place, tick) => {
            let unshielded = "the CPU is not shielded: write 1 to its file shielded first";
            let partition = found(view, place)?.ok_or_else(|| wrong(USAGE, unshielded))?;
            set_tick(view, place, partition, *tick)
        }
        Ask::Mode(name, mode) => {
            let is_so = view.state.partition(name)?.mode == *mode;
            Ok((!is_so).then(|| Request::Mode { name: name.clone(), mode: *mode }))
        }
        Ask::Factor => Err(wrong(
            USAGE,
            "a stock kernel cannot slow its tick down: write 0 (it may stop) or 1 (it stays)",
        )),
        Ask::Join(place, members) => {
            let members = members.clone();
            Ok(Some(match (found(view, place)?, place) {
                (Some(partition), _) => Request::Add { name: partition.name.clone(), members },
                (None, Place::Partition(name)) => Request::Add { name: name.clone(), members },
                (None, Place::Cpu(cpu)) => {
                    Request::CreateFor { name: name_of(view, *cpu), spec: spec(*cpu), members }
                }
            }))
        }
        Ask::Leave(place, members) => {
            let name = match (found(view, place)?, place) {
                (Some(partition), _) => partition.name.clone(),
                (None, Place::Partition(name)) => name.clone(),
                (None, Place::Cpu(cpu)) => {
                    let why = format!("CPU {cpu} is not shielded: nothing is inside");
                    return Err(wrong(NOT_INSIDE, why));
                }
            };
            Ok(Some(Request::Remove { name, members: members.clone(), demote: false }))
        }
        Ask::Resize(name, cpus) => {
            Ok(Some(Request::Resize { name: name.clone(), cpus: cpus.clone() }))
        }
    }
}

fn spec(cpu: Cpu) -> Spec {
    Spec::of(CpuSpec::List(CpuSet::from_iter([cpu])))
}

/// The partition of a place; `None`: the CPU is not shielded, or the name is of none.
fn found<'a>(view: &'a View, place: &Place) -> Result<Option<&'a Partition>, Refused> {
    match place {
        Place::Partition(name) => Ok(view.state.partition(name).ok()),
        Place::Cpu(cpu) => view.partition_of(*cpu).map(|one| alone(one, *cpu)).transpose(),
    }
}

/// The files of a CPU do not change a partition of several.
fn alone(partition: &Partition, cpu: Cpu) -> Result<&Partition, Refused> {
    match partition.cpus.len() == 1 && partition.cpus.contains(cpu) {
        true => Ok(partition),
        false => {
            let (name, cpus) = (&partition.name, &partition.cpus);
            let owner = name.clone();
            let taken = Refusal::TakenCpus { cpus: CpuSet::from_iter([cpu]), owner };
            let why = format!(
                "CPU {cpu} belongs to partition {name}, which has CPU {cpus}: use \
                 partitions/{name}"
            );
            Err(wrong(taken.code(), why))
        }
    }
}

/// The partition as it is, with another tick.
fn set_tick(
    view: &View,
    place: &Place,
    partition: &Partition,
    tick: Tick,
) -> Result<Option<Request>, Refused> {
    let is_so = partition.tick == tick;
    let ticking = partition.cpus.difference(&view.nohz_full);
    // The file of a partition shows what was asked for, that of a CPU what its tick does.
    match place {
        Place::Partition(_) if is_so => return Ok(None),
        _ if tick != Tick::Keep && !ticking.is_empty() => {
            return Err(Refusal::TickNotCandidate { cpus: ticking }.into());
        }
        Place::Cpu(_) if is_so => return Ok(None),
        _ => {}
    }
    let (name, taken) = (&partition.name, |why| Err(wrong(code::BUSY, why)));
    if partition.owner.is_some() {
        return taken(format!(
            "partition {name} is of a running `asmp run`: use its option --tick"
        ));
    }
    // A declaration without them would take them away.
    if partition.tasks.iter().any(|member| member.policy.is_some()) {
        return taken(format!("a file sets policies in partition {name}: set its tick there"));
    }
    let declared = Declared {
        name: name.clone(),
        cpus: Some(CpuSpec::List(partition.cpus.clone())),
        count: None,
        near: None,
        whole_cores: false,
        irqs: partition.irqs.iter().map(|irq| IrqName::Number(*irq)).collect(),
        irq_priority: partition.irq_priority,
        tick,
        smt: partition.smt,
        strict: partition.strict,
        without: partition.without.clone(),
        mode: partition.mode,
        tasks: Vec::new(),
    };
    Ok(Some(Request::Apply { declaration: Declaration { partitions: vec![declared] } }))
}

/// Carries it out: what must be known of it, in words.
pub fn carry_out(shield: &Shield, written: &Written) -> Result<Vec<String>, Refused> {
    let Written { file, ask, made, pid } = written;
    let caller = Caller::now(0, "root", format!("process {pid} wrote to {file}"));
    for _ in 0..MOST_LOOKS {
        let view = View::read(shield).map_err(|why| wrong(UNEXPECTED, why))?;
        if made.is_some() && ask.partition().and_then(|name| Made::named(&view, name)) != *made {
            return Err(wrong(NO_PARTITION, "the partition of the open file has ended"));
        }
        let Some(request) = request(&view, ask)? else { return Ok(Vec::new()) };
        // Another asmp may change the partitions before this one has the lock.
        let changed = shield.change_of(&view.state, &request, &caller);
        if let Some(outcome) = changed.map_err(|error| wrong(error.code(), error.to_string()))? {
            let fails = came::fails(&request, &outcome);
            return match fails.is_empty() {
                true => Ok(came::of(&request, &outcome)),
                false => Err(wrong(NOT_UNDONE, format!("made, but {}", fails.join("; ")))),
            };
        }
    }
    Err(wrong(code::BUSY, "other changes follow one another: try again"))
}

/// The error of write(2) for a refusal with this code.
pub const fn errno(code: u8) -> Errno {
    match code {
        10 | 29 | 34 => Errno::PERM,
        20 | 21 | 36 | NO_PARTITION => Errno::NODEV,
        33 | 35 => Errno::SRCH,
        4 | 8 | 22..=28 | 31 | 37 | 39 | 44..=48 | 55 => Errno::BUSY,
        5 | 11..=15 | 38 | 57 => Errno::OPNOTSUPP,
        USAGE | 30 | 40 => Errno::INVAL,
        _ => Errno::IO,
    }
}

#[cfg(test)]
#[path = "written_tests.rs"]
mod tests;
