// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of SCHED_DEADLINE on a machine: as read, else the kernel's defaults, and words for
//! which is which.

use asmp_analysis::TimeBase;
use asmp_analysis::deadline::{Domain, ratio};
use asmp_host::facts::cpu_list;
use asmp_host::{CpuSet, DeadlineLimits, Linux};
use serde::Serialize;
use std::path::Path;

/// What admission is computed with.
#[derive(Debug, Serialize)]
pub struct Limits {
    pub domain: Domain,
    pub read: DeadlineLimits,
    /// What could not be read and was taken from the kernel's defaults.
    pub assumed: Vec<&'static str>,
    /// CPUs that were named and that this machine does not have.
    pub absent: CpuSet,
}

impl Limits {
    /// Of the machine whose files lie below `root`; without CPUs, a root domain of CPU 0.
    pub fn read(root: &Path, cpus: Option<&CpuSet>) -> Self {
        let cpus = cpus.cloned().unwrap_or_else(|| CpuSet::from_iter([0]));
        let read = DeadlineLimits::read(&Linux::below(root), &cpus);
        let mut domain = Domain::of(u32::try_from(cpus.len()).unwrap_or(u32::MAX));
        let mut assumed = Vec::new();
        match (read.rt_runtime_us, read.rt_period_us) {
            (Some(runtime_us), Some(period_us)) => {
                domain.rt_runtime_us = u64::try_from(runtime_us).ok();
                domain.rt_period_us = period_us;
            }
            _ => assumed.push("sched_rt_runtime_us, sched_rt_period_us"),
        }
        match (read.least_period_us, read.most_period_us) {
            (Some(least_us), Some(most_us)) => {
                domain.least_period_ns = least_us.saturating_mul(1000);
                domain.most_period_ns = most_us.saturating_mul(1000);
            }
            _ => assumed.push("sched_deadline_period_min_us, sched_deadline_period_max_us"),
        }
        match &read.servers {
            Some(servers) => {
                let booked =
                    servers.iter().map(|server| ratio(server.period_ns, server.runtime_ns));
                domain.servers = booked.fold(0, u64::saturating_add);
            }
            None => assumed.push(
                "no deadline server (needs root and debugfs, without lockdown; Linux 6.12 and \
                 newer have one)",
            ),
        }
        let absent = cpu_list(&Linux::below(root), "possible")
            .map_or_else(|_| CpuSet::new(), |possible| cpus.difference(&possible));
        Self { domain, read, assumed, absent }
    }

    /// One line with the numbers, one with what was assumed.
    pub fn lines(&self) -> Vec<String> {
        let show_ns = |ns: u64| TimeBase::NANOSECONDS.show(ns);
        let Domain { rt_runtime_us, rt_period_us, least_period_ns, most_period_ns, .. } =
            self.domain;
        let us = |us: u64| show_ns(us.saturating_mul(1000));
        let share = match rt_runtime_us {
            Some(runtime_us) => format!("{} of {} on each CPU", us(runtime_us), us(rt_period_us)),
            None => "no admission control (sched_rt_runtime_us is -1)".to_owned(),
        };
        let periods =
            format!("periods of {} to {}", show_ns(least_period_ns), show_ns(most_period_ns));
        let servers: Vec<String> = self
            .read
            .servers
            .iter()
            .flatten()
            .map(|server| {
                let (runtime, period) = (show_ns(server.runtime_ns), show_ns(server.period_ns));
                format!("{} server of CPU {}: {runtime} of {period}", server.class, server.cpu)
            })
            .collect();
        let mut parts = vec![share, periods];
        parts.extend(servers);
        let mut lines = vec![format!("limits: {}", parts.join("; "))];
        if !self.absent.is_empty() {
            lines.push(format!("this machine has no CPU {}", self.absent));
        }
        if !self.assumed.is_empty() {
            lines.push(format!(
                "not readable, so the kernel's defaults: {}",
                self.assumed.join("; ")
            ));
        }
        lines
    }
}
