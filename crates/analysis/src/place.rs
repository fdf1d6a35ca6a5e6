// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which task on which CPU: bin packing with the test of a policy as the measure of what fits.
//!
//! First, best and worst fit take the tasks by decreasing utilisation; what they measure is the CPU
//! alone. Best fit decreasing with partitioning (de Niz, Rajkumar, "Partitioning bin-packing
//! algorithms for distributed real-time systems", Int. J. Embedded Systems 2(3/4), 2006; RACE,
//! multi-dimensional) places whole applications in the order of their largest share of any of CPU,
//! memory and bandwidth on the CPU that has least left after it, and cuts an application only when
//! it fits nowhere whole: as much of it as goes where most goes, and the rest again. Fixed `core`s
//! are placed first. Where not everything finds a place, all is placed once more in the order of
//! importance before that of size, so that of the bound and of the free none is left out for a less
//! important one (an application is as important as its most important task). A heuristic: that
//! nothing was found does not prove that nothing exists.

use crate::check::check;
use crate::policy::Policy;
use crate::slack::fits;
use crate::task::Task;
use crate::utilisation::Utilisation;
use crate::verdict::{Effort, Stop};
#[cfg(feature = "files")]
use serde::Serialize;
use std::cmp::Reverse;

/// The heuristics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(rename_all = "kebab-case"))]
pub enum By {
    FirstFit,
    BestFit,
    WorstFit,
    BfdPartitioned,
}

/// What a CPU has beside its time; `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Room {
    pub memory_bytes: Option<u64>,
    /// Bytes a second.
    pub bandwidth: Option<u64>,
}

/// What is on one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Load {
    pub cpu: u32,
    pub tasks: Vec<usize>,
    /// In millionths, rounded down.
    pub utilisation_ppm: u64,
    pub memory_bytes: u64,
    pub bandwidth: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Placement {
    pub loads: Vec<Load>,
    /// The most important first.
    pub unplaced: Vec<Unplaced>,
    /// Applications that had to be cut.
    pub cut: Vec<String>,
}

impl Placement {
    pub const fn is_complete(&self) -> bool {
        self.unplaced.is_empty()
    }

    pub fn cpu_of(&self, task: usize) -> Option<u32> {
        self.loads.iter().find(|load| load.tasks.contains(&task)).map(|load| load.cpu)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Unplaced {
    pub task: usize,
    pub reason: String,
}

/// Errors: sets that `check` or the test of the policy refuses. O(tasks cpus) tests.
pub fn place(
    tasks: &[Task],
    cpus: &[u32],
    by: By,
    policy: Policy,
    room: &Room,
    effort: &Effort,
) -> Result<Placement, Stop> {
    check(tasks)?;
    policy.ranks(tasks)?;
    let packed = |rank: fn(&Task) -> u32| {
        let bins = cpus
            .iter()
            .map(|cpu| Bin { cpu: *cpu, tasks: vec![], used: Share::default() })
            .collect();
        let mut packer =
            Packer { tasks, bins, policy, room, effort, rank, unplaced: vec![], cut: vec![] };
        packer.pack(by);
        packer.finish()
    };
    let by_size = packed(|_| 0);
    let differ = tasks.iter().any(|task| task.importance != tasks[0].importance);
    Ok(if by_size.is_complete() || !differ { by_size } else { packed(|task| task.importance) })
}

fn share_ppm(task: &Task) -> u64 {
    let ppm = u128::from(task.cost_ticks()) * 1_000_000_000 / u128::from(task.period_ticks);
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

/// Of a CPU in each dimension, in units of 10^-9.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    time: u128,
    memory_bytes: u128,
    bandwidth: u128,
}

impl Share {
    fn of(task: &Task) -> Self {
        Self {
            time: share_ppm(task).into(),
            memory_bytes: task.memory_bytes.into(),
            bandwidth: task.bandwidth.into(),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            time: self.time.saturating_add(other.time),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            bandwidth: self.bandwidth.saturating_add(other.bandwidth),
        }
    }

    fn within(self, room: &Room) -> bool {
        let below = |used: u128, most: Option<u64>| most.is_none_or(|most| used <= most.into());
        below(self.memory_bytes, room.memory_bytes) && below(self.bandwidth, room.bandwidth)
    }

    /// Parts of what there is, each in units of 10^-9.
    fn parts(self, room: &Room) -> [u128; 3] {
        let part = |used: u128, most: Option<u64>| {
            most.map_or(0, |most| used.saturating_mul(1_000_000_000) / u128::from(most.max(1)))
        };
        [
            self.time,
            part(self.memory_bytes, room.memory_bytes),
            part(self.bandwidth, room.bandwidth),
        ]
    }

    fn largest(self, room: &Room) -> u128 {
        self.parts(room).into_iter().max().unwrap_or(0)
    }

    fn sum(self, room: &Room) -> u128 {
        self.parts(room).into_iter().fold(0, u128::saturating_add)
    }
}

struct Bin {
    cpu: u32,
    tasks: Vec<usize>,
    used: Share,
}

struct Packer<'a> {
    tasks: &'a [Task],
    bins: Vec<Bin>,
    policy: Policy,
    room: &'a Room,
    effort: &'a Effort,
    /// Comes before size.
    rank: fn(&Task) -> u32,
    unplaced: Vec<Unplaced>,
    cut: Vec<String>,
}

impl Packer<'_> {
    fn pack(&mut self, by: By) {
        let tasks = self.tasks;
        let (mut bound, mut free): (Vec<usize>, Vec<usize>) =
            (0..tasks.len()).partition(|index| tasks[*index].core.is_some());
        bound.sort_by_key(|index| Reverse((self.rank)(&tasks[*index])));
        for index in bound {
            if let Some(core) = tasks[index].core {
                self.fix(index, core);
            }
        }
        if by == By::BfdPartitioned {
            return self.by_application(&free);
        }
        let key = |task: &Task| ((self.rank)(task), share_ppm(task), task.importance);
        free.sort_by_key(|index| Reverse(key(&tasks[*index])));
        for index in free {
            match self.choose(&[index], by) {
                Some(bin) => self.put(bin, &[index]),
                None => self.leave(index, "it fits on no CPU"),
            }
        }
    }

    fn share(&self, group: &[usize]) -> Share {
        group.iter().fold(Share::default(), |sum, index| sum.plus(Share::of(&self.tasks[*index])))
    }

    /// What the test cannot decide does not fit.
    fn takes(&self, bin: &Bin, group: &[usize]) -> bool {
        if !bin.used.plus(self.share(group)).within(self.room) {
            return false;
        }
        // In the order of the file: of equal periods and deadlines the first goes first.
        let mut members: Vec<usize> = bin.tasks.iter().chain(group).copied().collect();
        members.sort_unstable();
        let set: Vec<Task> = members.iter().map(|index| self.tasks[*index].clone()).collect();
        fits(&set, self.policy, self.effort).unwrap_or(false)
    }

    /// The CPU for a group that goes there whole.
    fn choose(&self, group: &[usize], by: By) -> Option<usize> {
        let mut able = (0..self.bins.len()).filter(|bin| self.takes(&self.bins[*bin], group));
        let used = |bin: &usize| match by {
            By::BfdPartitioned => self.bins[*bin].used.sum(self.room),
            _ => self.bins[*bin].used.time,
        };
        match by {
            By::FirstFit => able.next(),
            // Of equals the first.
            By::BestFit | By::BfdPartitioned => able.max_by_key(|bin| (used(bin), Reverse(*bin))),
            By::WorstFit => able.min_by_key(used),
        }
    }

    fn put(&mut self, bin: usize, group: &[usize]) {
        let share = self.share(group);
        let bin = &mut self.bins[bin];
        bin.tasks.extend(group);
        bin.used = bin.used.plus(share);
    }

    fn leave(&mut self, task: usize, reason: impl Into<String>) {
        self.unplaced.push(Unplaced { task, reason: reason.into() });
    }

    fn fix(&mut self, index: usize, core: u32) {
        match self.bins.iter().position(|bin| bin.cpu == core) {
            None => self
                .leave(index, format!("it is bound to CPU {core}, which is not among those given")),
            Some(bin) if self.takes(&self.bins[bin], &[index]) => self.put(bin, &[index]),
            Some(_) => {
                self.leave(index, format!("it is bound to CPU {core} and does not fit there"))
            }
        }
    }

    fn by_application(&mut self, free: &[usize]) {
        let mut groups: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
        for index in free {
            let app = self.tasks[*index].app.as_deref();
            match groups.iter_mut().find(|(name, _)| app.is_some() && *name == app) {
                Some((_, members)) => members.push(*index),
                None => groups.push((app, vec![*index])),
            }
        }
        while !groups.is_empty() {
            let room = self.room;
            let rank =
                |group: &[usize]| group.iter().map(|index| (self.rank)(&self.tasks[*index])).max();
            let size = |group: &[usize]| (rank(group), self.share(group).largest(room));
            let Some(next) =
                (0..groups.len()).max_by_key(|at| (size(&groups[*at].1), Reverse(*at)))
            else {
                break;
            };
            let (name, mut group) = groups.swap_remove(next);
            if let Some(bin) = self.choose(&group, By::BfdPartitioned) {
                self.put(bin, &group);
                continue;
            }
            group.sort_by_key(|index| {
                let task = &self.tasks[*index];
                Reverse(((self.rank)(task), Share::of(task).largest(room), task.importance))
            });
            match self.largest_piece(&group) {
                Some((bin, piece)) => {
                    self.put(bin, &piece);
                    group.retain(|index| !piece.contains(index));
                    if let Some(name) = name
                        && !self.cut.iter().any(|cut| cut == name)
                    {
                        self.cut.push(name.to_owned());
                    }
                    if !group.is_empty() {
                        groups.push((name, group));
                    }
                }
                None => group.into_iter().for_each(|index| self.leave(index, "it fits on no CPU")),
            }
        }
    }

    /// The CPU that takes most of a group, task after task, and what it takes.
    fn largest_piece(&self, group: &[usize]) -> Option<(usize, Vec<usize>)> {
        let piece = |bin: usize| {
            let mut piece = Vec::new();
            for index in group {
                piece.push(*index);
                if !self.takes(&self.bins[bin], &piece) {
                    piece.pop();
                }
            }
            (bin, piece)
        };
        let pieces = (0..self.bins.len()).map(piece).filter(|(_, piece)| !piece.is_empty());
        pieces.max_by_key(|(bin, piece)| (self.share(piece).sum(self.room), Reverse(*bin)))
    }

    fn finish(mut self) -> Placement {
        let tasks = self.tasks;
        self.unplaced.sort_by_key(|unplaced| Reverse(tasks[unplaced.task].importance));
        let load = |bin: Bin| {
            let set: Vec<Task> = bin.tasks.iter().map(|index| tasks[*index].clone()).collect();
            Load {
                cpu: bin.cpu,
                utilisation_ppm: (Utilisation::of(&set).approximate() * 1e6) as u64,
                tasks: bin.tasks,
                memory_bytes: u64::try_from(bin.used.memory_bytes).unwrap_or(u64::MAX),
                bandwidth: u64::try_from(bin.used.bandwidth).unwrap_or(u64::MAX),
            }
        };
        Placement {
            loads: self.bins.into_iter().map(load).collect(),
            unplaced: self.unplaced,
            cut: self.cut,
        }
    }
}
