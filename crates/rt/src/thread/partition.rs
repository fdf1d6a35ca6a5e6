//! Starting inside a partition that exists: found in /run/asmp/state.json, entered through its cgroup.
//!
//! The process is recorded as the partition's, with the group it came from ([`crate::thread::home`]), as `asmp add` does:
//! destroying the partition sends it back there, and a thread that became real-time inside stays until it is ended or
//! demoted (`--force`). See `crates/host/src/cgroup.rs` for the groups.

use crate::thread::home;
use crate::thread::refusal::Refusal;
use asmp_host::cgroup::{self, Groups, Hierarchy};
use asmp_host::store::Store;
use asmp_host::task::{self, Placed, Task, TaskId};
use asmp_host::{CpuSet, Error, Kernel, systemd};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The layout of the state that this file reads.
const STATE_SCHEMA: u32 = 1;

/// Where `asmp` keeps its state.
pub const STORE: &str = "/run/asmp";

/// Who goes into the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Only the thread; the others of its process go to the partition's `rest` group, on system CPUs.
    Thread,
    /// The process with all its threads, as `asmp exec` does.
    Process,
}

/// What of the state is of interest here.
#[derive(Deserialize)]
struct State {
    schema: u32,
    partitions: Vec<Recorded>,
}

#[derive(Deserialize)]
struct Recorded {
    name: String,
    cpus: CpuSet,
}

/// A partition that is recorded and whose cgroup is there.
#[derive(Debug, Clone)]
pub struct Partition {
    pub name: String,
    pub cpus: CpuSet,
    groups: Groups,
    mount: PathBuf,
    store: Store,
}

/// The partition of that name; `wanted` CPUs are only for the words of a refusal. Reads files; changes nothing.
pub fn find(
    kernel: &dyn Kernel,
    store: &Store,
    name: &str,
    wanted: Option<&CpuSet>,
) -> Result<Partition, Refusal> {
    let recorded = recorded(store)?;
    let Some(found) = recorded.iter().find(|partition| partition.name == name) else {
        let known = match recorded.is_empty() {
            true => "there are none".to_owned(),
            false => recorded.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
        };
        let cpus = wanted.map_or_else(|| "N".to_owned(), ToString::to_string);
        return Err(Refusal::NoPartition { name: name.to_owned(), known, cpus });
    };
    let hierarchy = Hierarchy::read(kernel)?;
    let mount = hierarchy.mount.unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
    let bases = [mount.join(systemd::SLICE).join(systemd::SERVICE), mount.join(cgroup::GROUP)];
    let [delegated, own] = bases.map(|base| Groups::of(&base, name));
    let groups = if kernel.exists(&delegated.rt) { delegated } else { own };
    if !kernel.exists(&groups.rt) {
        return Err(Refusal::PartitionGone { name: name.to_owned(), path: groups.rt });
    }
    let (name, cpus) = (found.name.clone(), found.cpus.clone());
    Ok(Partition { name, cpus, groups, mount, store: store.clone() })
}

fn recorded(store: &Store) -> Result<Vec<Recorded>, Refusal> {
    let Some(bytes) = store.read(home::STATE)? else { return Ok(Vec::new()) };
    let bad = |reason: String| Refusal::BadState { path: store.path(home::STATE), reason };
    let state: State = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    match state.schema {
        STATE_SCHEMA => Ok(state.partitions),
        other => Err(bad(format!("its schema is {other}, not {STATE_SCHEMA}"))),
    }
}

/// The way out of a partition that was entered.
#[derive(Debug)]
pub struct Entered {
    partition: Partition,
    back: Back,
}

#[derive(Debug, PartialEq, Eq)]
enum Back {
    /// It was inside before, as it is now.
    Inside,
    /// This thread was in another group of the partition.
    Thread { tid: i32, group: PathBuf },
    /// The process came from there, and is recorded.
    Process { id: TaskId, home: PathBuf },
}

impl Entered {
    /// Goes back to where the process was; what cannot go back stays inside, and recorded.
    pub fn undo(self, kernel: &dyn Kernel) {
        if let Ok(_lock) = home::lock(&self.partition.store) {
            self.undo_locked(kernel);
        }
    }

    fn undo_locked(self, kernel: &dyn Kernel) {
        match self.back {
            Back::Inside => {}
            Back::Thread { tid, group } => _ = cgroup::move_thread(kernel, tid, &group),
            Back::Process { id, home } => {
                if cgroup::move_process(kernel, id.tid, &home).is_ok() {
                    let _ = home::forget(&self.partition.store, &self.partition.name, id);
                }
            }
        }
    }
}

impl Partition {
    /// Moves the thread (or its process) in, recorded, and reads back that the kernel has it there. Waits for an
    /// `asmp` that changes partitions. Errors: `Busy`, `InAnotherPartition`, no permission, and whatever else the kernel
    /// says with the file's path.
    pub fn enter(&self, kernel: &dyn Kernel, tid: i32, join: Join) -> Result<Entered, Refusal> {
        let task = task::read(kernel, tid)?;
        let here = self.mount.join(task.group.strip_prefix("/").unwrap_or(&task.group));
        let entered = |back| Entered { partition: self.clone(), back };
        if here == self.groups.rt {
            return Ok(entered(Back::Inside));
        }
        let _lock = home::lock(&self.store).map_err(|refusal| self.not_permitted(refusal))?;
        // What was found before the lock was had may be gone.
        find(kernel, &self.store, &self.name, Some(&self.cpus))?;
        let back = match self.is_inside(&here) {
            true if join == Join::Process => Back::Inside,
            true => Back::Thread { tid, group: here },
            false => Back::Process { id: self.record(kernel, &task, &here)?, home: here },
        };
        let process = task.process;
        let moved = match (join, &back) {
            (Join::Process, _) => cgroup::move_process(kernel, process, &self.groups.rt),
            // A single thread moves only within its threaded domain, so the process comes along into `rest`.
            (Join::Thread, Back::Process { .. }) => cgroup::move_process(kernel, process, &self.groups.rest)
                .and_then(|()| cgroup::move_thread(kernel, tid, &self.groups.rt)),
            (Join::Thread, _) => cgroup::move_thread(kernel, tid, &self.groups.rt),
        };
        let entered = entered(back);
        match moved.map_err(Refusal::Host).and_then(|()| self.read_back(kernel, tid)) {
            Ok(()) => Ok(entered),
            Err(refusal) => {
                entered.undo_locked(kernel);
                Err(self.not_permitted(refusal))
            }
        }
    }

    fn is_inside(&self, group: &Path) -> bool {
        group.starts_with(&self.groups.domain)
    }

    /// Records the thread's process, which is outside, and returns who it is. Refused where another partition has it.
    fn record(&self, kernel: &dyn Kernel, task: &Task, here: &Path) -> Result<TaskId, Refusal> {
        let process = task.process;
        let Task { id, command, .. } = task::read(kernel, process)?;
        let partitions = self.groups.domain.parent().unwrap_or(&self.mount);
        if let Some(other) = here.strip_prefix(partitions).ok().and_then(|below| below.iter().next()) {
            let other = other.to_string_lossy().into_owned();
            return Err(Refusal::InAnotherPartition { process, command, other });
        }
        // The thread that enters becomes inside what it is to be; the others stay what they are.
        let real_time = task::real_time_threads(kernel, process);
        let real_time = real_time.into_iter().filter(|thread| *thread != task.id).collect();
        let placed = Placed { task: id, command, alone: false, from: task.group.clone(), real_time, policy: None };
        home::record(kernel, &self.store, &self.name, placed)
            .map_err(|refusal| self.not_permitted(refusal))?;
        Ok(id)
    }

    fn not_permitted(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Host(cause) if matches!(cause.errno(), Some(libc::EACCES | libc::EPERM)) => {
                Refusal::PartitionNotPermitted { name: self.name.clone(), cause }
            }
            other => other,
        }
    }

    fn read_back(&self, kernel: &dyn Kernel, tid: i32) -> Result<(), Refusal> {
        let inside = cgroup::threads_of(kernel, &self.groups.rt)?;
        let path = || Path::new(&self.groups.rt).join("cgroup.threads");
        match inside.contains(&tid) {
            true => Ok(()),
            false => {
                Err(Error::ReadBack { path: path(), wanted: tid.to_string(), got: format!("{inside:?}") }
                    .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::Linux;
    use std::fs;

    const STATE: &str = r#"{"schema":1,"transaction":4,"partitions":[{"name":"motion","cpus":"3","irqs":[],"tasks":[]},{"name":"audio","cpus":"1","tasks":[]}]}"#;

    /// A machine of files in which task 77 runs, partition `motion` is whole, and `audio` has lost its group.
    fn machine(base: &str) -> (tempfile::TempDir, Linux, Store) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("proc/77/stat", "77 (axis) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n");
        write("proc/77/status", "Name:\taxis\nTgid:\t70\nCpus_allowed_list:\t0-2\n");
        write("proc/77/cgroup", "0::/user.slice\n");
        write("proc/70/status", "Name:\taxis\nTgid:\t70\nCpus_allowed_list:\t0-2\n");
        write("proc/70/cgroup", "0::/user.slice\n");
        write("proc/70/stat", "70 (axis) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 4200 0 0\n");
        write("sys/fs/cgroup/user.slice/cgroup.procs", "");
        for group in ["rt", "rest"] {
            write(&format!("sys/fs/cgroup/{base}/motion/{group}/cgroup.procs"), "");
            write(&format!("sys/fs/cgroup/{base}/motion/{group}/cgroup.threads"), "");
        }
        write("run/asmp/state.json", STATE);
        let (linux, store) = (Linux::below(root.path()), Store::at(root.path().join("run/asmp")));
        (root, linux, store)
    }

    /// The same, its fields in the order in which they are written again.
    const STATE_AS_WRITTEN: &str = r#"{"partitions":[{"cpus":"3","irqs":[],"name":"motion","tasks":[]},{"cpus":"1","name":"audio","tasks":[]}],"schema":1,"transaction":4}"#;

    fn state_of(store: &Store) -> String {
        String::from_utf8(store.read(home::STATE).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn a_partition_is_found_where_systemd_delegates_and_where_it_does_not() {
        for base in ["asmp", "asmp.slice/asmp.service"] {
            let (_root, linux, store) = machine(base);
            let found = find(&linux, &store, "motion", None).unwrap();
            assert_eq!(found.cpus, "3".parse().unwrap());
            assert_eq!(found.groups.rt, Path::new("/sys/fs/cgroup").join(base).join("motion/rt"));
        }
    }

    #[test]
    fn a_partition_that_does_not_exist_is_refused_with_those_that_do() {
        let (_root, linux, store) = machine("asmp");
        let text = find(&linux, &store, "nobody", None).unwrap_err().to_string();
        assert!(text.starts_with("no partition nobody: known are: motion, audio; make it first"), "{text}");
        let wanted = "2".parse().unwrap();
        let text = find(&linux, &store, "nobody", Some(&wanted)).unwrap_err().to_string();
        assert!(text.ends_with("asmp run --name nobody --cpus 2 -- PROGRAM"), "{text}");
        let empty = Store::at("/nonexistent");
        let text = find(&linux, &empty, "motion", None).unwrap_err().to_string();
        assert!(text.contains("there are none"), "{text}");
    }

    #[test]
    fn a_recorded_partition_without_its_group_is_refused_with_the_path() {
        let (_root, linux, store) = machine("asmp");
        let text = find(&linux, &store, "audio", None).unwrap_err().to_string();
        assert!(text.contains("/sys/fs/cgroup/asmp/audio/rt is not there"), "{text}");
    }

    #[test]
    fn a_state_of_another_version_or_no_state_at_all_is_refused() {
        let (root, linux, store) = machine("asmp");
        for (text, reason) in [(STATE.replace(":1,", ":2,"), "schema is 2"), ("[".to_owned(), "EOF")] {
            fs::write(root.path().join("run/asmp/state.json"), text).unwrap();
            let error = find(&linux, &store, "motion", None).unwrap_err();
            assert!(
                matches!(error, Refusal::BadState { .. }) && error.to_string().contains(reason),
                "{error}"
            );
        }
    }

    #[test]
    fn one_thread_goes_in_and_its_process_aside() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion", None).unwrap();
        let entered = partition.enter(&linux, 77, Join::Thread).unwrap();
        let written = |path: &str| {
            fs::read_to_string(root.path().join("sys/fs/cgroup/asmp/motion").join(path)).unwrap()
        };
        assert_eq!(written("rest/cgroup.procs"), "70");
        assert_eq!(written("rt/cgroup.threads"), "77");
        assert_eq!(written("rt/cgroup.procs"), "");
        assert!(
            state_of(&store)
                .contains(r#""from":"/user.slice","real_time":[],"task":{"start_ticks":4200,"tid":70}"#)
        );
        entered.undo(&linux);
        assert_eq!(state_of(&store), STATE_AS_WRITTEN, "the record went with the process");
    }

    #[test]
    fn a_process_that_entered_again_or_has_ended_leaves_no_second_record() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion", None).unwrap();
        partition.enter(&linux, 77, Join::Thread).unwrap();
        let once = state_of(&store);
        partition.enter(&linux, 77, Join::Thread).unwrap();
        assert_eq!(state_of(&store), once);
        // The next process finds the number used again.
        let other = "70 (axis) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 9999 0 0\n";
        fs::write(root.path().join("proc/70/stat"), other).unwrap();
        partition.enter(&linux, 77, Join::Thread).unwrap();
        assert_eq!(state_of(&store), once.replace("4200", "9999"));
    }

    #[test]
    fn a_thread_whose_process_is_in_another_partition_is_refused_with_its_name() {
        let (root, linux, store) = machine("asmp");
        fs::write(root.path().join("proc/77/cgroup"), "0::/asmp/audio/rest\n").unwrap();
        let partition = find(&linux, &store, "motion", None).unwrap();
        let text = partition.enter(&linux, 77, Join::Thread).unwrap_err().to_string();
        assert!(text.starts_with("process 70 (axis) is in partition audio already"), "{text}");
        assert_eq!(fs::read_to_string(root.path().join("run/asmp/state.json")).unwrap(), STATE);
    }

    #[test]
    fn a_second_thread_of_a_process_inside_goes_alone_and_comes_back_to_the_others() {
        let (root, linux, store) = machine("asmp");
        fs::write(root.path().join("proc/77/cgroup"), "0::/asmp/motion/rest\n").unwrap();
        let partition = find(&linux, &store, "motion", None).unwrap();
        let entered = partition.enter(&linux, 77, Join::Thread).unwrap();
        let rest = root.path().join("sys/fs/cgroup/asmp/motion/rest/cgroup.threads");
        assert_eq!(fs::read_to_string(&rest).unwrap(), "");
        entered.undo(&linux);
        assert_eq!(fs::read_to_string(&rest).unwrap(), "77");
    }

    #[test]
    fn a_move_that_the_kernel_does_not_show_is_undone_and_refused() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion", None).unwrap();
        // A process moved whole would appear in cgroup.threads of a real kernel; files do not do that.
        let error = partition.enter(&linux, 77, Join::Process).unwrap_err();
        assert!(matches!(error, Refusal::Host(Error::ReadBack { .. })), "{error}");
        let home = fs::read_to_string(root.path().join("sys/fs/cgroup/user.slice/cgroup.procs")).unwrap();
        assert_eq!(home, "70", "the process went home");
        assert_eq!(state_of(&store), STATE_AS_WRITTEN, "and its record is gone");
    }

    #[test]
    fn a_thread_that_is_inside_already_stays() {
        let (root, linux, store) = machine("asmp");
        fs::write(root.path().join("proc/77/cgroup"), "0::/asmp/motion/rt\n").unwrap();
        let partition = find(&linux, &store, "motion", None).unwrap();
        let entered = partition.enter(&linux, 77, Join::Thread).unwrap();
        assert_eq!(entered.back, Back::Inside);
        let untouched = root.path().join("sys/fs/cgroup/asmp/motion/rest/cgroup.procs");
        assert_eq!(fs::read_to_string(untouched).unwrap(), "");
    }
}
