// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps RTLinux's million priorities to the 98 of Linux below interrupt handlers.

use std::ffi::c_int;

const HIGHEST: c_int = 1_000_000;

/// SCHED_FIFO priority of interrupt handler threads: above every thread, as in RTLinux.
pub(crate) const OF_HANDLERS: u32 = 99;

/// Returns the Linux priority (1 to 98) of an RTLinux priority (0 to 1,000,000, larger is higher);
/// -1 for any other number.
///
/// The mapping never decreases. Priorities 0 to 37 become 1 to 38. Above, each quarter of an octave
/// shares one Linux priority: 38 becomes 39, 100 becomes 45, 1000 becomes 58, 1,000,000 becomes 98.
/// Bounded, no system call.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_linux_priority_np(priority: c_int) -> c_int {
    linux_priority(priority).unwrap_or(-1)
}

/// The same; `None` for what is no RTLinux priority.
pub fn linux_priority(priority: c_int) -> Option<c_int> {
    match priority {
        0..=37 => Some(priority + 1),
        38..=HIGHEST => {
            let octave = priority.ilog2() as c_int;
            let quarter = (priority >> (octave - 2)) & 3;
            Some(19 + 4 * octave + quarter)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_priority_is_never_mapped_lower() {
        let mut last = 0;
        for priority in 0..=HIGHEST {
            let mapped = linux_priority(priority).unwrap();
            assert!(
                (last..=last + 1).contains(&mapped),
                "{priority} becomes {mapped} after {last}"
            );
            last = mapped;
        }
        assert_eq!((linux_priority(0).unwrap(), last), (1, 98));
    }

    #[test]
    fn the_priorities_that_programs_use_stay_apart() {
        let mapped: Vec<c_int> = (0..=37).filter_map(linux_priority).collect();
        assert_eq!(mapped, (1..=38).collect::<Vec<_>>());
        assert_eq!([38, 100, 1000, HIGHEST].map(linux_priority), [39, 45, 58, 98].map(Some));
    }

    #[test]
    fn what_is_no_priority_has_none() {
        assert_eq!([-1, HIGHEST + 1, c_int::MIN, c_int::MAX].map(linux_priority), [None; 4]);
    }
}
