// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The edge to the kernel: every file read, file written, directory made and scheduling call of
//! asmp goes through [`Kernel`]. [`Linux`] is the running kernel, below a root that tests choose;
//! `fake::FakeKernel` replaces it in tests that must not touch the machine.
//!
//! Paths are absolute as the kernel documents them (`/proc/irq/24/smp_affinity_list`).

use crate::cpuset::CpuSet;
use crate::mark;
use crate::sched::{self, Schedule, TimeLimits};
use crate::sharing;
use crate::spin::{self, Spinner};
use crate::systemd;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel calls that asmp needs. All are synchronous; none retries.
pub trait Kernel: Send + Sync {
    /// The whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// One write(2) of all bytes into an existing kernel file; never creates or truncates.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// The same of directories; others may be among them.
    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.list(dir)
    }

    /// Has this process one thread? It then has the number of the process. `false`: read the list.
    fn has_one_thread(&self, _process: i32) -> bool {
        false
    }

    /// A file to read piece by piece; a read returns `WouldBlock` where there is no data.
    fn stream(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>>;

    fn make_dir(&self, dir: &Path) -> io::Result<()>;

    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Marks a cgroup as made by asmp.
    fn mark(&self, dir: &Path) -> io::Result<()>;

    /// Has a cgroup that mark?
    fn is_marked(&self, dir: &Path) -> bool;

    /// Policy and parameters of a thread (`sched_getattr(2)`).
    fn schedule(&self, tid: i32) -> io::Result<Schedule>;

    /// Sets policy and parameters of a thread (`sched_setattr(2)`).
    fn set_schedule(&self, tid: i32, schedule: &Schedule) -> io::Result<()>;

    /// The online CPUs that a thread may run on (`sched_getaffinity(2)`): for a first look, where
    /// its file in /proc takes long.
    fn online_affinity(&self, tid: i32) -> io::Result<CpuSet>;

    /// Confines a thread to `cpus` (`sched_setaffinity(2)`).
    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> io::Result<()>;

    /// Limits how long real-time tasks of a process run without sleeping (`prlimit(2)`).
    fn limit_real_time(&self, process: i32, limits: TimeLimits) -> io::Result<()>;

    /// The file as text without the trailing newline.
    fn text(&self, path: &Path) -> io::Result<String> {
        let bytes = self.read(path)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }

    fn exists(&self, path: &Path) -> bool;

    /// Is it a regular file, and no link to one?
    fn is_file(&self, path: &Path) -> bool;

    /// The text of a symbolic link, which need not lead anywhere.
    fn link(&self, path: &Path) -> io::Result<String>;

    /// Starts or stops the delegated systemd service whose cgroup holds asmp's groups, in the
    /// cgroup tree at `mount`. Returns when its cgroup exists (or is gone). Errors: what systemd
    /// printed.
    fn delegate(&self, mount: &Path, on: bool) -> io::Result<()>;

    /// The program that loads the scheduler of shared partitions; `None`: it is not installed.
    fn sharer(&self) -> Option<PathBuf> {
        None
    }

    /// Has that scheduler guard exactly these CPUs; none: unloads it. Errors: what its loader
    /// printed.
    fn share(&self, cpus: &CpuSet) -> io::Result<()>;

    /// Starts a process that keeps a CPU busy for at most `most`.
    fn spin(&self, most: Duration) -> io::Result<Box<dyn Spinner + '_>>;
}

/// The running kernel, its files below `root` (`/` but in tests of the readers).
#[derive(Debug, Clone)]
pub struct Linux {
    root: PathBuf,
}

impl Linux {
    pub fn new() -> Self {
        Self::below("/")
    }

    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Names of the entries of a directory that are wanted, sorted.
fn names(dir: &Path, is_wanted: impl Fn(&std::fs::DirEntry) -> bool) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    let wanted = entries.iter().filter(|entry| is_wanted(entry));
    let mut names: Vec<String> =
        wanted.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

impl Default for Linux {
    fn default() -> Self {
        Self::new()
    }
}

impl Kernel for Linux {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        use std::io::Read;
        // Kernel files tell no size, so asking for it is in vain; most fit a page.
        let mut file = std::fs::File::open(self.at(path))?;
        let (mut bytes, mut page) = (Vec::new(), [0; 4096]);
        loop {
            match file.read(&mut page) {
                Ok(0) => return Ok(bytes),
                Ok(count) => bytes.extend_from_slice(&page[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        use std::io::Write;
        // O_NONBLOCK costs nothing on kernel files and keeps a FIFO planted at the path from
        // hanging us.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.at(path))?;
        match file.write(bytes)? {
            written if written == bytes.len() => Ok(()),
            written => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("the kernel took {written} of {} bytes", bytes.len()),
            )),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        names(&self.at(dir), |_| true)
    }

    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        names(&self.at(dir), |entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    }

    fn has_one_thread(&self, process: i32) -> bool {
        use std::os::unix::fs::MetadataExt;
        // Links to a directory: its name, its ".", and the ".." of each that is in it. The kernel
        // counts threads so (proc_task_getattr in fs/proc/base.c).
        let task = self.at(&crate::task::task_path(process).join("task"));
        std::fs::metadata(task).is_ok_and(|task| task.nlink() == 3)
    }

    fn stream(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.at(path))?;
        Ok(Box::new(file))
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir(self.at(dir))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(self.at(dir))
    }

    fn mark(&self, dir: &Path) -> io::Result<()> {
        mark::set(&self.at(dir))
    }

    fn is_marked(&self, dir: &Path) -> bool {
        mark::is_set(&self.at(dir))
    }

    fn schedule(&self, tid: i32) -> io::Result<Schedule> {
        sched::get(tid)
    }

    fn set_schedule(&self, tid: i32, schedule: &Schedule) -> io::Result<()> {
        sched::set(tid, schedule)
    }

    fn online_affinity(&self, tid: i32) -> io::Result<CpuSet> {
        sched::affinity(tid)
    }

    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        sched::confine(tid, cpus)
    }

    fn limit_real_time(&self, process: i32, limits: TimeLimits) -> io::Result<()> {
        sched::limit(process, limits)
    }

    fn exists(&self, path: &Path) -> bool {
        self.at(path).exists()
    }

    fn is_file(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(self.at(path)).is_ok_and(|seen| seen.is_file())
    }

    fn link(&self, path: &Path) -> io::Result<String> {
        Ok(std::fs::read_link(self.at(path))?.to_string_lossy().into_owned())
    }

    fn delegate(&self, mount: &Path, on: bool) -> io::Result<()> {
        if on { systemd::start(&self.at(mount)) } else { systemd::stop(&self.at(mount)) }
    }

    fn sharer(&self) -> Option<PathBuf> {
        sharing::find_loader()
    }

    fn share(&self, cpus: &CpuSet) -> io::Result<()> {
        sharing::set(cpus)
    }

    fn spin(&self, most: Duration) -> io::Result<Box<dyn Spinner + '_>> {
        Ok(Box::new(spin::start(most)?))
    }
}
