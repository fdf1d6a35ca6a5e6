// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other times of the same samples, where they were taken: how far the event had come.

use crate::histogram::Latencies;
use crate::sample::Sample;

/// Latencies of samples; no instant is missed here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Times {
    /// To the interrupt's handler.
    pub irq: Latencies,
    /// To the thread, still in the kernel.
    pub thread: Latencies,
    /// From the interrupt's handler to the end.
    pub from_interrupt: Latencies,
    /// From the thread to the end.
    pub from_thread: Latencies,
}

impl Times {
    /// Of what a log has under each tag.
    pub fn tagged(mut of: impl FnMut(&str) -> Latencies) -> Self {
        Self {
            irq: of("irq"),
            thread: of("thread"),
            from_interrupt: of("from-interrupt"),
            from_thread: of("from-thread"),
        }
    }

    /// With their tags in a log.
    pub fn tags(&self) -> [(&'static str, &Latencies); 4] {
        [
            ("irq", &self.irq),
            ("thread", &self.thread),
            ("from-interrupt", &self.from_interrupt),
            ("from-thread", &self.from_thread),
        ]
    }

    pub fn add(&mut self, sample: &Sample) {
        let until_end = |ns: u64| sample.value_ns.saturating_sub(ns);
        if let Some(ns) = sample.handler_ns {
            self.irq.record(ns);
            self.from_interrupt.record(until_end(ns));
        }
        if let Some(ns) = sample.thread_ns {
            self.thread.record(ns);
            self.from_thread.record(until_end(ns));
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.irq.merge(&other.irq);
        self.thread.merge(&other.thread);
        self.from_interrupt.merge(&other.from_interrupt);
        self.from_thread.merge(&other.from_thread);
    }
}
