// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a request to a running real-time thread: check, enter the partition, set the affinity, lock
//! and touch memory, and set the policy last. If a step fails, the steps before it are undone.

use crate::thread::control::{Control, Me, Task};
use crate::thread::memory::{self, Locked};
use crate::thread::refusal::{AdmissionLimit, Confined, Refusal, Share, check_cpus, check_policy};
use asmp_host::store::Store;
use asmp_host::{Bandwidth, Cpu, CpuSet, Kernel, Linux, Schedule, clock, facts, sched, task};
use asmp_shield::RUN_DIR;
use asmp_shield::membership::{self, Entered, Entrance, EntryError, Join};
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const DEFAULT_STACK_BYTES: usize = 256 << 10;

/// The properties of a real-time thread. Defaults: any CPU, all memory of the process locked, a
/// stack of 256 KiB (touched), no heap touched, no partition.
#[derive(Debug, Clone)]
pub struct RealTime {
    /// `None`: the policy of its creator.
    policy: Option<Schedule>,
    cpus: Option<CpuSet>,
    stack_bytes: usize,
    heap_bytes: usize,
    locked: bool,
    partition: Option<(String, Join)>,
}

impl RealTime {
    /// Any real-time policy: see [`RealTime::fifo`], [`RealTime::rr`] and [`RealTime::deadline`].
    pub fn with(policy: Schedule) -> Self {
        Self { policy: Some(policy), ..Self::without_policy() }
    }

    /// No real-time policy: to try a program without the permission for one.
    pub fn without_policy() -> Self {
        Self {
            policy: None,
            cpus: None,
            stack_bytes: DEFAULT_STACK_BYTES,
            heap_bytes: 0,
            locked: true,
            partition: None,
        }
    }

    /// SCHED_FIFO, priority 1 to 99.
    pub fn fifo(priority: u32) -> Self {
        Self::with(Schedule::Fifo { priority })
    }

    /// SCHED_RR, priority 1 to 99.
    pub fn rr(priority: u32) -> Self {
        Self::with(Schedule::Rr { priority })
    }

    /// SCHED_DEADLINE: `runtime` in every `period`, finished `deadline` after each release. The
    /// kernel admits or refuses it.
    pub fn deadline(runtime: Duration, deadline: Duration, period: Duration) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (runtime_ns, deadline_ns, period_ns) = (ns(runtime), ns(deadline), ns(period));
        Self::with(Schedule::Deadline { runtime_ns, deadline_ns, period_ns })
    }

    /// Runs on this CPU only.
    pub fn cpu(self, cpu: Cpu) -> Self {
        self.cpus([cpu].into_iter().collect())
    }

    /// Runs on these CPUs only.
    pub fn cpus(mut self, cpus: CpuSet) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Size of the stack in bytes, at least the minimum of the system. Every page is touched before
    /// the work starts.
    pub fn stack(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Touches `bytes` bytes of heap before the work starts. From then on freed memory stays in the
    /// process (mallopt).
    pub fn heap(mut self, bytes: usize) -> Self {
        self.heap_bytes = bytes;
        self
    }

    /// Does not lock the memory of the process: the kernel may reclaim pages, which then fault.
    pub fn unlocked(mut self) -> Self {
        self.locked = false;
        self
    }

    /// Enters an existing partition with this thread only. The other threads of the process run on
    /// system CPUs.
    ///
    /// A program does not create partitions, because it could not remove them if it crashed. `asmp
    /// run --name NAME --cpus N -- PROGRAM` creates one while the program runs; `asmp create`
    /// creates one that stays.
    pub fn partition(mut self, name: &str) -> Self {
        self.partition = Some((name.to_owned(), Join::Thread));
        self
    }

    /// Enters an existing partition with the whole process, as `asmp exec` does.
    pub fn process_in_partition(mut self, name: &str) -> Self {
        self.partition = Some((name.to_owned(), Join::Process));
        self
    }

    /// Starts `work` on a new thread of that name (the kernel shows its first 15 bytes). Returns
    /// when the thread is set up, or with the reason why it could not be.
    ///
    /// Allocates, reads /proc, and blocks until the set-up is done: not for real-time sections. In
    /// debug builds the thread prints one line to stderr at its end if a section faulted, slept or
    /// was preempted.
    pub fn start<R, F>(self, name: &str, work: F) -> Result<Task<R>, Refusal>
    where
        R: Send + 'static,
        F: FnOnce(&Me) -> R + Send + 'static,
    {
        if name.contains('\0') {
            return Err(Refusal::Spawn(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the name contains a NUL",
            )));
        }
        let checked = self.check(&Linux::new(), &Store::at(RUN_DIR))?;
        let control = Arc::new(Control::new());
        let me = Me::new(Arc::clone(&control));
        let (report, reported) = mpsc::sync_channel(1);
        let own_name = name.to_owned();
        let body = move || {
            let ready = checked.set_up(&Linux::new(), Stack::Whole).map(|()| clock::thread_id());
            let refused = ready.is_err();
            // The starting thread waits for this message.
            let _ = report.send(ready);
            if refused {
                return None;
            }
            let result = work(&me);
            if let Some(warning) = me.warning(&own_name).filter(|_| cfg!(debug_assertions)) {
                eprintln!("asmp-rt: {warning}");
            }
            Some(result)
        };
        let builder = thread::Builder::new().name(name.to_owned()).stack_size(self.stack_bytes);
        let thread = builder.spawn(body).map_err(Refusal::Spawn)?;
        let gone = || Refusal::Spawn(io::Error::other("the thread ended during its set-up"));
        match reported.recv().map_err(|_| gone())? {
            Ok(tid) => Ok(Task::new(control, tid, thread)),
            Err(refusal) => {
                let _ = thread.join();
                Err(refusal)
            }
        }
    }

    /// Sets up the calling thread. Of its stack, `stack` bytes from here on are touched. Cost and
    /// errors are those of [`RealTime::start`].
    pub fn here(&self) -> Result<(), Refusal> {
        let kernel = Linux::new();
        let checked = self.check(&kernel, &Store::at(RUN_DIR))?;
        checked.set_up(&kernel, Stack::Part(self.stack_bytes))
    }

    /// All checks that change nothing.
    fn check(&self, kernel: &dyn Kernel, store: &Store) -> Result<Checked, Refusal> {
        self.policy.as_ref().map_or(Ok(()), check_policy)?;
        if let Some(cpus) = &self.cpus {
            let list = |name| facts::cpu_list(kernel, name);
            check_cpus(cpus, &list("possible")?, &list("online")?)?;
        }
        let partition = match &self.partition {
            None => None,
            Some((name, join)) => {
                let found = membership::find(kernel, store, name)
                    .map_err(|error| entry_refused(error, self.cpus.as_ref()))?;
                if let Some(cpus) = self.cpus.as_ref().filter(|cpus| !cpus.is_subset(&found.cpus)) {
                    let cpus = cpus.difference(&found.cpus);
                    return Err(Refusal::OutsidePartition {
                        cpus,
                        partition: name.clone(),
                        has: found.cpus,
                    });
                }
                Some((found, *join))
            }
        };
        Ok(Checked { request: self.clone(), partition })
    }
}

/// How much of its stack a thread touches.
enum Stack {
    Whole,
    Part(usize),
}

/// A request that passed all checks.
#[derive(Debug)]
struct Checked {
    request: RealTime,
    partition: Option<(Entrance, Join)>,
}

/// The changes so far, to undo.
#[derive(Default)]
struct Changed {
    entered: Option<Entered>,
    affinity: Option<CpuSet>,
    locked: Option<Locked>,
}

impl Checked {
    /// Sets up the calling thread, or leaves it as it was.
    fn set_up(&self, kernel: &dyn Kernel, stack: Stack) -> Result<(), Refusal> {
        let mut changed = Changed::default();
        let mut result = self.steps(kernel, stack, &mut changed);
        if result.is_err() {
            if let Some(locked) = changed.locked {
                locked.undo();
            }
            if let Some(entered) = changed.entered {
                // A thread that is still inside must know.
                if let Err(error) = entered.leave(kernel) {
                    result = Err(error.into());
                }
            }
            if let Some(cpus) = changed.affinity {
                let _ = sched::confine(0, &cpus);
            }
        }
        result
    }

    fn steps(
        &self,
        kernel: &dyn Kernel,
        stack: Stack,
        changed: &mut Changed,
    ) -> Result<(), Refusal> {
        let RealTime { policy, cpus, heap_bytes, locked, .. } = &self.request;
        let tid = clock::thread_id();
        if let Some((partition, join)) = &self.partition {
            let entered = partition.enter(kernel, tid, *join);
            let entered = entered.map_err(|error| entry_refused(error, Some(&partition.cpus)))?;
            changed.entered = Some(entered);
        }
        if let Some(cpus) = cpus {
            let allowed = task::read(kernel, tid)?.allowed_cpus;
            sched::confine(0, cpus).map_err(|_| Refusal::CpusNotAllowed {
                cpus: cpus.clone(),
                allowed: allowed.clone(),
            })?;
            changed.affinity = Some(allowed);
        }
        if *locked {
            changed.locked = Some(Locked::all(kernel)?);
        }
        memory::prefault_heap(*heap_bytes)?;
        let at_most = match stack {
            Stack::Whole => usize::MAX,
            Stack::Part(bytes) => bytes,
        };
        memory::prefault_stack(at_most).map_err(Refusal::MemoryLock)?;
        match *policy {
            None => Ok(()),
            Some(policy) => sched::set(0, &policy)
                .map_err(|cause| self.policy_refused(kernel, tid, policy, cause)),
        }
    }

    fn policy_refused(
        &self,
        kernel: &dyn Kernel,
        tid: i32,
        policy: Schedule,
        cause: io::Error,
    ) -> Refusal {
        match (policy, cause.raw_os_error()) {
            (Schedule::Deadline { .. }, Some(libc::EPERM)) => Refusal::DeadlineNotPermitted {
                policy,
                confined: Confined(self.request.cpus.clone()),
            },
            (Schedule::Deadline { .. }, Some(libc::EINVAL)) => Refusal::DeadlineTimes(policy),
            (Schedule::Deadline { runtime_ns, period_ns, .. }, Some(libc::EBUSY)) => {
                let needs = Share { runtime_ns, period_ns };
                match admission_limit(kernel, tid) {
                    Ok(bound) => Refusal::NotAdmitted { policy, needs, bound },
                    Err(refusal) => refusal,
                }
            }
            (_, Some(libc::EPERM)) => {
                let (limit, hard) = memory::limits(libc::RLIMIT_RTPRIO);
                Refusal::NoPermission { policy, limit, hard }
            }
            _ => Refusal::Policy { policy, cause },
        }
    }
}

/// An entry that failed. A partition that does not exist is refused with the commands that create
/// one, on the `wanted` CPUs.
fn entry_refused(error: EntryError, wanted: Option<&CpuSet>) -> Refusal {
    match error {
        EntryError::NoPartition { name, known } => {
            let cpus = wanted.map_or_else(|| "N".to_owned(), ToString::to_string);
            Refusal::NoPartition { name, known, cpus }
        }
        other => other.into(),
    }
}

/// The admission limit of the kernel on the CPUs that this thread may use.
fn admission_limit(kernel: &dyn Kernel, tid: i32) -> Result<AdmissionLimit, Refusal> {
    let cpus = task::read(kernel, tid)?.allowed_cpus.len();
    let Bandwidth { runtime_us, period_us } = Bandwidth::read(kernel)?;
    Ok(AdmissionLimit::of(runtime_us, period_us, cpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine() -> (tempfile::TempDir, Linux, Store) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/possible", "0-7\n");
        write("sys/devices/system/cpu/online", "0-3\n");
        write("proc/self/mountinfo", "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/asmp/motion/rt/cgroup.threads", "");
        write(
            "run/asmp/state.json",
            r#"{"schema":1,"transaction":1,"originals":{},"refused":{},"partitions":[{"name":"motion",
                "cpus":"2-3","idle_cpus":"","smt":"idle","tick":"off","strict":false,"irqs":[],
                "irq_priority":null,"served":[],"tasks":[],"created_s":0,"created_by":"root: test",
                "owner":null}]}"#,
        );
        write("proc/5/task/5/stat", "5 (axis) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n");
        write("proc/5/status", "Tgid:\t5\nCpus_allowed_list:\t0-2\n");
        write("proc/5/cgroup", "0::/\n");
        write("proc/sys/kernel/sched_rt_runtime_us", "950000\n");
        write("proc/sys/kernel/sched_rt_period_us", "1000000\n");
        let (linux, store) = (Linux::below(root.path()), Store::at(root.path().join("run/asmp")));
        (root, linux, store)
    }

    fn refusal(request: RealTime) -> String {
        let (_root, linux, store) = machine();
        request.check(&linux, &store).unwrap_err().to_string()
    }

    #[test]
    fn what_can_be_known_before_is_refused_before() {
        assert!(refusal(RealTime::fifo(100)).starts_with("fifo:100 is not a real-time policy"));
        assert!(refusal(RealTime::fifo(1).cpu(9)).starts_with("CPU 9 does not exist"));
        assert!(refusal(RealTime::fifo(1).cpu(5)).starts_with("CPU 5 is offline"));
        let text = refusal(RealTime::fifo(1).partition("x"));
        assert!(text.starts_with("no partition x: known are: motion; create it first"), "{text}");
        assert!(text.contains("asmp create x --cpus N"), "{text}");
        let text = refusal(RealTime::fifo(1).partition("x").cpu(2));
        assert!(text.ends_with("asmp run --name x --cpus 2 -- PROGRAM"), "{text}");
        let outside = RealTime::fifo(1).partition("motion").cpus("1-2".parse().unwrap());
        assert_eq!(refusal(outside), "CPU 1 does not belong to partition motion, which has 2-3");
    }

    #[test]
    fn a_good_request_passes_the_check() {
        let (_root, linux, store) = machine();
        let good = RealTime::rr(5).cpu(3).process_in_partition("motion");
        assert!(good.check(&linux, &store).unwrap().partition.is_some());
    }

    #[test]
    fn the_kernels_answers_to_a_policy_become_their_own_refusals_with_numbers() {
        let (_root, linux, store) = machine();
        let refused = |request: &RealTime, errno| {
            let checked = request.check(&linux, &store).unwrap();
            let error = io::Error::from_raw_os_error(errno);
            checked.policy_refused(&linux, 5, request.policy.unwrap(), error).to_string()
        };
        let ms = Duration::from_millis;
        let deadline = RealTime::deadline(ms(9), ms(10), ms(10));
        let text = refused(&deadline, libc::EBUSY);
        assert!(text.contains("needs 90.00 % (9000000 of 10000000 ns)"), "{text}");
        assert!(text.contains("is 95.00 %") && text.contains("each of 3 CPUs"), "{text}");
        assert!(refused(&deadline.cpu(1), libc::EPERM).contains("(requested: CPU 1 only)"));
        assert!(
            refused(&RealTime::fifo(9), libc::EPERM)
                .contains("RLIMIT_RTPRIO allows priorities up to")
        );
        assert!(refused(&RealTime::fifo(9), libc::EINVAL).starts_with("the kernel refuses fifo:9"));
    }
}
