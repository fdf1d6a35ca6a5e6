// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds page faults and context switches in a real-time section.
//!
//! It compares `getrusage(RUSAGE_THREAD)` before and after the section. These are the counters of
//! perf's software events, but they need no permission and no descriptor. perf only finds the place
//! ([`Suspect`]). A voluntary switch is a sleep or a blocking call, an involuntary one a
//! preemption.

use crate::thread::suspects::Suspect;
use std::fmt;

/// Page faults and context switches of one section, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Sleeps and blocking calls.
    pub voluntary_switches: u64,
    /// Preemptions.
    pub involuntary_switches: u64,
}

impl Seen {
    pub const fn is_clean(&self) -> bool {
        matches!(
            self,
            Self {
                minor_faults: 0,
                major_faults: 0,
                voluntary_switches: 0,
                involuntary_switches: 0
            }
        )
    }

    fn now() -> Self {
        // SAFETY: a rusage is plain numbers, for which all zeros is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one rusage into `usage`; RUSAGE_THREAD exists on every Linux.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        Self {
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
        }
    }

    fn add(&mut self, more: Self) {
        self.minor_faults = self.minor_faults.saturating_add(more.minor_faults);
        self.major_faults = self.major_faults.saturating_add(more.major_faults);
        self.voluntary_switches = self.voluntary_switches.saturating_add(more.voluntary_switches);
        self.involuntary_switches =
            self.involuntary_switches.saturating_add(more.involuntary_switches);
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} page faults ({} from disk), {} sleeps or blocking calls, {} preemptions",
            self.minor_faults.saturating_add(self.major_faults),
            self.major_faults,
            self.voluntary_switches,
            self.involuntary_switches
        )
    }
}

/// A watched section, from [`Watch::enter`] to [`Watch::leave`], both on one thread.
#[derive(Debug)]
pub struct Watch {
    before: Seen,
    // What getrusage counts belongs to the calling thread.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Watch {
    /// Bounded; one system call; allocates nothing.
    pub fn enter() -> Self {
        Self { before: Seen::now(), _of_this_thread: std::marker::PhantomData }
    }

    /// Bounded; one system call; allocates nothing.
    pub fn leave(self) -> Seen {
        Seen::now().since(self.before)
    }
}

/// The sum of several sections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub sections: u64,
    /// Sections with a page fault or a switch.
    pub unclean: u64,
    /// The first of them, counted from 1.
    pub first_unclean: Option<u64>,
    pub seen: Seen,
    /// The place of the first one that perf sampled.
    pub suspect: Option<Suspect>,
}

impl Tally {
    pub fn add(&mut self, seen: Seen, suspect: Option<Suspect>) {
        self.sections += 1;
        if !seen.is_clean() {
            self.unclean += 1;
            self.first_unclean.get_or_insert(self.sections);
            self.seen.add(seen);
            self.suspect = self.suspect.or(suspect);
        }
    }

    /// These sections, then those of `later`.
    pub fn merge(&mut self, later: Self) {
        let first_later = later.first_unclean.map(|first| first + self.sections);
        self.first_unclean = self.first_unclean.or(first_later);
        self.sections += later.sections;
        self.unclean += later.unclean;
        self.seen.add(later.seen);
        self.suspect = self.suspect.or(later.suspect);
    }

    /// One line for the user. `None`: there was no page fault and no switch.
    pub fn warning(&self, thread: &str) -> Option<String> {
        let first = self.first_unclean?;
        let place = self.suspect.map(|suspect| format!("; {suspect}")).unwrap_or_default();
        Some(format!(
            "real-time thread {thread}: {} in {} of {} sections (the first: {first}){place}",
            self.seen, self.unclean, self.sections
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::memory::page_bytes;
    use crate::thread::suspects::Stack;
    use std::hint::black_box;

    #[test]
    fn the_first_touch_of_fresh_pages_is_seen_as_page_faults() {
        const PAGES: usize = 64;
        let page_bytes = page_bytes();
        // SAFETY: an anonymous private mapping at a place of the kernel's choice touches no memory
        // of ours.
        let fresh = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * page_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(fresh, libc::MAP_FAILED);
        // SAFETY: the range was mapped above; without huge pages each page faults by itself.
        unsafe { libc::madvise(fresh, PAGES * page_bytes, libc::MADV_NOHUGEPAGE) };
        let watch = Watch::enter();
        for page in 0..PAGES {
            // SAFETY: `page` lies within the mapping.
            let byte = unsafe { fresh.cast::<u8>().add(page * page_bytes) };
            // SAFETY: the byte is mapped for writing, as above.
            unsafe { byte.write_volatile(1) };
        }
        let first = watch.leave();
        assert!(first.minor_faults >= PAGES as u64, "{first}");
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(fresh, PAGES * page_bytes) };
    }

    #[test]
    fn a_sleep_in_the_section_is_a_voluntary_switch_and_pure_work_is_none() {
        let watch = Watch::enter();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(watch.leave().voluntary_switches >= 1);
        let watch = Watch::enter();
        black_box((0..1000u64).sum::<u64>());
        assert_eq!(watch.leave().voluntary_switches, 0);
    }

    #[test]
    fn a_tally_counts_unclean_sections_and_remembers_the_first() {
        let mut tally = Tally::default();
        tally.add(Seen::default(), None);
        assert_eq!(tally.warning("axis"), None);
        let stack = Stack::of([]);
        let at = |address| Some(Suspect::Fault { address, instruction: 1, stack });
        tally.add(Seen { minor_faults: 2, major_faults: 1, ..Seen::default() }, at(7));
        tally
            .add(Seen { voluntary_switches: 5, involuntary_switches: 4, ..Seen::default() }, at(8));
        let mut merged = Tally { sections: 5, ..Tally::default() };
        merged.merge(tally);
        assert_eq!((merged.sections, merged.unclean, merged.first_unclean), (8, 2, Some(7)));
        assert_eq!(
            tally.warning("axis").unwrap(),
            "real-time thread axis: 3 page faults (1 from disk), 5 sleeps or blocking calls, 4 \
             preemptions in 2 of 3 sections (the first: 2); a page fault at 0x7, by 0x1"
        );
    }
}
