// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads: what the rest of the machine does while a probe measures (ASMP-Linux section 6.1, ARTiS
//! section 4).
//!
//! stress-ng does the work; L4RTL's flooder is asmp's own. A load starts before the probe, which
//! waits until all processes of the load exist. It is checked while the probe runs, and ends when
//! its value is dropped. Its files are in a directory of its own (`scratch.rs`).

mod process;
mod word;

pub use crate::scratch::LoadDir;
pub(crate) use process::version;
pub use word::Load;

use crate::scratch::Scratch;
use asmp_host::{Cpu, CpuSet, Kernel, Schedule};
use process::launch;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How much of a load: k for each of p CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub per_cpu: u32,
    pub cpus: u32,
}

impl Size {
    /// All processes of a load, also the flooders of `cache`; `None` where that is not known (an
    /// import).
    pub fn processes(self, load: Load) -> Option<u32> {
        if load != Load::Idle && (self.per_cpu == 0 || self.cpus == 0) {
            return None;
        }
        let flooders = if load == Load::Cache { self.cpus } else { 0 };
        let counts = processes(load, self).into_iter().map(|(_, count)| count);
        Some(counts.fold(flooders, u32::saturating_add))
    }

    /// The papers' k, where the number of processes follows of it.
    pub fn factor(self, load: Load) -> Option<u32> {
        let has_one = !matches!(load, Load::Idle | Load::Artis | Load::Unknown);
        (has_one && self.per_cpu > 0).then_some(self.per_cpu)
    }
}

/// Processes of each kind: stress-ng's option and how many.
pub fn processes(load: Load, size: Size) -> Vec<(&'static str, u32)> {
    // A size that was read may be any.
    let all = size.per_cpu.saturating_mul(size.cpus);
    let half = (all / 2).max(1);
    match load {
        Load::Idle | Load::Unknown => vec![],
        Load::Cpu => vec![("cpu", all)],
        Load::AsyncIo => vec![("hdd", all)],
        Load::Io => vec![("hdd-sync", all)],
        Load::Mixed | Load::Cache => vec![("cpu", half), ("hdd", half), ("hdd-sync", half)],
        Load::Artis => {
            vec![("cpu", size.cpus), ("hdd", size.cpus), ("udp", size.cpus), ("flock", size.cpus)]
        }
    }
}

/// The largest k whose processes fit into half of the free memory, at about 8 MiB each.
pub fn bounded(per_cpu: u32, cpus: u32, free_bytes: u64) -> u32 {
    let fit = free_bytes / 2 / (8 << 20) / u64::from(cpus.max(1));
    // `mixed` has one and a half times as many.
    per_cpu.min(u32::try_from(fit * 2 / 3).unwrap_or(u32::MAX)).max(1)
}

/// Why a load does not run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "stress-ng, which makes the loads, is not installed: apt install stress-ng, or measure \
         under the load idle"
    )]
    NoTool,
    #[error(
        "`stress-ng --version` did not work: {cause}: the loads need a stress-ng that does (see \
         `command -v stress-ng`)"
    )]
    BadTool { cause: String },
    #[error("the load {load} did not start: {cause}")]
    NotStarted { load: Load, cause: String },
    #[error("the load {load} ended before the measurement: {status}; discard the run")]
    Ended { load: Load, status: String },
}

/// A load that runs; dropping it ends it.
pub struct Running {
    load: Load,
    children: Vec<Child>,
    /// Index in `children` of the flooder on the measured CPU.
    measured_flooder: Option<usize>,
    _scratch: Option<Scratch>,
    /// The command lines, for the record.
    pub commands: Vec<String>,
    /// What it writes to, for the record.
    pub load_dir: Option<LoadDir>,
}

impl Running {
    /// Starts a load and waits until all its processes are there (at most 120 s a part). They write
    /// below `parent`. Every 100 ms it calls `goes_on` with how many are there and how many there
    /// will be; `false` ends the load, and there is none.
    pub fn start(
        kernel: &dyn Kernel,
        load: Load,
        size: Size,
        parent: &Path,
        goes_on: impl Fn(u32, u32) -> bool,
    ) -> Result<Option<Self>, LoadError> {
        let mut running = Self {
            load,
            children: Vec::new(),
            measured_flooder: None,
            _scratch: None,
            commands: Vec::new(),
            load_dir: None,
        };
        let kinds = processes(load, size);
        if kinds.is_empty() {
            return Ok(Some(running));
        }
        let failed = |cause: io::Error| {
            let cause = format!("{}: {cause}", parent.display());
            LoadError::NotStarted { load, cause }
        };
        let scratch = Scratch::make(kernel, parent).map_err(failed)?;
        let dir = scratch.path.clone();
        running._scratch = Some(scratch);
        if load.writes() {
            running.load_dir = Some(LoadDir::of(parent).map_err(failed)?);
        }
        let all = kinds.iter().map(|(_, count)| count).sum();
        let mut before = 0;
        for (kind, count) in kinds {
            let words = words(kind, count, &dir);
            running.commands.push(told("stress-ng", &words));
            let child =
                launch(Path::new("stress-ng"), &words, Stdio::null()).map_err(
                    |error| match error.kind() {
                        io::ErrorKind::NotFound => LoadError::NoTool,
                        _ => failed(error),
                    },
                )?;
            running.children.push(child);
            if !running.settle(kernel, count, |there| goes_on(before + there, all))? {
                return Ok(None);
            }
            before += count;
        }
        Ok(Some(running))
    }

    /// Adds L4RTL's cache flooders: `program` with `flood BYTES` for its arguments, once on each of
    /// `cpus`. Each is bound to its CPU, has an address space of its own, and has filled the caches
    /// once when this returns. All are ordinary tasks; `press` gives the one on the measured CPU
    /// its weight.
    pub fn flood(
        &mut self,
        kernel: &dyn Kernel,
        program: &Path,
        cpus: &CpuSet,
        measured: Cpu,
        bytes: usize,
    ) -> Result<(), LoadError> {
        let failed = |cause: String| LoadError::NotStarted { load: Load::Cache, cause };
        for cpu in cpus.iter() {
            let is_measured = cpu == measured;
            let nice = match is_measured {
                true => format!("{FLOODER_NICE} while samples are taken there"),
                false => "0".to_owned(),
            };
            let words = ["flood".into(), bytes.to_string().into()];
            self.commands.push(format!("{} (CPU {cpu}, nice {nice})", told("asmp", &words)));
            let mut child = launch(program, &words, Stdio::piped())
                .map_err(|error| failed(error.to_string()))?;
            let pid = child.id() as i32;
            let ready = child.stdout.take();
            self.children.push(child);
            if is_measured {
                self.measured_flooder = Some(self.children.len() - 1);
            }
            kernel
                .set_affinity(pid, &CpuSet::from_iter([cpu]))
                .map_err(|error| failed(error.to_string()))?;
            kernel
                .set_schedule(pid, &Schedule::Other { nice: 0 })
                .map_err(|error| failed(error.to_string()))?;
            // A word after its first turn, or nothing with its death.
            let mut word = [0; FLOODED.len()];
            if ready.is_none_or(|mut ready| ready.read_exact(&mut word).is_err()) {
                return Err(failed(format!(
                    "the flooder of CPU {cpu} died at once: is there enough memory?"
                )));
            }
        }
        Ok(())
    }

    /// Gives the flooder of the measured CPU nine times the weight of an ordinary task, so that
    /// nearly each event there finds what it left: below every real-time task, as in the paper.
    ///
    /// Call it right before the first sample, and `ease` after the last. A task of nice 19 that
    /// the flooder preempts in an RCU read section may wait 20 s for the CPU. Each change of a
    /// cgroup or of a trace instance waits for that task.
    pub fn press(&mut self, kernel: &dyn Kernel) -> io::Result<()> {
        self.weigh(kernel, FLOODER_NICE)
    }

    /// Makes it an ordinary task again; other kinds may follow under the same load. An error is
    /// ignored: who could press the flooder may ease it, so there is none any more.
    pub fn ease(&mut self, kernel: &dyn Kernel) {
        let _ = self.weigh(kernel, 0);
    }

    fn weigh(&mut self, kernel: &dyn Kernel, nice: i32) -> io::Result<()> {
        let Some(flooder) = self.measured_flooder.and_then(|at| self.children.get_mut(at)) else {
            return Ok(());
        };
        match flooder.try_wait()? {
            // `check` tells of its death; its number may be another task's.
            Some(_) => Ok(()),
            None => kernel.set_schedule(flooder.id() as i32, &Schedule::Other { nice }),
        }
    }

    /// Waits until the child started last has `count` children of its own. `Ok(false)`: it does not
    /// go on.
    fn settle(
        &mut self,
        kernel: &dyn Kernel,
        count: u32,
        goes_on: impl Fn(u32) -> bool,
    ) -> Result<bool, LoadError> {
        let load = self.load;
        let end = Instant::now() + Duration::from_secs(120);
        let Some(pid) = self.children.last().map(Child::id) else { return Ok(true) };
        loop {
            self.check()?;
            let path = format!("/proc/{pid}/task/{pid}/children");
            let there = kernel.text(path.as_ref()).unwrap_or_default().split_whitespace().count();
            if there >= count as usize {
                return Ok(true);
            }
            if !goes_on(there as u32) {
                return Ok(false);
            }
            if Instant::now() > end {
                let cause = format!("{there} of {count} processes after 120 s");
                return Err(LoadError::NotStarted { load, cause });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Does every part still run?
    pub fn check(&mut self) -> Result<(), LoadError> {
        for child in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(LoadError::Ended { load: self.load, status: status.to_string() });
            }
        }
        Ok(())
    }
}

/// Nice value of the flooder on the measured CPU while samples are taken.
const FLOODER_NICE: i32 = -10;

/// What a flooder says after its first turn.
const FLOODED: &str = "flooded\n";

/// The flooder itself: makes every line of `bytes` dirty, for ever, and says when it has done so
/// once.
pub fn flood_for_ever(bytes: usize) -> io::Result<()> {
    use_small_pages()?;
    let mut lines = vec![0u8; bytes];
    make_dirty(&mut lines);
    io::stdout().write_all(FLOODED.as_bytes())?;
    io::stdout().flush()?;
    loop {
        make_dirty(&mut lines);
    }
}

/// This process gets no transparent huge pages from now on (prctl(2), `PR_SET_THP_DISABLE`). A
/// flood needs more pages than a TLB holds: 16 MiB are 4096 small pages, but 8 huge ones.
pub fn use_small_pages() -> io::Result<()> {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: prctl with this option takes numbers and touches no memory of ours.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes to every cache line.
#[inline(never)]
pub fn make_dirty(lines: &mut [u8]) {
    for line in lines.chunks_mut(64) {
        line[0] = line[0].wrapping_add(1);
    }
    black_box(lines);
}

/// Arguments of stress-ng.
fn words(kind: &str, count: u32, dir: &Path) -> Vec<OsString> {
    let more = match kind {
        "hdd" => format!("--hdd {count} --hdd-bytes 1M"),
        "hdd-sync" => format!("--hdd {count} --hdd-bytes 1M --hdd-opts sync"),
        other => format!("--{other} {count}"),
    };
    let common = ["--quiet".into(), "--temp-path".into(), dir.into()];
    common.into_iter().chain(more.split(' ').map(OsString::from)).collect()
}

/// A command line as a reader sees it.
fn told(program: &str, words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!("{program} {}", words.join(" "))
}

/// Has a child ended? It is not waited for, so that its number stays its own. Errors: ECHILD where
/// the kernel did not keep it, as this process ignores SIGCHLD.
fn has_ended(child: &Child) -> io::Result<bool> {
    // SAFETY: a siginfo_t is plain numbers, for which all zeros is a value.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes one siginfo_t into `about`, which outlives the call.
    let asked = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut about, how) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid has filled it for a child, or left the zeros.
    Ok(unsafe { about.si_pid() } != 0)
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child that was waited for (`check`) is left alone: its number may be another's by now.
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        for child in &self.children {
            // SAFETY: kill takes two numbers; the child was not waited for, so its number is its
            // own.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        }
        let end = Instant::now() + Duration::from_secs(20);
        for child in &mut self.children {
            let mut ended = has_ended(child);
            while Instant::now() < end && matches!(ended, Ok(false)) {
                std::thread::sleep(Duration::from_millis(20));
                ended = has_ended(child);
            }
            if ended.is_ok() {
                // SAFETY: as above; a negative number means its process group, which is the load's
                // own.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            }
            let _ = child.wait();
        }
        // The files go after those that write them.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_of_processes() {
        let size = Size { per_cpu: 16, cpus: 4 };
        assert_eq!(processes(Load::Cpu, size), [("cpu", 64)]);
        assert_eq!(processes(Load::Mixed, size), [("cpu", 32), ("hdd", 32), ("hdd-sync", 32)]);
        assert_eq!(processes(Load::Idle, size), []);
        assert_eq!(
            processes(Load::Cache, size),
            processes(Load::Mixed, size),
            "the flooders come on top"
        );
        let all = |load| size.processes(load);
        assert_eq!([Load::Cpu, Load::Mixed, Load::Cache].map(all), [64, 96, 100].map(Some));
        assert_eq!([Load::Artis, Load::Idle].map(all), [16, 0].map(Some));
        assert_eq!([Load::Mixed, Load::Artis].map(|load| size.factor(load)), [Some(16), None]);
        let unknown = Size { per_cpu: 0, cpus: 0 };
        assert_eq!((unknown.processes(Load::Mixed), unknown.factor(Load::Mixed)), (None, None));
        let huge = Size { per_cpu: u32::MAX, cpus: 9 };
        assert_eq!(huge.processes(Load::Mixed), Some(u32::MAX));
    }

    #[test]
    fn a_load_is_read_by_its_word_and_by_the_papers_name() {
        for (word, paper) in [
            ("idle", "IDL"),
            ("cpu", "CPU"),
            ("async-io", "AIO"),
            ("io", "SIO"),
            ("mixed", "MIX"),
            ("artis", "ARTIS"),
            ("cache", "FLOOD"),
        ] {
            let load: Load = word.parse().unwrap();
            assert_eq!(load.to_string(), word);
            assert_eq!(serde_json::to_value(load).unwrap(), word);
            for text in [paper.to_owned(), paper.to_lowercase(), word.to_uppercase()] {
                assert_eq!(text.parse(), Ok(load), "{text}");
            }
            for text in [word, paper] {
                assert_eq!(serde_json::from_value::<Load>(text.into()).unwrap(), load, "{text}");
            }
        }
        let refused = "heavy".parse::<Load>().unwrap_err();
        assert!(refused.contains("heavy") && refused.contains("async-io"), "{refused}");
    }

    #[test]
    fn a_directory_with_spaces_is_one_argument() {
        let words = words("hdd-sync", 4, Path::new("/a b/.asmp-load-7-0"));
        assert_eq!(words[..3], ["--quiet", "--temp-path", "/a b/.asmp-load-7-0"]);
        assert_eq!(words[3..], ["--hdd", "4", "--hdd-bytes", "1M", "--hdd-opts", "sync"]);
        assert_eq!(
            told("stress-ng", &words),
            "stress-ng --quiet --temp-path /a b/.asmp-load-7-0 --hdd 4 --hdd-bytes 1M --hdd-opts \
             sync"
        );
        let writes = Load::ALL.into_iter().filter(|load| load.writes());
        assert_eq!(writes.count(), 5);
    }

    fn of_child(child: Child) -> Running {
        Running {
            load: Load::Cpu,
            children: vec![child],
            measured_flooder: None,
            _scratch: None,
            commands: Vec::new(),
            load_dir: None,
        }
    }

    #[test]
    fn a_load_that_starts_for_long_is_looked_at_and_can_be_ended() {
        let sleeper = launch(Path::new("sleep"), &["60".into()], Stdio::null()).unwrap();
        let mut running = of_child(sleeper);
        let looks = std::cell::Cell::new(0);
        let goes_on = |there| {
            looks.set(looks.get() + 1);
            assert_eq!(there, 0, "sleep has no children");
            looks.get() < 3
        };
        let kernel = asmp_host::Linux::new();
        assert!(!running.settle(&kernel, 1, goes_on).unwrap());
        assert_eq!(looks.get(), 3);
    }

    /// What is left in its group stands for others that have the number by now.
    #[test]
    fn a_part_of_a_load_that_ended_and_was_waited_for_is_sent_no_signal() {
        let words = ["-c".into(), "sleep 60 >&2 & echo $!".into()];
        let mut shell = launch(Path::new("sh"), &words, Stdio::piped()).unwrap();
        let mut told = String::new();
        shell.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        let other: i32 = told.trim().parse().unwrap();
        let mut running = of_child(shell);
        while running.check().is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(running);
        // A signal takes effect a little later.
        std::thread::sleep(Duration::from_millis(200));
        let state = std::fs::read_to_string(format!("/proc/{other}/stat")).unwrap_or_default();
        // SAFETY: kill takes two numbers.
        unsafe { libc::kill(other, libc::SIGKILL) };
        assert!(state.contains(") S "), "it lives: {state:?}");
    }

    #[test]
    fn memory_bounds_a_load() {
        assert_eq!(bounded(128, 4, 2 << 30), 21);
        assert_eq!(bounded(16, 4, 64 << 30), 16);
        assert_eq!(bounded(16, 4, 0), 1);
    }
}
