// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came on the measured CPU while a run lasted, by the kernel's counters.

use crate::run::Totals;
use asmp_host::counters::{self, Interrupts};
use asmp_host::{Cpu, Kernel};
use std::path::Path;

/// Counters of the machine at one instant; steal in ticks of 10 ms.
pub(super) struct Counters {
    interrupts: Vec<counters::Row>,
    steal: Option<u64>,
}

impl Counters {
    pub fn read(kernel: &dyn Kernel, cpu: Cpu) -> Self {
        let steal = kernel.text(Path::new("/proc/stat")).ok().and_then(|text| {
            let label = format!("cpu{cpu} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&label))?.to_owned();
            line.split_whitespace().nth(7)?.parse::<u64>().ok()
        });
        Self { interrupts: counters::interrupts(kernel).unwrap_or_default(), steal }
    }
}

/// What came between two readings. A count that went back counts as none: the hypervisor may
/// correct the time it took, and a line that is requested again begins at 0.
pub(super) fn totals(before: Counters, after: Counters, cpu: Cpu) -> Totals {
    let Some(came) = Interrupts::between(&before.interrupts, &after.interrupts, cpu) else {
        return Totals::default();
    };
    let steal = after.steal.zip(before.steal).map(|(after, before)| after.saturating_sub(before));
    Totals {
        ticks: came.ticks,
        device_interrupts: Some(came.devices),
        ipis: Some(came.ipis),
        steal_ns: steal.map(|ticks| ticks.saturating_mul(10_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::counters::{InterruptKind, Row};
    use std::collections::BTreeMap;

    fn counters(ticks: u64, eth0: u64, steal: u64) -> Counters {
        let row = |kind, count| Row { kind, counts: BTreeMap::from([(3, count)]) };
        let interrupts = vec![
            row(InterruptKind::LocalTimer, ticks),
            row(InterruptKind::Device("24 eth0".into()), eth0),
        ];
        Counters { interrupts, steal: Some(steal) }
    }

    #[test]
    fn a_count_that_went_back_is_none_and_not_the_largest_number() {
        let came = totals(counters(100, 5000, 70), counters(107, 3, 60), 3);
        assert_eq!((came.ticks, came.steal_ns), (Some(7), Some(0)));
        assert_eq!(came.device_interrupts, Some(BTreeMap::new()));
        let none = Counters { interrupts: Vec::new(), steal: None };
        assert_eq!(totals(none, counters(1, 1, 1), 3), Totals::default(), "not counted");
    }
}
