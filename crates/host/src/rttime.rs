// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a real-time task may run without sleeping: RLIMIT_RTTIME of getrlimit(2).
//!
//! asmp gives the processes of users a limit that none reaches. What they start inherits it. So it
//! tells which real-time tasks have their policy from asmp, wherever they are by now, unless their
//! user has lowered it: only root can raise it again.

use crate::kernel::Kernel;
use crate::sched::TimeLimits;
use std::io;
use std::path::PathBuf;

/// Microseconds: 285 years.
pub const MARK_US: u64 = 1 << 53;

/// The limits of a process. Errors: it has ended.
pub fn limits(kernel: &dyn Kernel, process: i32) -> io::Result<TimeLimits> {
    let text = kernel.text(&PathBuf::from(format!("/proc/{process}/limits")))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
    // `unlimited            unlimited            us`
    let mut numbers = line.unwrap_or_default().split_whitespace().map(|one| one.parse().ok());
    let mut next = || numbers.next().flatten();
    Ok(TimeLimits { soft_us: next(), hard_us: next() })
}

/// Marks a process. Limits that it has stay as low as they are. Errors: it has ended.
pub fn mark(kernel: &dyn Kernel, process: i32) -> io::Result<()> {
    let TimeLimits { soft_us, hard_us } = limits(kernel, process)?;
    let marked = |limit_us: Option<u64>| Some(limit_us.map_or(MARK_US, |us| us.min(MARK_US)));
    let both = TimeLimits { soft_us: marked(soft_us), hard_us: marked(hard_us) };
    kernel.limit_real_time(process, both)
}

/// Has a process the mark? Limits that other programs set (rtkit) are none.
pub fn is_marked(kernel: &dyn Kernel, process: i32) -> bool {
    limits(kernel, process).is_ok_and(|limits| limits.hard_us == Some(MARK_US))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;
    use crate::{Linux, Schedule};

    #[test]
    fn a_process_is_marked_and_keeps_limits_that_are_lower() {
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.expect("sleep starts");
        let (linux, pid) = (Linux::new(), child.id() as i32);
        let lower = |most_us: u64, limit_us: Option<u64>| limit_us.unwrap_or(most_us).min(most_us);
        let before = limits(&linux, pid).unwrap();
        mark(&linux, pid).unwrap();
        let hard_us = lower(MARK_US, before.hard_us);
        let marked = limits(&linux, pid).unwrap();
        assert_eq!(marked.hard_us, Some(hard_us));
        assert_eq!(marked.soft_us, Some(lower(MARK_US, before.soft_us)));
        let low = TimeLimits { soft_us: Some(5), hard_us: Some(hard_us.min(7_000_000)) };
        linux.limit_real_time(pid, low).unwrap();
        mark(&linux, pid).unwrap();
        assert_eq!(limits(&linux, pid).unwrap(), low);
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(mark(&linux, pid).is_err());
    }

    #[test]
    fn a_limit_of_another_program_is_no_mark() {
        let fake = FakeKernel::new();
        for process in [300, 400, 500] {
            fake.start(process, process, "app", Schedule::Other { nice: 0 });
        }
        mark(&fake, 300).unwrap();
        let of_rtkit = TimeLimits { soft_us: Some(200_000), hard_us: Some(200_000) };
        fake.limit_real_time(400, of_rtkit).unwrap();
        let is_it = |process| is_marked(&fake, process);
        assert_eq!([300, 400, 500, 999].map(is_it), [true, false, false, false]);
    }
}
