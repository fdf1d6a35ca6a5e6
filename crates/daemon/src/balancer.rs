// SPDX-License-Identifier: Apache-2.0 OR MIT
//! irqbalance moves lines back as often as asmpd repairs them. So it is told what to leave alone,
//! and what it left alone before, once no partition is there.

use asmp_host::Kernel;
use asmp_host::irqbalance::{Banned, Irqbalance};
use asmp_host::task::TaskId;
use asmp_shield::verify::Status;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// What this knows of the irqbalance that runs.
pub struct Balancer {
    /// Where irqbalance makes its socket.
    dir: PathBuf,
    /// Where [`Told`] is kept for the next asmpd.
    file: PathBuf,
    told: Option<Told>,
    silent: Option<Silent>,
}

/// An irqbalance that did not answer: it may have been in a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Silent {
    task: TaskId,
    /// How long to wait until it is asked again, and when that is over.
    pause_ns: u64,
    again_ns: u64,
}

/// The first pause; each next one is twice as long.
const PAUSE_NS: u64 = 1_000_000_000;
const LONGEST_NS: u64 = 64 * PAUSE_NS;

/// One irqbalance, before it was told anything, and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    task: TaskId,
    /// What it left alone before.
    before: Banned,
    /// Whether it finds those CPUs by itself.
    by_itself: bool,
    /// What it leaves alone now; `None`: an earlier asmpd was about to tell it.
    #[serde(skip)]
    now: Option<Banned>,
}

impl Balancer {
    /// With what an earlier asmpd has told.
    pub fn new(dir: PathBuf, file: PathBuf) -> Self {
        let told = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self { dir, file, told, silent: None }
    }

    /// When one that did not answer is asked again, in nanoseconds of CLOCK_MONOTONIC.
    pub fn again_ns(&self) -> Option<u64> {
        self.silent.map(|silent| silent.again_ns)
    }

    /// Tells irqbalance what these partitions need, where that is not what it does. What was told,
    /// in words.
    pub fn follow(&mut self, kernel: &dyn Kernel, status: &Status, now_ns: u64) -> Option<String> {
        let silent = self.silent.take();
        let running = Irqbalance::running(kernel, &self.dir)?;
        let silent = silent.filter(|silent| silent.task == running.task);
        if self.told.as_ref().is_some_and(|told| told.task != running.task) {
            // What was set has ended with it.
            self.told = None;
        }
        if self.told.is_none() && status.partitions.is_empty() {
            return None;
        }
        if silent.is_some_and(|silent| now_ns < silent.again_ns) {
            self.silent = silent;
            return None;
        }
        let said = self.tell(kernel, &running, status);
        said.unwrap_or_else(|error| {
            let (task, pid) = (running.task, running.task.tid);
            let twice = silent.map_or(PAUSE_NS, |silent| 2 * silent.pause_ns);
            let pause_ns = twice.min(LONGEST_NS);
            self.silent = Some(Silent { task, pause_ns, again_ns: now_ns + pause_ns });
            // Once.
            silent.is_none().then(|| {
                format!(
                    "irqbalance (process {pid}) cannot be told to leave CPUs alone: {error}: it is \
                     asked again"
                )
            })
        })
    }

    fn tell(
        &mut self,
        kernel: &dyn Kernel,
        running: &Irqbalance,
        status: &Status,
    ) -> std::io::Result<Option<String>> {
        let mut told = match &self.told {
            Some(told) => told.clone(),
            None => {
                let before = running.banned()?;
                let by_itself = running.finds_by_itself(kernel, &before.cpus);
                Told { task: running.task, now: Some(before.clone()), before, by_itself }
            }
        };
        let wanted = wanted(&told.before, status);
        if told.now.as_ref() == Some(&wanted) {
            return Ok(None);
        }
        // Before it is told: an asmpd that is killed here leaves what it was before. The next one
        // reads all of the file, or the one before. What cannot be kept, it takes for what it was.
        let new = self.file.with_extension("new");
        let written = fs::write(&new, serde_json::to_vec(&told)?);
        let kept = written.and_then(|()| fs::rename(&new, &self.file));
        if kept.is_err() {
            let _ = fs::remove_file(&new);
        }
        let is_over = status.partitions.is_empty();
        let differs = |one: fn(&Banned, &Banned) -> bool| {
            told.now.as_ref().is_none_or(|now| one(now, &wanted))
        };
        if differs(|now, wanted| now.cpus != wanted.cpus) {
            running.ban_cpus((!is_over || !told.by_itself).then_some(&wanted.cpus))?;
        }
        if differs(|now, wanted| now.irqs != wanted.irqs) {
            running.ban_irqs(&wanted.irqs)?;
        }
        let words = match (is_over, wanted.irqs.len()) {
            (true, _) => "irqbalance may use the CPUs and lines that it used before".to_owned(),
            (false, 0) => format!("irqbalance leaves CPU {} alone", wanted.cpus),
            (false, 1) => format!("irqbalance leaves CPU {} and 1 line alone", wanted.cpus),
            (false, lines) => {
                format!("irqbalance leaves CPU {} and {lines} lines alone", wanted.cpus)
            }
        };
        if is_over {
            let _ = fs::remove_file(&self.file);
        }
        told.now = Some(wanted);
        self.told = (!is_over).then_some(told);
        Ok(Some(words))
    }
}

/// What it is to leave alone: what it did before, and what the partitions have. If that leaves it
/// no CPU of the system, its CPUs stay as they are.
fn wanted(before: &Banned, status: &Status) -> Banned {
    let of_partitions = status.partitions.iter().map(|one| one.cpus.union(&one.idle_cpus));
    let cpus = of_partitions.fold(before.cpus.clone(), |all, cpus| all.union(&cpus));
    let leaves_none = status.system_cpus.is_subset(&cpus);
    let lines = status.partitions.iter().flat_map(|one| &one.irqs);
    Banned {
        cpus: if leaves_none { before.cpus.clone() } else { cpus },
        irqs: before.irqs.iter().chain(lines).copied().collect(),
    }
}

#[cfg(test)]
#[path = "balancer_tests.rs"]
mod tests;
