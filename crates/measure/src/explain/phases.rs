// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel's timerlat says, without records.

use super::words::micros;

/// What the kernel's timerlat says of a period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phases {
    pub(super) irq_ns: u64,
    pub(super) thread_ns: u64,
}

impl Phases {
    /// Which phase made a period late, where no record tells more.
    pub(super) fn cause(self, value_ns: u64) -> String {
        let (phase, took_ns) = self.longest(value_ns);
        let took = micros(took_ns);
        match phase {
            Phase::Interrupt => format!(
                "the timer interrupt came {took} late: interrupts were off, or the CPU was away"
            ),
            Phase::Thread => format!("the thread was scheduled {took} late"),
            Phase::Return => format!("the return to user space took {took}"),
        }
    }

    fn longest(self, value_ns: u64) -> (Phase, u64) {
        let Self { irq_ns, thread_ns } = self;
        let phases = [
            (Phase::Interrupt, irq_ns),
            (Phase::Thread, thread_ns.saturating_sub(irq_ns)),
            (Phase::Return, value_ns.saturating_sub(thread_ns)),
        ];
        phases.into_iter().max_by_key(|(_, took)| *took).unwrap_or((Phase::Interrupt, irq_ns))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Interrupt,
    Thread,
    Return,
}
