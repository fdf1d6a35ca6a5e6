// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tick = "require-off"`: a busy task on each CPU must see half a second without a tick before the
//! partition counts. The first ticks after a partition is made are the kernel's own clean-up.

use crate::partition::{Partition, Tick};
use crate::plan::Base;
use asmp_host::{Cpu, CpuSet, Facts, Kernel, Schedule, cgroup, counters};
use std::time::{Duration, Instant};

/// How long a CPU must go without a tick.
const WINDOW: Duration = Duration::from_millis(500);

/// Why there is no proof.
#[derive(Debug)]
pub(crate) enum Unproved {
    /// In words.
    Because(String),
    Interrupted {
        signal: i32,
    },
}

impl From<String> for Unproved {
    fn from(reason: String) -> Self {
        Self::Because(reason)
    }
}

/// Where ticks are proved.
pub(crate) struct Prover<'a> {
    pub kernel: &'a dyn Kernel,
    pub base: &'a Base,
    /// A signal that has come ends a proof.
    pub interrupt: &'a dyn Fn() -> Option<i32>,
}

impl Prover<'_> {
    /// Proves every partition of `after` that asks for it and that is new or has CPUs that were not
    /// proved before. Call before tasks move in: a partition with tasks inside cannot be proved.
    pub fn ticks(
        &self,
        facts: &Facts,
        (before, after): (&[Partition], &[Partition]),
        patience: Duration,
    ) -> Result<(), Unproved> {
        let is_known = |new: &Partition| {
            before.iter().any(|old| {
                old.name == new.name && new.cpus.is_subset(&old.cpus) && old.tick == new.tick
            })
        };
        for partition in after.iter().filter(|p| p.tick == Tick::RequireOff && !is_known(p)) {
            let ticking = partition.cpus.difference(&facts.cpus.nohz_full);
            if !ticking.is_empty() {
                return Err(format!("the tick of CPU {ticking} cannot stop in this boot").into());
            }
            let groups = self.base.groups(&partition.name);
            let inhabited = cgroup::threads_below(self.kernel, &groups.rt)
                .is_ok_and(|threads| !threads.is_empty());
            if inhabited {
                return Err(format!(
                    "the tick of CPU {} cannot be proved to stop while tasks are in partition {}: \
                     remove them, and add them after the change",
                    partition.cpus, partition.name
                )
                .into());
            }
            for cpu in partition.cpus.iter() {
                self.tick(partition, cpu, patience)?;
            }
        }
        Ok(())
    }

    fn tick(&self, partition: &Partition, cpu: Cpu, patience: Duration) -> Result<(), Unproved> {
        let Self { kernel, base, .. } = *self;
        let spinner = kernel
            .spin(patience * 2)
            .map_err(|error| format!("the probe did not start: {error}"))?;
        let pid = spinner.pid();
        let group = base.groups(&partition.name).rt;
        cgroup::move_process(kernel, pid, &group).map_err(|error| error.to_string())?;
        kernel
            .set_affinity(pid, &CpuSet::from_iter([cpu]))
            .map_err(|error| format!("the probe cannot run on CPU {cpu}: {error}"))?;
        kernel
            .set_schedule(pid, &Schedule::Fifo { priority: 1 })
            .map_err(|error| format!("the probe got no real-time priority: {error}"))?;
        let ticks = || {
            counters::local_timer_ticks(kernel, cpu)
                .map_err(|error| format!("ticks cannot be counted: {error}"))
        };
        let end = Instant::now() + patience;
        loop {
            if let Some(signal) = (self.interrupt)() {
                return Err(Unproved::Interrupted { signal });
            }
            let before = ticks()?;
            std::thread::sleep(WINDOW);
            let last = ticks()?.saturating_sub(before);
            if last == 0 {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(format!(
                    "CPU {cpu} still took {last} ticks in the last {} ms of {} s with one busy \
                     task: see `asmp noise`",
                    WINDOW.as_millis(),
                    patience.as_secs()
                )
                .into());
            }
        }
    }
}
