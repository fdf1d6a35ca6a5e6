// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits that `pthread_cancel` ends. It unwinds the frames of the thread, so it must find none that
//! owns anything. So a wait is cut into slices of at most 100 ms, and only between two of them, in
//! a frame that owns nothing, the thread may be cancelled.

use crate::thread::pthread_testcancel;
use crate::why::timeout;
use std::ffi::{c_int, c_longlong};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);

/// Calls `wait` with a time until it returns something else than -ETIMEDOUT, or `timeout_ns` have
/// passed. May unwind its caller's frame, which owns nothing, and `wait` owns nothing either.
#[inline(always)]
pub fn in_slices(
    timeout_ns: c_longlong,
    mut wait: impl Copy + FnMut(Option<Duration>) -> c_int,
) -> c_int {
    let end = timeout(timeout_ns).and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        // SAFETY: may unwind this frame and the caller's, which own nothing.
        unsafe { pthread_testcancel() };
        let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
        let waited = wait(Some(left.min(SLICE)));
        if waited != -libc::ETIMEDOUT || left < SLICE {
            return waited;
        }
    }
}
