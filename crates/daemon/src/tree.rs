// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree of files: which there are, how they are numbered, and what stands in them. Pure, but
//! for [`View::read`] and the tasks of a partition, which are read from the kernel.
//!
//! The names are those of ASMP-Linux (section 5.5), whose /proc/asmp had a directory for each CPU.
//! Writes: [`crate::written`]. The file system itself: [`crate::files`].

use asmp_host::cgroup::threads_below;
use asmp_host::{Cpu, CpuSet, Kernel, facts};
use asmp_shield::{Partition, Shield, State, Tick};
use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::BuildHasher;

/// What the files tell.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// CPUs that the machine can have.
    pub possible: CpuSet,
    /// CPUs whose tick may stop.
    pub nohz_full: CpuSet,
    pub state: State,
}

impl View {
    /// Errors: in words.
    pub fn read(shield: &Shield) -> Result<Self, String> {
        let list = |name: &str| facts::cpu_list(shield.kernel(), name);
        Ok(Self {
            possible: list("possible").map_err(|error| error.to_string())?,
            // The file is absent where no tick can stop.
            nohz_full: list("nohz_full").unwrap_or_default(),
            state: shield.state().map_err(|error| error.to_string())?,
        })
    }

    /// The partition that has this CPU, or keeps it idle.
    pub fn partition_of(&self, cpu: Cpu) -> Option<&Partition> {
        self.state.partitions.iter().find(|one| one.shielded().contains(cpu))
    }

    /// Does the tick of this CPU stop, as far as asmp and this boot decide that?
    fn tick_stops(&self, cpu: Cpu) -> bool {
        let wanted = self.partition_of(cpu).is_some_and(|one| one.tick != Tick::Keep);
        wanted && self.nohz_full.contains(cpu)
    }
}

/// Tells a partition from a later one of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Made {
    at_s: u64,
    by: String,
}

impl Made {
    pub fn named(view: &View, name: &str) -> Option<Self> {
        view.state.partition(name).ok().map(Self::of)
    }

    fn of(partition: &Partition) -> Self {
        Self { at_s: partition.created_s, by: partition.created_by.clone() }
    }
}

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Root,
    Events,
    Metrics,
    Cpu(Cpu),
    OfCpu(Cpu, CpuFile),
    Partitions,
    Partition(String),
    OfPartition(String, PartitionFile),
}

/// A file of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuFile {
    Shielded,
    Pids,
    Irqs,
    LocalTimer,
}

/// A file of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionFile {
    Cpus,
    Pids,
    Tids,
    Irqs,
    Policy,
    Tick,
    Mode,
    Violations,
    Noise,
}

impl CpuFile {
    pub const ALL: [(&str, Self); 4] = [
        ("shielded", Self::Shielded),
        ("pids", Self::Pids),
        ("irqs", Self::Irqs),
        ("localtimer", Self::LocalTimer),
    ];
}

impl PartitionFile {
    pub const ALL: [(&str, Self); 9] = [
        ("cpus", Self::Cpus),
        ("pids", Self::Pids),
        ("tids", Self::Tids),
        ("irqs", Self::Irqs),
        ("policy", Self::Policy),
        ("tick", Self::Tick),
        ("mode", Self::Mode),
        ("violations", Self::Violations),
        ("noise", Self::Noise),
    ];
}

/// The name of a value in its list.
fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, one)| one == value).map_or("", |(name, _)| name)
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(one, _)| *one == name).map(|(_, value)| *value)
}

impl Node {
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Root | Self::Cpu(_) | Self::Partitions | Self::Partition(_))
    }

    /// May root write to it?
    pub fn is_written(&self) -> bool {
        match self {
            Self::OfCpu(..) => true,
            Self::OfPartition(_, file) => {
                use PartitionFile::{Noise, Policy, Violations};
                !matches!(file, Policy | Violations | Noise)
            }
            _ => false,
        }
    }

    /// Does it take long to make its text?
    pub fn is_costly(&self) -> bool {
        use PartitionFile::{Noise, Policy};
        matches!(self, Self::Metrics | Self::OfPartition(_, Noise | Policy))
    }

    /// The partition that a name means now.
    pub fn made(&self, view: &View) -> Option<Made> {
        let name = match self {
            Self::Partition(name) | Self::OfPartition(name, _) => name,
            _ => return None,
        };
        Made::named(view, name)
    }

    /// Does poll(2) tell of a change?
    pub fn is_polled(&self) -> bool {
        matches!(self, Self::Events | Self::OfPartition(_, PartitionFile::Violations))
    }

    /// From the root, as `cpu3/pids`.
    pub fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Events => "events".to_owned(),
            Self::Metrics => "metrics".to_owned(),
            Self::Cpu(cpu) => format!("cpu{cpu}"),
            Self::OfCpu(cpu, file) => format!("cpu{cpu}/{}", name_of(&CpuFile::ALL, file)),
            Self::Partitions => "partitions".to_owned(),
            Self::Partition(name) => format!("partitions/{name}"),
            Self::OfPartition(name, file) => {
                format!("partitions/{name}/{}", name_of(&PartitionFile::ALL, file))
            }
        }
    }

    /// The entry of a directory that has this name.
    pub fn child(&self, view: &View, name: &str) -> Option<Self> {
        let has = |name: &str| view.state.partitions.iter().any(|one| one.name == name);
        match self {
            Self::Root => match name {
                "events" => Some(Self::Events),
                "metrics" => Some(Self::Metrics),
                "partitions" => Some(Self::Partitions),
                _ => {
                    let cpu = name.strip_prefix("cpu")?.parse().ok()?;
                    // "cpu03" and "cpu+3" parse, and are no names.
                    let is_its = view.possible.contains(cpu) && name == format!("cpu{cpu}");
                    is_its.then_some(Self::Cpu(cpu))
                }
            },
            Self::Cpu(cpu) => Some(Self::OfCpu(*cpu, named(&CpuFile::ALL, name)?)),
            Self::Partitions => has(name).then(|| Self::Partition(name.to_owned())),
            Self::Partition(partition) => {
                Some(Self::OfPartition(partition.clone(), named(&PartitionFile::ALL, name)?))
            }
            _ => None,
        }
    }

    /// The entries of a directory, with their names.
    pub fn children(&self, view: &View) -> Vec<(String, Self)> {
        let names: Vec<String> = match self {
            Self::Root => {
                let cpus = view.possible.iter().map(|cpu| format!("cpu{cpu}"));
                let others = ["events", "metrics", "partitions"].map(str::to_owned);
                cpus.chain(others).collect()
            }
            Self::Cpu(_) => CpuFile::ALL.map(|(name, _)| name.to_owned()).into(),
            Self::Partitions => view.state.partitions.iter().map(|one| one.name.clone()).collect(),
            Self::Partition(_) => PartitionFile::ALL.map(|(name, _)| name.to_owned()).into(),
            _ => Vec::new(),
        };
        let entry = |name: String| self.child(view, &name).map(|node| (name, node));
        names.into_iter().filter_map(entry).collect()
    }

    /// The directory that it is in; the root is in itself.
    pub fn parent(&self) -> Self {
        match self {
            Self::OfCpu(cpu, _) => Self::Cpu(*cpu),
            Self::Partition(_) => Self::Partitions,
            Self::OfPartition(name, _) => Self::Partition(name.clone()),
            _ => Self::Root,
        }
    }
}

/// Bits of an inode number: what it is of, and its file from 1; 0 is the directory.
const OF_CPU: u64 = 1 << 62;
const OF_PARTITION: u64 = 1 << 63;
const FILE_BITS: u32 = 8;
const FIXED: [(u64, Node); 4] =
    [(1, Node::Root), (2, Node::Events), (3, Node::Partitions), (4, Node::Metrics)];

/// Inode numbers. The name of a partition, and when and how it was made, give its number, so that
/// none is kept.
#[derive(Debug, Default)]
pub struct Inodes {
    /// Its key is another one in each process: no user can make two names with one number.
    hasher: RandomState,
}

impl Inodes {
    pub fn number(&self, view: &View, node: &Node) -> u64 {
        let at = |place: usize| place as u64 + 1;
        let of_cpu = |cpu: Cpu| OF_CPU | (u64::from(cpu) << FILE_BITS);
        match node {
            Node::Root | Node::Events | Node::Metrics | Node::Partitions => {
                FIXED.iter().find(|(_, one)| one == node).map_or(0, |(number, _)| *number)
            }
            Node::Cpu(cpu) => of_cpu(*cpu),
            Node::OfCpu(cpu, file) => {
                let place = CpuFile::ALL.iter().position(|(_, one)| one == file);
                of_cpu(*cpu) | place.map_or(0, at)
            }
            Node::Partition(name) => self.of_partition(name, node.made(view)),
            Node::OfPartition(name, file) => {
                let place = PartitionFile::ALL.iter().position(|(_, one)| one == file);
                self.of_partition(name, node.made(view)) | place.map_or(0, at)
            }
        }
    }

    /// The node that has this number now; `None`: its partition has ended.
    pub fn node(&self, view: &View, number: u64) -> Option<Node> {
        if let Some((_, node)) = FIXED.into_iter().find(|(one, _)| *one == number) {
            return Some(node);
        }
        let (directory, place) = (number >> FILE_BITS << FILE_BITS, (number & 0xff) as usize);
        if number & OF_PARTITION != 0 {
            let is_it =
                |one: &&Partition| self.of_partition(&one.name, Some(Made::of(one))) == directory;
            let name = &view.state.partitions.iter().find(is_it)?.name;
            return match place {
                0 => Some(Node::Partition(name.clone())),
                _ => {
                    let (_, file) = PartitionFile::ALL.get(place - 1)?;
                    Some(Node::OfPartition(name.clone(), *file))
                }
            };
        }
        let cpu = Cpu::try_from((number ^ OF_CPU) >> FILE_BITS).ok()?;
        match place {
            _ if !view.possible.contains(cpu) => None,
            0 => Some(Node::Cpu(cpu)),
            _ => Some(Node::OfCpu(cpu, CpuFile::ALL.get(place - 1)?.1)),
        }
    }

    fn of_partition(&self, name: &str, made: Option<Made>) -> u64 {
        let hash = self.hasher.hash_one((name, made)) >> FILE_BITS << FILE_BITS;
        OF_PARTITION | (hash & !OF_CPU)
    }
}

/// What stands in a file of the state, or of a group. `None`: its partition has ended, or it is
/// another file.
pub fn text(node: &Node, view: &View, shield: &Shield) -> Option<String> {
    match node {
        Node::OfCpu(cpu, file) => {
            let partition = view.partition_of(*cpu);
            let flag = |is: bool| format!("{}\n", u8::from(is));
            Some(match (file, partition) {
                (CpuFile::Shielded, _) => flag(partition.is_some()),
                (CpuFile::LocalTimer, _) => flag(!view.tick_stops(*cpu)),
                (CpuFile::Pids, Some(partition)) => processes(shield, partition),
                (CpuFile::Irqs, Some(partition)) => lines(&partition.irqs),
                (CpuFile::Pids | CpuFile::Irqs, None) => String::new(),
            })
        }
        Node::OfPartition(name, file) => {
            let partition = view.state.partition(name).ok()?;
            Some(match file {
                PartitionFile::Cpus => format!("{}\n", partition.cpus),
                PartitionFile::Pids => processes(shield, partition),
                PartitionFile::Tids => lines(&threads(shield, partition)),
                PartitionFile::Irqs => lines(&partition.irqs),
                PartitionFile::Policy => policies(shield, partition),
                PartitionFile::Tick => format!("{}\n", partition.tick),
                PartitionFile::Mode => format!("{}\n", partition.mode),
                PartitionFile::Violations | PartitionFile::Noise => return None,
            })
        }
        _ => None,
    }
}

/// One number a line.
fn lines<T: std::fmt::Display>(numbers: &[T]) -> String {
    numbers.iter().fold(String::new(), |mut text, number| {
        _ = writeln!(text, "{number}");
        text
    })
}

/// Processes in a partition, as its group lists them; also those with threads on system CPUs.
fn processes(shield: &Shield, partition: &Partition) -> String {
    let Ok(entrance) = shield.entrance(&partition.name) else { return String::new() };
    let file = entrance.groups.domain.join("cgroup.procs");
    let text = shield.kernel().text(&file).unwrap_or_default();
    let mut pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    pids.sort_unstable();
    lines(&pids)
}

/// Threads on the CPUs of a partition.
fn threads(shield: &Shield, partition: &Partition) -> Vec<i32> {
    let Ok(entrance) = shield.entrance(&partition.name) else { return Vec::new() };
    let mut tids = threads_below(shield.kernel(), &entrance.groups.rt).unwrap_or_default();
    tids.sort_unstable();
    tids
}

/// A line for each thread on its CPUs: number and policy.
fn policies(shield: &Shield, partition: &Partition) -> String {
    let kernel: &dyn Kernel = shield.kernel();
    let all = threads(shield, partition).into_iter();
    // One may have ended meanwhile.
    let known = all.filter_map(|tid| Some((tid, kernel.schedule(tid).ok()?)));
    known.fold(String::new(), |mut text, (tid, policy)| {
        _ = writeln!(text, "{tid} {policy}");
        text
    })
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
