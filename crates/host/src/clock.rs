// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread needs to wake up in time: the clock, an absolute sleep, locked memory, and CPUs
//! that stay out of deep idle states.

use std::fs::File;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds as the kernel takes them.
#[inline]
pub const fn timespec(time_ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (time_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (time_ns % 1_000_000_000) as libc::c_long,
    }
}

/// Nanoseconds of CLOCK_MONOTONIC. No system call where the vDSO has it.
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut now = timespec(0);
    // SAFETY: the kernel writes one timespec into `now`; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time of day, in seconds since 1970-01-01 UTC; 0 before that.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `2026-11-24 12:31:07`: the time of day, in UTC, that many seconds after 1970-01-01.
pub fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Counted from 1 March of year 0, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}", second % 60)
}

/// Sleeps until that instant of CLOCK_MONOTONIC (`clock_nanosleep(2)` with TIMER_ABSTIME). Returns
/// early when a signal handler has run (EINTR).
#[inline]
pub fn sleep_until(instant_ns: u64) {
    let until = timespec(instant_ns);
    // SAFETY: the kernel reads `until`, which outlives the call, and gets no place to write the
    // rest to.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

/// Locks the memory of this process, now and later (`mlockall(2)`). Errors: ENOMEM, EPERM.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: mlockall takes flags only and changes no memory contents.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// While the file is open, no CPU enters an idle state that takes time to leave
/// (power/pm_qos_interface.rst). Errors: no such device, no permission.
pub fn hold_cpu_latency() -> io::Result<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
    file.write_all(&0i32.to_ne_bytes())?;
    Ok(file)
}

/// A timer on the CPU time of the calling thread that never expires in practice. While it is armed
/// the kernel keeps the tick of the CPU that the thread runs on (`TICK_DEP_BIT_POSIX_TIMER`).
pub struct CpuTimer(libc::timer_t);

impl CpuTimer {
    /// Errors: EAGAIN.
    pub fn arm() -> io::Result<Self> {
        // SAFETY: a sigevent is plain numbers and a pointer, for which all zeros is a value.
        let mut silent: libc::sigevent = unsafe { std::mem::zeroed() };
        // The kernel arms no timer without a notification. A process ignores this signal by
        // default.
        silent.sigev_notify = libc::SIGEV_SIGNAL;
        silent.sigev_signo = libc::SIGURG;
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: the kernel reads `silent` and writes one timer id into `timer`; both outlive the
        // call.
        let made = unsafe {
            libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut silent, &raw mut timer)
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Self(timer);
        let never = libc::itimerspec {
            it_interval: timespec(0),
            it_value: timespec((1 << 30) * 1_000_000_000),
        };
        // SAFETY: the timer was made above; the kernel reads `never`, and gets no place for the old
        // value.
        match unsafe { libc::timer_settime(timer.0, 0, &raw const never, std::ptr::null_mut()) } {
            0 => Ok(timer),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `arm` and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Number of this thread, as /proc and cgroups know it.
pub fn thread_id() -> i32 {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_that_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(utc(1_798_761_599), "2026-12-31 23:59:59");
    }

    #[test]
    fn an_absolute_sleep_does_not_end_before_its_instant() {
        let until = monotonic_ns() + 2_000_000;
        sleep_until(until);
        assert!(monotonic_ns() >= until);
        let past = monotonic_ns();
        sleep_until(past - 1);
        assert!(monotonic_ns() - past < 1_000_000_000, "an instant in the past does not sleep");
    }
}
