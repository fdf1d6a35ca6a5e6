// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entering a partition that exists, by a program that does so itself (a real-time thread that
//! starts there). It takes no plan: no setting of the machine changes.
//!
//! The process is recorded as the partition's, with the group it came from, as `asmp add` does:
//! destroying the partition sends it back there. A thread that became real-time inside stays until
//! it ends or is demoted (`--force`). Of the state only the partition's list of tasks changes,
//! under the lock of all who change partitions.

use crate::apart::{self, absolute};
use crate::moving::{Hop, ended};
use crate::partition::State;
use crate::plan::Base;
use crate::rules::Origin;
use crate::state::{self, StateError};
use asmp_host::cgroup::{self, Groups, Hierarchy};
use asmp_host::store::{Lock, Store};
use asmp_host::task::{self, Member, Task, TaskId, task_path};
use asmp_host::{CpuSet, Error, ErrorKind, Kernel, Schedule, kind_of};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for another writer of the state.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What enters the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Only the thread; the others of its process go to the partition's `rest` group, on system
    /// CPUs.
    Thread,
    /// The process with all its threads, as `asmp exec` does.
    Process,
}

/// Why a task does not enter a partition. It is where it was.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("no partition {name}: {known}")]
    NoPartition { name: String, known: String },

    #[error(
        "partition {name} is recorded, but its cgroup {path} does not exist: run `asmp restore`, \
         then create it again",
        path = path.display()
    )]
    Gone { name: String, path: PathBuf },

    #[error("partition {name} ended while the process entered it: try again")]
    Ended { name: String },

    #[error(
        "process {process} ({command}) is already in partition {other}, and all threads of a \
         process that are in a partition are in one: choose {other}, or first \
         `asmp remove {other} --pid {process}`"
    )]
    InAnotherPartition { process: i32, command: String, other: String },

    #[error(
        "another asmp has been changing partitions for {} s: try again later",
        patience.as_secs()
    )]
    Busy { patience: Duration },

    #[error(
        "no permission to enter partition {name}: {cause}; run as root, or use `asmp exec {name}`"
    )]
    NotPermitted { name: String, cause: Error },

    #[error("a change of partitions was cut short: `asmp repair` undoes it; then try again")]
    Interrupted,

    #[error(
        "process {process} stays in partition {name}: {cause}; take it out with \
         `asmp remove {name} --pid {process}`"
    )]
    NotLeft { name: String, process: i32, cause: Box<EntryError> },

    #[error(transparent)]
    State(#[from] StateError),

    #[error(transparent)]
    Host(#[from] Error),
}

/// A partition that is recorded and whose cgroup exists.
#[derive(Debug, Clone)]
pub struct Entrance {
    pub name: String,
    pub cpus: CpuSet,
    pub groups: Groups,
    mount: PathBuf,
    store: Store,
}

/// The way in for a process that is not there yet: made before a fork, taken by the child.
#[derive(Debug)]
pub struct Door {
    procs: File,
}

impl Door {
    /// Moves the calling process in, with all its threads. It is not recorded: what is born inside
    /// belongs there. Async-signal-safe. Errors: the kernel's.
    pub fn enter(&mut self) -> io::Result<()> {
        self.procs.write(b"0\n").map(drop)
    }
}

/// The partition of that name. Reads files; changes nothing.
pub fn find(kernel: &dyn Kernel, store: &Store, name: &str) -> Result<Entrance, EntryError> {
    let state = state::load(store)?;
    let Ok(found) = state.partition(name) else {
        let known = state.known_names();
        return Err(EntryError::NoPartition { name: name.to_owned(), known });
    };
    let hierarchy = Hierarchy::read(kernel)?;
    let mount = hierarchy.mount.unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
    let [delegated, own] = [Some(hierarchy.service), None]
        .map(|service| Base::at(mount.clone(), service).groups(name));
    let groups = if kernel.exists(&delegated.rt) { delegated } else { own };
    if !kernel.exists(&groups.rt) {
        return Err(EntryError::Gone { name: name.to_owned(), path: groups.rt });
    }
    let (name, cpus) = (found.name.clone(), found.cpus.clone());
    Ok(Entrance { name, cpus, groups, mount, store: store.clone() })
}

fn lives(kernel: &dyn Kernel, id: TaskId) -> bool {
    task::identify(kernel, id.tid) == Some(id)
}

fn lock(store: &Store) -> Result<Lock, EntryError> {
    store.lock(PATIENCE)?.ok_or(EntryError::Busy { patience: PATIENCE })
}

/// Replaces the list of a partition's tasks. Call with the lock held.
fn edit_tasks(
    store: &Store,
    partition: &str,
    edit: impl FnOnce(&mut Vec<Member>),
) -> Result<(), EntryError> {
    let mut state: State = state::load(store)?;
    if let Some(found) = state.partitions.iter_mut().find(|known| known.name == partition) {
        edit(&mut found.tasks);
        state::save(store, &state)?;
    }
    Ok(())
}

/// The way out of a partition that was entered.
#[derive(Debug)]
pub struct Entered {
    partition: Entrance,
    process: i32,
    /// Threads of the process that were real-time when it entered.
    real_time: Vec<TaskId>,
    back: Back,
}

#[derive(Debug, PartialEq, Eq)]
enum Back {
    /// It was inside before, as it is now.
    Inside,
    /// This thread was in another group of the partition.
    Thread { tid: i32, group: PathBuf },
    /// The process came from outside, and this is its record.
    Process(Box<Member>),
}

impl Entered {
    /// Goes back to where the task was. A thread that became real-time inside leaves as
    /// SCHED_OTHER. Errors: `NotLeft`; what cannot go back stays inside, and recorded.
    pub fn leave(self, kernel: &dyn Kernel) -> Result<(), EntryError> {
        let left = self.step_aside(kernel).and_then(|()| {
            let _lock = lock(&self.partition.store)?;
            self.leave_locked(kernel)
        });
        left.map_err(|cause| EntryError::NotLeft {
            name: self.partition.name.clone(),
            process: self.process,
            cause: Box::new(cause),
        })
    }

    /// To system CPUs before the lock is asked for: who has it must not wait below a busy real-time
    /// task. The partition may be gone, and then so has the task.
    fn step_aside(&self, kernel: &dyn Kernel) -> Result<(), EntryError> {
        let Groups { domain, rest, .. } = &self.partition.groups;
        // Another program may have moved it, and then it is not ours to move.
        let is_inside = |tid: i32| {
            self.partition.place_of(kernel, tid).is_ok_and(|(_, at)| at.starts_with(domain))
        };
        match &self.back {
            Back::Thread { tid, .. } if is_inside(*tid) => {
                self.demote(kernel, Some(*tid))?;
                let _ = cgroup::move_thread(kernel, *tid, rest);
            }
            Back::Process(placed) if is_inside(placed.task.tid) => {
                self.demote(kernel, None)?;
                let _ = cgroup::move_process(kernel, placed.task.tid, rest);
            }
            _ => {}
        }
        Ok(())
    }

    fn leave_locked(&self, kernel: &dyn Kernel) -> Result<(), EntryError> {
        let Entrance { store, name, .. } = &self.partition;
        match &self.back {
            Back::Inside => Ok(()),
            Back::Thread { tid, group } => {
                edit_tasks(store, name, |tasks| {
                    let own = tasks.iter_mut().filter(|known| known.task.tid == self.process);
                    let entered = own.filter_map(|known| known.entered.as_mut());
                    entered.for_each(|threads| threads.retain(|thread| thread.tid != *tid));
                })?;
                match cgroup::move_thread(kernel, *tid, group) {
                    // The partition has ended, and has let its tasks out.
                    Err(error) if error.is_missing() => Ok(()),
                    moved => Ok(moved?),
                }
            }
            Back::Process(placed) => {
                let (process, mount) = (placed.task.tid, &self.partition.mount);
                cgroup::move_process(kernel, process, &absolute(mount, &placed.from))?;
                apart::send_home(kernel, mount, process, &placed.apart);
                edit_tasks(store, name, |tasks| tasks.retain(|known| known.task != placed.task))
            }
        }
    }

    /// Takes the policies that threads of the process (or only one) took inside.
    fn demote(&self, kernel: &dyn Kernel, only: Option<i32>) -> Result<(), EntryError> {
        for id in task::real_time_threads(kernel, self.process) {
            if self.real_time.contains(&id) || only.is_some_and(|only| only != id.tid) {
                continue;
            }
            match kernel.set_schedule(id.tid, &Schedule::Other { nice: 0 }) {
                Err(error) if kind_of(&error) != ErrorKind::Ended => {
                    let what = "take the real-time policy of";
                    return Err(Error::io(&task_path(id.tid), what)(error).into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Entrance {
    /// Opens the way in for a child. Errors: `Host`, with the path.
    pub fn door(&self) -> Result<Door, EntryError> {
        let path = self.groups.rt.join("cgroup.procs");
        let opened = OpenOptions::new().write(true).open(&path);
        let procs = opened.map_err(Error::io(&path, "open")).map_err(EntryError::Host)?;
        Ok(Door { procs })
    }

    /// Moves the thread (or its process) in, recorded, and reads back that the kernel has it there.
    /// Waits at most [`PATIENCE`] for another writer. Errors: `Busy`, `Interrupted`,
    /// `InAnotherPartition`, `NotPermitted`, and what else the kernel says, with the path.
    pub fn enter(&self, kernel: &dyn Kernel, tid: i32, join: Join) -> Result<Entered, EntryError> {
        let entered = |process, back| {
            let real_time = task::real_time_threads(kernel, process);
            Entered { partition: self.clone(), process, real_time, back }
        };
        let (task, here) = self.place_of(kernel, tid)?;
        if here == self.groups.rt {
            return Ok(entered(task.process, Back::Inside));
        }
        let held = lock(&self.store).map_err(|error| self.not_permitted(error))?;
        // Its way back would undo what is entered now.
        if state::is_interrupted(&self.store)? {
            return Err(EntryError::Interrupted);
        }
        // What was found before the lock was held may be gone, or elsewhere.
        find(kernel, &self.store, &self.name)?;
        let (task, mut here) = self.place_of(kernel, tid)?;
        let is_inside = here.starts_with(&self.groups.domain);
        let back = match is_inside {
            true if join == Join::Process => {
                self.edit_entered(kernel, &task, |entered| *entered = None)?;
                Back::Inside
            }
            true => {
                self.edit_entered(kernel, &task, |entered| {
                    let Some(threads) = entered else { return };
                    threads.retain(|other| *other != task.id && lives(kernel, *other));
                    threads.push(task.id);
                })?;
                Back::Thread { tid, group: here.clone() }
            }
            false => Back::Process(Box::new(self.record(kernel, &task, &here, join)?)),
        };
        let entered = entered(task.process, back);
        let mut moved = Ok(());
        if !is_inside {
            moved = cgroup::move_process(kernel, task.process, &self.groups.rest);
            here.clone_from(&self.groups.rest);
        }
        // On system CPUs until here. Below a busy real-time task the lock could be held for ever.
        drop(held);
        let alone = (join == Join::Thread).then_some(task.id);
        let moved = moved.and_then(|()| {
            let process = task::identify(kernel, task.process);
            let process = process.ok_or_else(|| ended(task.process))?;
            let hop = Hop { groups: &self.groups, mount: &self.mount, here: &here, process };
            hop.take(kernel, alone.as_ref().map(std::slice::from_ref), &mut |_| Ok(()))
        });
        let moved = moved.map_err(EntryError::Host).and_then(|()| self.read_back(kernel, tid));
        match moved.and_then(|()| self.still_lists(&entered.back)) {
            Ok(()) => Ok(entered),
            Err(error) => {
                // The first error is the one to know; what is still inside is recorded.
                let _ = entered.leave(kernel);
                Err(self.not_permitted(error))
            }
        }
    }

    /// The lock was free while the process moved in: is this the partition that recorded it?
    fn still_lists(&self, back: &Back) -> Result<(), EntryError> {
        let Back::Process(placed) = back else { return Ok(()) };
        let state = state::load(&self.store)?;
        match state.partition(&self.name) {
            Ok(partition) if partition.tasks.iter().any(|known| known.task == placed.task) => {
                Ok(())
            }
            _ => Err(EntryError::Ended { name: self.name.clone() }),
        }
    }

    /// The task and its group.
    fn place_of(&self, kernel: &dyn Kernel, tid: i32) -> Result<(Task, PathBuf), Error> {
        let task = task::read(kernel, tid)?;
        let group = absolute(&self.mount, &task.group);
        Ok((task, group))
    }

    /// Records the thread's process, which is outside, and returns the record.
    fn record(
        &self,
        kernel: &dyn Kernel,
        thread: &Task,
        here: &Path,
        join: Join,
    ) -> Result<Member, EntryError> {
        let process = thread.process;
        let Task { id, command, .. } = task::read(kernel, process)?;
        let partitions = self.groups.domain.parent().unwrap_or(&self.mount);
        let below = here.strip_prefix(partitions).ok().and_then(|below| below.iter().next());
        if let Some(other) = below {
            let other = other.to_string_lossy().into_owned();
            return Err(EntryError::InAnotherPartition { process, command, other });
        }
        // The thread that enters becomes real-time inside; the others stay what they are.
        let Origin { from, mut real_time, apart, .. } = apart::origin(kernel, &self.mount, thread);
        real_time.retain(|other| *other != thread.id);
        let entered = (join == Join::Thread).then(|| vec![thread.id]);
        let (alone, process, policy) = (false, None, None);
        let placed =
            Member { task: id, command, alone, process, from, apart, entered, real_time, policy };
        edit_tasks(&self.store, &self.name, |tasks| {
            tasks.retain(|known| known.task != placed.task && lives(kernel, known.process_id()));
            tasks.push(placed.clone());
        })
        .map_err(|error| self.not_permitted(error))?;
        Ok(placed)
    }

    /// Changes which threads of a recorded process entered by themselves.
    fn edit_entered(
        &self,
        kernel: &dyn Kernel,
        thread: &Task,
        mut edit: impl FnMut(&mut Option<Vec<TaskId>>),
    ) -> Result<(), EntryError> {
        let process = task::identify(kernel, thread.process);
        edit_tasks(&self.store, &self.name, |tasks| {
            let own = tasks.iter_mut().filter(|known| Some(known.task) == process);
            own.for_each(|known| edit(&mut known.entered));
        })
        .map_err(|error| self.not_permitted(error))
    }

    fn not_permitted(&self, error: EntryError) -> EntryError {
        match error {
            EntryError::Host(cause) | EntryError::State(StateError::Host(cause))
                if matches!(cause.errno(), Some(libc::EACCES | libc::EPERM)) =>
            {
                EntryError::NotPermitted { name: self.name.clone(), cause }
            }
            other => other,
        }
    }

    fn read_back(&self, kernel: &dyn Kernel, tid: i32) -> Result<(), EntryError> {
        let inside = cgroup::threads_of(kernel, &self.groups.rt)?;
        match inside.contains(&tid) {
            true => Ok(()),
            false => {
                let path = self.groups.rt.join("cgroup.threads");
                let got = format!("{inside:?}");
                Err(Error::ReadBack { path, wanted: tid.to_string(), got }.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::Linux;
    use std::fs;

    /// The state of two partitions, as it is written.
    fn state() -> String {
        let partition = |name: &str, cpus: &str| crate::Partition {
            name: name.into(),
            cpus: cpus.parse().unwrap(),
            idle_cpus: CpuSet::new(),
            smt: crate::Smt::Idle,
            mode: crate::Mode::Isolated,
            tick: crate::Tick::Off,
            strict: false,
            without: Vec::new(),
            irqs: Vec::new(),
            irq_priority: None,
            served: Vec::new(),
            tasks: Vec::new(),
            created_s: u64::MAX,
            created_by: "root: test".into(),
            owner: None,
            granted: None,
        };
        let partitions = vec![partition("motion", "3"), partition("audio", "1")];
        let state = State { schema: 1, transaction: 4, partitions, ..State::default() };
        serde_json::to_string(&state).unwrap()
    }

    /// A machine of files in which task 77 runs, partition `motion` is whole, and `audio` has lost
    /// its group.
    fn machine(base: &str) -> (tempfile::TempDir, Linux, Store) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write(
            "proc/77/task/77/stat",
            "77 (axis) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n",
        );
        write("proc/77/status", "Name:\taxis\nTgid:\t70\nCpus_allowed_list:\t0-2\n");
        write("proc/77/cgroup", "0::/user.slice\n");
        write("proc/70/status", "Name:\taxis\nTgid:\t70\nCpus_allowed_list:\t0-2\n");
        write("proc/70/cgroup", "0::/user.slice\n");
        write(
            "proc/70/task/70/stat",
            "70 (axis) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 4200 0 0\n",
        );
        write("sys/fs/cgroup/user.slice/cgroup.procs", "");
        for group in ["rt", "rest"] {
            write(&format!("sys/fs/cgroup/{base}/motion/{group}/cgroup.procs"), "");
            write(&format!("sys/fs/cgroup/{base}/motion/{group}/cgroup.threads"), "");
        }
        write("run/asmp/state.json", &state());
        let (linux, store) = (Linux::below(root.path()), Store::at(root.path().join("run/asmp")));
        (root, linux, store)
    }

    fn state_of(store: &Store) -> String {
        String::from_utf8(store.read(state::STATE).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn a_partition_is_found_where_systemd_delegates_and_where_it_does_not() {
        for base in ["asmp", "asmp.slice/asmp-holder.service"] {
            let (_root, linux, store) = machine(base);
            let found = find(&linux, &store, "motion").unwrap();
            assert_eq!(found.cpus, "3".parse().unwrap());
            assert_eq!(found.groups.rt, Path::new("/sys/fs/cgroup").join(base).join("motion/rt"));
        }
    }

    #[test]
    fn a_partition_that_does_not_exist_is_refused_with_those_that_do() {
        let (_root, linux, store) = machine("asmp");
        let text = find(&linux, &store, "absent").unwrap_err().to_string();
        assert_eq!(text, "no partition absent: known are: motion, audio");
        let empty = Store::at("/nonexistent");
        let text = find(&linux, &empty, "motion").unwrap_err().to_string();
        assert!(text.contains("there are none"), "{text}");
    }

    #[test]
    fn a_recorded_partition_without_its_group_is_refused_with_the_path() {
        let (_root, linux, store) = machine("asmp");
        let text = find(&linux, &store, "audio").unwrap_err().to_string();
        assert!(text.contains("/sys/fs/cgroup/asmp/audio/rt does not exist"), "{text}");
    }

    #[test]
    fn a_state_of_another_version_or_no_state_at_all_is_refused() {
        let (root, linux, store) = machine("asmp");
        let newer = state().replace("\"schema\":", "\"schema\":9");
        for (text, reason) in [(newer, "schema 9"), ("[".to_owned(), "EOF")] {
            fs::write(root.path().join("run/asmp/state.json"), text).unwrap();
            let error = find(&linux, &store, "motion").unwrap_err();
            let is_state = matches!(error, EntryError::State(_));
            assert!(is_state && error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn one_thread_goes_in_and_its_process_aside() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion").unwrap();
        let entered = partition.enter(&linux, 77, Join::Thread).unwrap();
        let written = |path: &str| {
            fs::read_to_string(root.path().join("sys/fs/cgroup/asmp/motion").join(path)).unwrap()
        };
        assert_eq!(written("rest/cgroup.procs"), "70");
        assert_eq!(written("rt/cgroup.threads"), "77");
        assert_eq!(written("rt/cgroup.procs"), "");
        let recorded = state::load(&store).unwrap().partitions[0].tasks[0].clone();
        assert_eq!(recorded.from, Path::new("/user.slice"));
        assert_eq!(recorded.task, TaskId { tid: 70, start_ticks: 4200 });
        assert_eq!((recorded.alone, recorded.real_time), (false, Vec::new()));
        entered.leave(&linux).unwrap();
        assert_eq!(state_of(&store), state(), "the record went with the process");
    }

    #[test]
    fn a_process_that_entered_again_or_has_ended_leaves_no_second_record() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion").unwrap();
        partition.enter(&linux, 77, Join::Thread).unwrap();
        let once = state_of(&store);
        partition.enter(&linux, 77, Join::Thread).unwrap();
        assert_eq!(state_of(&store), once);
        // The next process finds the number used again.
        let other = "70 (axis) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 9999 0 0\n";
        fs::write(root.path().join("proc/70/task/70/stat"), other).unwrap();
        partition.enter(&linux, 77, Join::Thread).unwrap();
        assert_eq!(state_of(&store), once.replace("4200", "9999"));
    }

    #[test]
    fn a_thread_whose_process_is_in_another_partition_is_refused_with_its_name() {
        let (root, linux, store) = machine("asmp");
        fs::write(root.path().join("proc/77/cgroup"), "0::/asmp/audio/rest\n").unwrap();
        let partition = find(&linux, &store, "motion").unwrap();
        let text = partition.enter(&linux, 77, Join::Thread).unwrap_err().to_string();
        assert!(text.starts_with("process 70 (axis) is already in partition audio"), "{text}");
        assert_eq!(state_of(&store), state());
    }

    #[test]
    fn a_second_thread_of_a_process_inside_goes_alone_and_comes_back_to_the_others() {
        let (root, linux, store) = machine("asmp");
        fs::write(root.path().join("proc/77/cgroup"), "0::/asmp/motion/rest\n").unwrap();
        let partition = find(&linux, &store, "motion").unwrap();
        let entered = partition.enter(&linux, 77, Join::Thread).unwrap();
        let rest = root.path().join("sys/fs/cgroup/asmp/motion/rest/cgroup.threads");
        assert_eq!(fs::read_to_string(&rest).unwrap(), "");
        entered.leave(&linux).unwrap();
        assert_eq!(fs::read_to_string(&rest).unwrap(), "77");
    }

    #[test]
    fn a_move_that_the_kernel_does_not_show_is_undone_and_refused() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion").unwrap();
        // A real kernel would show the process in cgroup.threads; files do not.
        let error = partition.enter(&linux, 77, Join::Process).unwrap_err();
        assert!(matches!(error, EntryError::Host(Error::ReadBack { .. })), "{error}");
        let home =
            fs::read_to_string(root.path().join("sys/fs/cgroup/user.slice/cgroup.procs")).unwrap();
        assert_eq!(home, "70", "the process went home");
        assert_eq!(state_of(&store), state(), "and its record is gone");
    }

    #[test]
    fn a_thread_that_is_inside_already_stays() {
        let (root, linux, store) = machine("asmp");
        fs::write(root.path().join("proc/77/cgroup"), "0::/asmp/motion/rt\n").unwrap();
        let partition = find(&linux, &store, "motion").unwrap();
        let entered = partition.enter(&linux, 77, Join::Thread).unwrap();
        assert_eq!(entered.back, Back::Inside);
        let untouched = root.path().join("sys/fs/cgroup/asmp/motion/rest/cgroup.procs");
        assert_eq!(fs::read_to_string(untouched).unwrap(), "");
    }
}
