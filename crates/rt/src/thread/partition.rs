//! Starting inside a partition that exists: found in /run/asmp/state.json, entered through its cgroup.
//!
//! Nothing is recorded by entering: like what `asmp run` started, the process is born inside, in the eyes of `asmp`,
//! and destroying the partition moves it to the system. See `crates/host/src/cgroup.rs` for the groups.

use crate::thread::refusal::Refusal;
use asmp_host::cgroup::{self, Groups, Hierarchy};
use asmp_host::store::Store;
use asmp_host::{CpuSet, Error, Kernel, systemd, task};
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
}

/// The partition of that name. Reads files; changes nothing.
pub fn find(kernel: &dyn Kernel, store: &Store, name: &str) -> Result<Partition, Refusal> {
    let recorded = recorded(store)?;
    let Some(found) = recorded.iter().find(|partition| partition.name == name) else {
        let known = match recorded.is_empty() {
            true => "there are none".to_owned(),
            false => recorded.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
        };
        return Err(Refusal::NoPartition { name: name.to_owned(), known });
    };
    let hierarchy = Hierarchy::read(kernel)?;
    let mount = hierarchy.mount.unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
    let bases = [mount.join(systemd::SLICE).join(systemd::SERVICE), mount.join(cgroup::GROUP)];
    let [delegated, own] = bases.map(|base| Groups::of(&base, name));
    let groups = if kernel.exists(&delegated.rt) { delegated } else { own };
    if !kernel.exists(&groups.rt) {
        return Err(Refusal::PartitionGone { name: name.to_owned(), path: groups.rt });
    }
    Ok(Partition { name: found.name.clone(), cpus: found.cpus.clone(), groups, mount })
}

fn recorded(store: &Store) -> Result<Vec<Recorded>, Refusal> {
    const FILE: &str = "state.json";
    let Some(bytes) = store.read(FILE)? else { return Ok(Vec::new()) };
    let bad = |reason: String| Refusal::BadState { path: store.path(FILE), reason };
    let state: State = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    match state.schema {
        STATE_SCHEMA => Ok(state.partitions),
        other => Err(bad(format!("its schema is {other}, not {STATE_SCHEMA}"))),
    }
}

/// The way out of a partition that was entered.
#[derive(Debug)]
pub struct Entered {
    process: i32,
    home: Option<PathBuf>,
}

impl Entered {
    /// Goes back to where the process was; what cannot go back stays inside.
    pub fn undo(self, kernel: &dyn Kernel) {
        if let Some(home) = self.home {
            let _ = cgroup::move_process(kernel, self.process, &home);
        }
    }
}

impl Partition {
    /// Moves the thread (or its process) in and reads back that the kernel has it there. Errors: no permission, and
    /// whatever else the kernel says with the file's path.
    pub fn enter(&self, kernel: &dyn Kernel, tid: i32, join: Join) -> Result<Entered, Refusal> {
        let task = task::read(kernel, tid)?;
        let process = task.process;
        let here = self.mount.join(task.group.strip_prefix("/").unwrap_or(&task.group));
        if here == self.groups.rt {
            return Ok(Entered { process, home: None });
        }
        let refused = |error: Error| match error.errno() {
            Some(libc::EACCES | libc::EPERM) => {
                Refusal::PartitionNotPermitted { name: self.name.clone(), cause: error }
            }
            _ => Refusal::Host(error),
        };
        let inside = here.starts_with(&self.groups.domain);
        let entered = Entered { process, home: (!inside).then_some(here) };
        let moved = match join {
            Join::Process => cgroup::move_process(kernel, process, &self.groups.rt),
            // A single thread moves only within its threaded domain, so the process comes along into `rest`.
            Join::Thread if inside => cgroup::move_thread(kernel, tid, &self.groups.rt),
            Join::Thread => cgroup::move_process(kernel, process, &self.groups.rest)
                .and_then(|()| cgroup::move_thread(kernel, tid, &self.groups.rt)),
        };
        match moved.map_err(refused).and_then(|()| self.read_back(kernel, tid)) {
            Ok(()) => Ok(entered),
            Err(refusal) => {
                entered.undo(kernel);
                Err(refusal)
            }
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

    const STATE: &str = r#"{"schema":1,"transaction":4,"partitions":[{"name":"motion","cpus":"3","irqs":[]},{"name":"audio","cpus":"1"}]}"#;

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
        write("sys/fs/cgroup/user.slice/cgroup.procs", "");
        for group in ["rt", "rest"] {
            write(&format!("sys/fs/cgroup/{base}/motion/{group}/cgroup.procs"), "");
            write(&format!("sys/fs/cgroup/{base}/motion/{group}/cgroup.threads"), "");
        }
        write("run/asmp/state.json", STATE);
        let (linux, store) = (Linux::below(root.path()), Store::at(root.path().join("run/asmp")));
        (root, linux, store)
    }

    #[test]
    fn a_partition_is_found_where_systemd_delegates_and_where_it_does_not() {
        for base in ["asmp", "asmp.slice/asmp.service"] {
            let (_root, linux, store) = machine(base);
            let found = find(&linux, &store, "motion").unwrap();
            assert_eq!(found.cpus, "3".parse().unwrap());
            assert_eq!(found.groups.rt, Path::new("/sys/fs/cgroup").join(base).join("motion/rt"));
        }
    }

    #[test]
    fn a_partition_that_does_not_exist_is_refused_with_those_that_do() {
        let (_root, linux, store) = machine("asmp");
        let text = find(&linux, &store, "nobody").unwrap_err().to_string();
        assert!(text.starts_with("no partition nobody: known are: motion, audio; make it first"), "{text}");
        let empty = Store::at("/nonexistent");
        let text = find(&linux, &empty, "motion").unwrap_err().to_string();
        assert!(text.contains("there are none"), "{text}");
    }

    #[test]
    fn a_recorded_partition_without_its_group_is_refused_with_the_path() {
        let (_root, linux, store) = machine("asmp");
        let text = find(&linux, &store, "audio").unwrap_err().to_string();
        assert!(text.contains("/sys/fs/cgroup/asmp/audio/rt is not there"), "{text}");
    }

    #[test]
    fn a_state_of_another_version_or_no_state_at_all_is_refused() {
        let (root, linux, store) = machine("asmp");
        for (text, reason) in [(STATE.replace(":1,", ":2,"), "schema is 2"), ("[".to_owned(), "EOF")] {
            fs::write(root.path().join("run/asmp/state.json"), text).unwrap();
            let error = find(&linux, &store, "motion").unwrap_err();
            assert!(
                matches!(error, Refusal::BadState { .. }) && error.to_string().contains(reason),
                "{error}"
            );
        }
    }

    #[test]
    fn one_thread_goes_in_and_its_process_aside() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion").unwrap();
        partition.enter(&linux, 77, Join::Thread).unwrap();
        let written = |path: &str| {
            fs::read_to_string(root.path().join("sys/fs/cgroup/asmp/motion").join(path)).unwrap()
        };
        assert_eq!(written("rest/cgroup.procs"), "70");
        assert_eq!(written("rt/cgroup.threads"), "77");
        assert_eq!(written("rt/cgroup.procs"), "");
    }

    #[test]
    fn a_move_that_the_kernel_does_not_show_is_undone_and_refused() {
        let (root, linux, store) = machine("asmp");
        let partition = find(&linux, &store, "motion").unwrap();
        // A process moved whole would appear in cgroup.threads of a real kernel; files do not do that.
        let error = partition.enter(&linux, 77, Join::Process).unwrap_err();
        assert!(matches!(error, Refusal::Host(Error::ReadBack { .. })), "{error}");
        let home = fs::read_to_string(root.path().join("sys/fs/cgroup/user.slice/cgroup.procs")).unwrap();
        assert_eq!(home, "70", "the process went home");
    }

    #[test]
    fn a_thread_that_is_inside_already_stays() {
        let (root, linux, store) = machine("asmp");
        fs::write(root.path().join("proc/77/cgroup"), "0::/asmp/motion/rt\n").unwrap();
        let partition = find(&linux, &store, "motion").unwrap();
        let entered = partition.enter(&linux, 77, Join::Thread).unwrap();
        assert_eq!(entered.home, None);
        let untouched = root.path().join("sys/fs/cgroup/asmp/motion/rest/cgroup.procs");
        assert_eq!(fs::read_to_string(untouched).unwrap(), "");
    }
}
