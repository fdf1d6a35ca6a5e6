// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that keeps one CPU busy, so that what disturbs the CPU can be counted.

use std::io;
use std::time::Duration;

/// A busy process; ends when this is dropped, when its time is over, or with the thread that
/// started it.
pub trait Spinner {
    fn pid(&self) -> i32;
}

/// A child of this process.
#[derive(Debug)]
pub(crate) struct Child {
    pid: i32,
}

/// Starts a child that spins for at most `most`.
pub(crate) fn start(most: Duration) -> io::Result<Child> {
    let end_ns = crate::clock::monotonic_ns().saturating_add(most.as_nanos() as u64);
    let parent = std::process::id();
    // SAFETY: between fork and _exit the child calls only prctl, getppid, clock_gettime and _exit,
    // which are async-signal-safe; it touches no lock and no heap.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes two numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // A parent that ended before that call sends no signal, and the child has a copy of
            // every lock the parent held: it must not spin on alone.
            let is_orphan = std::os::unix::process::parent_id() != parent;
            while !is_orphan && crate::clock::monotonic_ns() < end_ns {
                std::hint::spin_loop();
            }
            // SAFETY: takes a number and does not return; no destructor of the parent's runs.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(Child { pid }),
    }
}

impl Spinner for Child {
    fn pid(&self) -> i32 {
        self.pid
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: takes two numbers; the child is not yet waited for, so the number is its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        // SAFETY: as above; a null status is allowed.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinner_runs_until_it_is_dropped() {
        let spinner = start(Duration::from_secs(600)).unwrap();
        let pid = spinner.pid();
        let cpu_ticks = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields = stat.rsplit(')').next().unwrap().split_whitespace();
            fields.skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum::<u64>()
        };
        let end = std::time::Instant::now() + Duration::from_secs(180);
        while cpu_ticks() < 5 && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(cpu_ticks() >= 5, "it uses its CPU");
        drop(spinner);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_spinner_ends_by_itself_when_its_time_is_over() {
        let spinner = start(Duration::from_millis(1)).unwrap();
        let stat = format!("/proc/{}/stat", spinner.pid());
        let end = std::time::Instant::now() + Duration::from_secs(180);
        let ended = || std::fs::read_to_string(&stat).unwrap().contains(") Z ");
        while !ended() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(ended());
    }
}
