// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup v2 tree: where it is mounted, what it offers, and where asmp's groups are.
//!
//! A partition `motion` is three groups, so that one thread of a process may be alone on shielded
//! CPUs (cgroup v2 moves single threads only within one threaded domain):
//!
//! ```text
//! BASE/motion        domain        exclusive CPUs pass through it
//! BASE/motion/rt     threaded      the isolated cpuset partition
//! BASE/motion/rest   threaded      the other threads of processes that have only some inside
//! BASE/motion/idle   threaded      SMT siblings out of use: isolated, always empty; only if any
//! ```

use crate::cpuset::CpuSet;
use crate::kernel::Kernel;
use crate::{Error, ErrorKind, Result, systemd};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// asmp's group below the root, on machines without systemd.
pub const GROUP: &str = "asmp";

/// The cgroup v2 hierarchy of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hierarchy {
    /// Where it is mounted; `None` without cgroup v2.
    pub mount: Option<PathBuf>,
    /// Controllers that v2 offers at its root.
    pub controllers: Vec<String>,
    /// Controllers enabled for the groups below the root.
    pub controllers_of_children: Vec<String>,
    /// The systemd service below which our groups lie, or would.
    pub service: &'static str,
    /// Groups right below the root that use the cpuset controller. Read only where asmp's own
    /// group exists.
    pub cpuset_users: Vec<PathBuf>,
    /// The mount point of a v1 hierarchy that holds the cpuset controller.
    pub cpuset_v1: Option<PathBuf>,
    /// Does the mount show a group in place of the tree's root, as in a container? Only groups have
    /// `cgroup.type`. Or does it show more than this process's cgroup namespace, so that the groups
    /// of tasks begin with `/..`?
    pub is_group: bool,
    /// CPUs in isolated partitions, `cpuset.cpus.isolated` of the root; `None` where the kernel
    /// has no such file (before 6.7: no remote partitions either).
    pub isolated: Option<CpuSet>,
}

impl Hierarchy {
    /// Is the mounted tree the machine's own? In a container with a cgroup namespace, a group
    /// stands where the root should. From 6.8 on a root with cpusets has `cpuset.cpus.isolated`.
    pub fn is_real_root(&self, version: (u32, u32)) -> bool {
        let cpuset = self.controllers.iter().any(|name| name == "cpuset");
        !self.is_group && (!cpuset || self.isolated.is_some() || version < (6, 8))
    }

    pub fn read(kernel: &dyn Kernel) -> Result<Self> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = kernel.text(path).map_err(Error::io(path, "read"))?;
        let found = find_mount(&mounts, |kind, _| kind == "cgroup2");
        let is_above_us = found.as_ref().is_some_and(|(root, _)| root.starts_with("/.."));
        let mount = found.map(|(_, point)| point);
        let cpuset_v1 = find_mount(&mounts, |kind, options| {
            kind == "cgroup" && options.split(',').any(|word| word == "cpuset")
        });
        let file =
            |name: &str| mount.as_ref().and_then(|mount| kernel.text(&mount.join(name)).ok());
        let words = |text: Option<String>| -> Vec<String> {
            text.map(|text| text.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default()
        };
        Ok(Self {
            controllers: words(file("cgroup.controllers")),
            controllers_of_children: words(file("cgroup.subtree_control")),
            cpuset_users: match &mount {
                // Needed only before the controller is switched off again.
                Some(mount) if kernel.exists(&mount.join(GROUP)) => cpuset_users(kernel, mount),
                _ => Vec::new(),
            },
            service: mount
                .as_ref()
                .map_or(systemd::SERVICE, |mount| systemd::service(kernel, mount)),
            is_group: is_above_us
                || mount.as_ref().is_some_and(|mount| kernel.exists(&mount.join("cgroup.type"))),
            isolated: file("cpuset.cpus.isolated").and_then(|text| text.parse().ok()),
            cpuset_v1: cpuset_v1.map(|(_, point)| point),
            mount,
        })
    }
}

/// Groups right below the root that have CPUs of their own or hand the controller on.
fn cpuset_users(kernel: &dyn Kernel, mount: &Path) -> Vec<PathBuf> {
    let text = |group: &Path, name: &str| kernel.text(&group.join(name)).unwrap_or_default();
    let uses = |group: &PathBuf| {
        ["cpuset.cpus", "cpuset.mems", "cpuset.cpus.exclusive"]
            .iter()
            .any(|name| !text(group, name).is_empty())
            || text(group, "cgroup.subtree_control").split_whitespace().any(|word| word == "cpuset")
    };
    kernel
        .list_directories(mount)
        .unwrap_or_default()
        .iter()
        .map(|name| mount.join(name))
        .filter(uses)
        .collect()
}

/// The first mount whose type and super options satisfy `is`, with its root in the tree; mountinfo
/// as in proc_pid_mountinfo(5). One that shows a whole tree goes before a bind mount of a part.
fn find_mount(mounts: &str, is: impl Fn(&str, &str) -> bool) -> Option<(PathBuf, PathBuf)> {
    let found = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _source, options) = (after.next()?, after.next()?, after.next().unwrap_or(""));
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        is(kind, options).then(|| (PathBuf::from(unescape(root)), PathBuf::from(unescape(point))))
    });
    found.min_by_key(|(root, _)| root != Path::new("/"))
}

/// Undoes mountinfo's escapes: a backslash and the three octal digits of a byte.
fn unescape(path: &str) -> OsString {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| *first == b'\\');
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &others[3..] } else { others };
    }
    OsString::from_vec(bytes)
}

/// Names of one partition's groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    pub domain: PathBuf,
    pub rt: PathBuf,
    pub rest: PathBuf,
    pub idle: PathBuf,
}

impl Groups {
    pub fn of(base: &Path, partition: &str) -> Self {
        let domain = base.join(partition);
        Self { rt: domain.join("rt"), rest: domain.join("rest"), idle: domain.join("idle"), domain }
    }
}

/// Thread numbers in a group. Errors: `Io`; `Content` for a line that is not a number.
pub fn threads_of(kernel: &dyn Kernel, group: &Path) -> Result<Vec<i32>> {
    let path = group.join("cgroup.threads");
    let text = kernel.text(&path).map_err(Error::io(&path, "read"))?;
    text.lines()
        .map(|line| {
            line.parse().map_err(|_| Error::Content {
                path: path.clone(),
                text: line.to_owned(),
                expected: "a thread number",
            })
        })
        .collect()
}

/// The groups below a group, deepest first; none where it is gone.
pub fn groups_below(kernel: &dyn Kernel, group: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in kernel.list_directories(group).unwrap_or_default() {
        let child = group.join(name);
        if kernel.exists(&child.join("cgroup.procs")) {
            found.extend(groups_below(kernel, &child));
            found.push(child);
        }
    }
    found
}

/// Thread numbers in a group and all groups below it; none where it is gone. A user can nest groups
/// so deep that none can name their files from the root: those are left out. Errors: as
/// [`threads_of`].
pub fn threads_below(kernel: &dyn Kernel, group: &Path) -> Result<Vec<i32>> {
    let mut threads = Vec::new();
    for group in groups_below(kernel, group).iter().map(PathBuf::as_path).chain([group]) {
        match threads_of(kernel, group) {
            Ok(more) => threads.extend(more),
            // A group below a threaded one that is not threaded itself holds no task.
            Err(error) if error.is_missing() || error.kind() == ErrorKind::Unsupported => {}
            Err(error) if error.errno() == Some(libc::ENAMETOOLONG) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(threads)
}

/// Is a group threaded?
pub fn is_threaded(kernel: &dyn Kernel, group: &Path) -> bool {
    kernel.text(&group.join("cgroup.type")).is_ok_and(|kind| kind == "threaded")
}

/// Moves a whole process into a group.
pub fn move_process(kernel: &dyn Kernel, process: i32, group: &Path) -> Result<()> {
    let path = group.join("cgroup.procs");
    kernel
        .write(&path, process.to_string().as_bytes())
        .map_err(Error::io(&path, "move a process in"))
}

/// Moves one thread into a group of the same threaded domain.
pub fn move_thread(kernel: &dyn Kernel, tid: i32, group: &Path) -> Result<()> {
    let path = group.join("cgroup.threads");
    kernel.write(&path, tid.to_string().as_bytes()).map_err(Error::io(&path, "move a thread in"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use std::fs;

    const UNIFIED: &str =
        "25 1 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "25 1 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        26 1 0:24 / /sys/fs/cgroup/cpuset rw shared:5 - cgroup cgroup rw,cpuset\n";

    fn machine(mounts: &str) -> (tempfile::TempDir, Linux) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
        fs::write(root.path().join("sys/fs/cgroup/cgroup.controllers"), "cpuset cpu\n").unwrap();
        fs::write(root.path().join("sys/fs/cgroup/cpuset.cpus.isolated"), "\n").unwrap();
        let linux = Linux::below(root.path());
        (root, linux)
    }

    #[test]
    fn a_unified_hierarchy_is_found_with_its_controllers() {
        let (_root, linux) = machine(UNIFIED);
        let hierarchy = Hierarchy::read(&linux).unwrap();
        assert_eq!(hierarchy.mount.as_deref(), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(hierarchy.controllers, ["cpuset", "cpu"]);
        assert_eq!(hierarchy.isolated, Some(CpuSet::new()));
        assert_eq!(hierarchy.cpuset_v1, None);
    }

    #[test]
    fn groups_are_the_directories_of_a_group_deepest_first() {
        let (root, linux) = machine(UNIFIED);
        let mount = root.path().join("sys/fs/cgroup");
        for group in ["a", "a/b", "no-group"] {
            fs::create_dir(mount.join(group)).unwrap();
        }
        for group in ["a", "a/b"] {
            fs::write(mount.join(group).join("cgroup.procs"), "").unwrap();
        }
        let mount = Path::new("/sys/fs/cgroup");
        assert_eq!(linux.list_directories(mount).unwrap(), ["a", "no-group"]);
        assert!(linux.list(mount).unwrap().contains(&"cgroup.controllers".to_owned()));
        assert_eq!(groups_below(&linux, mount), [mount.join("a/b"), mount.join("a")]);
    }

    #[test]
    fn a_cpuset_held_by_v1_is_seen() {
        let (_root, linux) = machine(HYBRID);
        let hierarchy = Hierarchy::read(&linux).unwrap();
        assert_eq!(hierarchy.cpuset_v1.as_deref(), Some(Path::new("/sys/fs/cgroup/cpuset")));
        assert!(hierarchy.controllers.is_empty());
    }

    #[test]
    fn the_whole_tree_is_taken_where_a_part_of_it_is_mounted_first_and_escapes_are_undone() {
        let mounts = "24 1 0:23 /docker/web /srv/web/cgroup rw - cgroup2 cgroup2 rw\n\
            25 1 0:23 / /mnt/a\\040tree\\134 rw - cgroup2 cgroup2 rw\n";
        let mount =
            |mounts: &str| find_mount(mounts, |kind, _| kind == "cgroup2").map(|(_, point)| point);
        assert_eq!(mount(mounts).as_deref(), Some(Path::new("/mnt/a tree\\")));
        let part = mounts.lines().next().unwrap();
        assert_eq!(mount(part).as_deref(), Some(Path::new("/srv/web/cgroup")));
        assert_eq!(unescape("/a\\04"), "/a\\04", "no escape");
    }

    /// A container with the machine's tree mounted, and a cgroup namespace of its own.
    #[test]
    fn a_tree_that_begins_above_the_own_namespace_is_not_the_machine_s() {
        let above = UNIFIED.replace("0:23 / ", "0:23 /../.. ");
        for (mounts, is_real) in [(UNIFIED, true), (above.as_str(), false)] {
            let (_root, linux) = machine(mounts);
            assert_eq!(Hierarchy::read(&linux).unwrap().is_real_root((6, 12)), is_real);
        }
    }

    #[test]
    fn a_machine_without_cgroup_v2_has_no_mount() {
        let (_root, linux) = machine("25 1 0:23 / / rw - ext4 /dev/vda rw\n");
        assert_eq!(Hierarchy::read(&linux).unwrap().mount, None);
        let (_root, linux) = machine(UNIFIED);
        assert!(threads_of(&linux, Path::new("/sys/fs/cgroup/none")).unwrap_err().is_missing());
    }
}
