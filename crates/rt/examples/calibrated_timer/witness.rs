// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who had the CPU between two activations: a thread under SCHED_IDLE that never sleeps, the clocks
//! of its and our CPU time, and the kernel's count of switches.
//!
//! The witness also keeps the CPU from idling, as `idle=poll` would (a partition does it by
//! pm_qos_resume_latency_us, where there are idle states). A virtual CPU that idles is given back
//! to the hypervisor, and how long it takes to come again no calibration takes out.

use asmp_host::clock::{monotonic_ns, thread_id};
use asmp_host::{CpuSet, Kernel, Linux, Schedule};
use asmp_rt::thread::clock_gethrtime;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;

/// When the witness last ran. It is preempted on the one CPU that both use, so no ordering is
/// needed.
static LAST_NS: AtomicU64 = AtomicU64::new(0);

/// From so much steal on a sample counts as disturbed.
const STEAL_NS: i64 = 10_000;
/// The machine executed nothing for so long: no handler of an interrupt takes a millisecond, only
/// who runs the machine.
const PAUSE_NS: u64 = 1_000_000;

pub struct Witness {
    /// CPU time of the witness.
    clock: libc::clockid_t,
    /// Switches of the CPU.
    switches: File,
    last: Reading,
}

#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    now_ns: u64,
    own_ns: u64,
    witness_ns: u64,
    switches: u64,
}

/// What took the CPU from everybody between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Nothing,
    Steal,
    Pause,
}

impl Witness {
    /// It ends with the program. Errors: SCHED_IDLE or the count of switches (CAP_PERFMON) is not
    /// permitted.
    pub fn start(cpu: u32) -> io::Result<Self> {
        let switches = switches_of(cpu)?;
        let (ready, wait) = channel();
        std::thread::spawn(move || {
            let linux = Linux::new();
            let cpus: CpuSet = [cpu].into_iter().collect();
            let tid = thread_id();
            let bound = linux
                .set_affinity(tid, &cpus)
                .and_then(|()| linux.set_schedule(tid, &Schedule::Idle));
            let mut clock = 0;
            // SAFETY: asks for nothing but this thread's own handle.
            let own = unsafe { libc::pthread_self() };
            // SAFETY: the handle is of a thread that lives, and one number is written.
            unsafe { libc::pthread_getcpuclockid(own, &raw mut clock) };
            let _ = ready.send(bound.map(|()| clock).map_err(|error| error.to_string()));
            loop {
                LAST_NS.store(monotonic_ns(), Relaxed);
            }
        });
        let clock = wait.recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
        let mut witness = Self { clock, switches, last: Reading::default() };
        witness.last = witness.read()?;
        Ok(witness)
    }

    /// What took the CPU since the call before. Three system calls.
    pub fn taken(&mut self) -> Taken {
        let unseen_ns = monotonic_ns().saturating_sub(LAST_NS.load(Relaxed));
        let Ok(now) = self.read() else { return Taken::Nothing };
        let before = std::mem::replace(&mut self.last, now);
        let witness_ns = now.witness_ns - before.witness_ns;
        // To the witness and back: nobody else was there. Otherwise nothing can be told, and the
        // sample stands.
        if now.switches - before.switches != 2 || witness_ns == 0 {
            return Taken::Nothing;
        }
        let all_ns = (now.now_ns - before.now_ns) as i64;
        let accounted_ns = (now.own_ns - before.own_ns + witness_ns) as i64;
        match () {
            () if unseen_ns > PAUSE_NS => Taken::Pause,
            // The kernel charges tasks for no time that the hypervisor says it took.
            () if all_ns - accounted_ns > STEAL_NS => Taken::Steal,
            () => Taken::Nothing,
        }
    }

    fn read(&mut self) -> io::Result<Reading> {
        let mut count = [0; 8];
        self.switches.read_exact(&mut count)?;
        Ok(Reading {
            now_ns: monotonic_ns(),
            own_ns: clock_gethrtime(libc::CLOCK_THREAD_CPUTIME_ID)? as u64,
            witness_ns: clock_gethrtime(self.clock)? as u64,
            switches: u64::from_ne_bytes(count),
        })
    }
}

/// A counter of all switches on a CPU (`perf_event_open(2)`). Errors: EACCES, without CAP_PERFMON;
/// ENOENT.
fn switches_of(cpu: u32) -> io::Result<File> {
    const SOFTWARE: u32 = 1;
    const CONTEXT_SWITCHES: u64 = 3;
    /// `struct perf_event_attr` as its first version had it (linux/perf_event.h).
    #[repr(C)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        rest: [u64; 6],
    }
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind: SOFTWARE, size, config: CONTEXT_SWITCHES, rest: [0; 6] };
    // SAFETY: the kernel reads `size` bytes of `attributes`, which outlives the call; the rest are
    // numbers.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu as i32, -1, 0u64)
    };
    match fd {
        // SAFETY: a descriptor that the kernel has just made, and nobody else has.
        0.. => Ok(unsafe { File::from_raw_fd(fd as i32) }),
        _ => Err(io::Error::last_os_error()),
    }
}
