// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that collects keeps off the measured CPU.
//!
//! A real-time probe that computes lets nothing of a lower priority run on its CPU. With PREEMPT_RT
//! that includes the kernel's thread that wakes ordinary tasks whose timers expire there: a thread
//! that fell asleep on that CPU would sleep until the probe ends, and notice no signal.

use asmp_host::{Cpu, CpuSet, Kernel, clock::thread_id};

/// The calling thread is not on that CPU until this is dropped. Threads and processes that it
/// starts meanwhile are not either.
pub(super) struct KeptOff<'a> {
    kernel: &'a dyn Kernel,
    /// `None`: it was not there, or the kernel has no other CPU for it.
    before: Option<CpuSet>,
}

impl<'a> KeptOff<'a> {
    pub fn new(kernel: &'a dyn Kernel, cpu: Cpu, online: &CpuSet) -> Self {
        let tid = thread_id();
        let before = kernel.online_affinity(tid).ok().filter(|allowed| allowed.contains(cpu));
        let moved = before.filter(|before| {
            let one = CpuSet::from_iter([cpu]);
            let others = Some(before.difference(&one)).filter(|others| !others.is_empty());
            // taskset(1) may have given us the measured CPU alone.
            let others = others.unwrap_or_else(|| online.difference(&one));
            kernel.set_affinity(tid, &others).is_ok()
        });
        Self { kernel, before: moved }
    }
}

impl Drop for KeptOff<'_> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It fails where all of those have gone offline meanwhile: then any CPU does.
            let _ = self.kernel.set_affinity(thread_id(), before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::Linux;

    #[test]
    fn a_thread_keeps_off_a_cpu_and_has_its_own_again_afterwards() {
        let kernel = Linux::new();
        let own = || kernel.online_affinity(thread_id()).unwrap();
        let all = own();
        let first = all.iter().next().unwrap();
        let one = CpuSet::from_iter([first]);
        if all == one {
            println!("skipped: this process has one CPU");
            return;
        }
        let kept = KeptOff::new(&kernel, first, &all);
        assert_eq!(own(), all.difference(&one));
        // It is not there: nothing to do, and nothing to take back.
        drop(KeptOff::new(&kernel, first, &all));
        assert_eq!(own(), all.difference(&one));
        drop(kept);
        assert_eq!(own(), all);
        // It has that CPU alone.
        kernel.set_affinity(thread_id(), &one).unwrap();
        let kept = KeptOff::new(&kernel, first, &all);
        assert_eq!(own(), all.difference(&one));
        drop(kept);
        assert_eq!(own(), one);
        kernel.set_affinity(thread_id(), &all).unwrap();
    }
}
