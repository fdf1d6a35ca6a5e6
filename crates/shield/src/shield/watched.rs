// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files tell that somebody has changed a partition: for a program that holds partitions, and
//! does not want to read the whole machine again and again.

use super::{ChangeError, Shield};
use crate::lines;
use crate::partition::{Refusal, State};
use crate::plan::Base;
use crate::state::STATE;
use crate::target::targets;
use asmp_host::{Facts, knob};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Of a group: its tasks, and what makes it a partition. The kernel itself tells of the third and
/// the sixth.
const OF_GROUP: [&str; 6] = [
    "cgroup.procs",
    "cgroup.threads",
    "cgroup.events",
    "cpuset.cpus",
    "cpuset.cpus.exclusive",
    "cpuset.cpus.partition",
];

/// What tells of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// The files that the partitions rest on, and the directory of their state. Some may be missing
    /// on this machine.
    pub files: BTreeSet<PathBuf>,
    /// The groups whose tasks have the CPUs of a partition, as /proc/PID/cgroup names them, and the
    /// partition.
    pub groups: BTreeMap<PathBuf, String>,
    /// Where cgroups are mounted.
    pub mount: PathBuf,
    /// The group of all partitions, as /proc/PID/cgroup names it.
    pub partitions: PathBuf,
}

impl Shield {
    /// What a program follows that holds the partitions. Errors: those of [`Shield::status`].
    pub fn watched(&self) -> Result<Watched, ChangeError> {
        let facts = Facts::read(self.kernel())?;
        let base = Base::of(&facts).ok_or(Refusal::NoCgroupV2)?;
        let mut state = self.state()?;
        lines::follow(self.kernel(), &facts, &mut state);
        let mut files = of_partitions(&facts, &base, &state);
        files.insert(self.state_dir());
        let names = state.partitions.iter().map(|partition| partition.name.clone());
        let partitions = base.in_tree();
        let groups = names.map(|name| (partitions.join(&name).join("rt"), name)).collect();
        Ok(Watched { files, groups, mount: base.mount, partitions })
    }

    /// The file of the state: each change replaces it.
    pub fn state_file(&self) -> PathBuf {
        self.store.path(STATE)
    }

    /// The directory of the state.
    pub fn state_dir(&self) -> PathBuf {
        let file = self.state_file();
        file.parent().unwrap_or(&file).to_owned()
    }
}

/// None without a partition.
fn of_partitions(facts: &Facts, base: &Base, state: &State) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    if state.partitions.is_empty() {
        return files;
    }
    let settings = targets(facts, &state.partitions, &state.system(), &state.originals);
    files.extend(settings.into_keys().map(|knob| knob.path));
    files.insert(knob::default_irq_affinity().path);
    for irq in facts.irqs.iter().filter(|irq| !irq.per_cpu) {
        // A line has two files in its directory: programs write either.
        let list = knob::irq_affinity(irq.number).path;
        files.remove(&list);
        files.extend(list.parent().map(Path::to_owned));
    }
    for partition in &state.partitions {
        let groups = base.groups(&partition.name);
        // Also for groups that are made in it.
        files.insert(groups.rt.clone());
        for group in [groups.domain, groups.rt, groups.rest, groups.idle] {
            files.extend(OF_GROUP.map(|name| group.join(name)));
        }
    }
    files
}
