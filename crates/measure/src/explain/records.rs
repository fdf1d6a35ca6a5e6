// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records that wait for the samples of their windows. Only a sample takes some away, and a stall
//! or a turn may last: of too many the first and the last are kept, and the others counted. Pure.

use asmp_host::tracefs::{Event, EventKind};
use std::collections::VecDeque;

/// Kept from the beginning of a long window, and as many from its end.
const KEPT: usize = 1 << 15;

/// Here records are missing, and with them perhaps a switch.
pub(super) const fn is_missing(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Lost(_) | EventKind::Unreadable)
}

#[derive(Default)]
pub(super) struct Records {
    waiting: VecDeque<Event>,
    /// When the last one was made.
    last_ns: u64,
    /// Those that found no room, in the kernel or here.
    pub lost: u64,
}

impl Records {
    pub fn push(&mut self, event: Event) {
        self.lost += match event.kind {
            EventKind::Lost(count) => count,
            EventKind::Unreadable => 1,
            _ => 0,
        };
        // A loss has no time of its own: it is after the record before it.
        self.last_ns = self.last_ns.max(event.at_ns);
        self.waiting.push_back(Event { at_ns: self.last_ns, ..event });
        if self.waiting.len() == 3 * KEPT {
            self.leave_out();
        }
    }

    /// Puts the middle third together to one that says how many are missing.
    fn leave_out(&mut self) {
        let (mut missing, mut last) = (0, None);
        for event in self.waiting.drain(KEPT..2 * KEPT) {
            missing += if let EventKind::Lost(count) = event.kind { count } else { 1 };
            // The others were counted when they came.
            self.lost += u64::from(!is_missing(&event.kind));
            last = Some(event);
        }
        if let Some(last) = last {
            let kind = EventKind::Lost(missing);
            self.waiting.insert(KEPT, Event { kind, ..last });
        }
    }

    /// Takes the first one away if it is earlier than that.
    pub fn pop_before(&mut self, begin_ns: u64) -> Option<Event> {
        let is_before = self.waiting.front().is_some_and(|event| event.at_ns < begin_ns);
        if is_before { self.waiting.pop_front() } else { None }
    }

    pub fn until(&self, end_ns: u64) -> impl Iterator<Item = &Event> {
        self.waiting.iter().take_while(move |event| event.at_ns <= end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_the_first_and_the_last_are_kept_and_the_others_counted() {
        let mut records = Records::default();
        let all = 10 * KEPT as u64;
        for at_ns in 0..all {
            records.push(Event { at_ns, cpu: 3, kind: EventKind::LocalTimer });
            assert!(records.waiting.len() < 3 * KEPT);
        }
        let kept: Vec<&Event> = records.until(all).collect();
        assert_eq!((kept[KEPT - 1].at_ns, kept[kept.len() - 1].at_ns), (KEPT as u64 - 1, all - 1));
        assert!(kept.is_sorted_by_key(|event| event.at_ns));
        let gap: Vec<&&Event> = kept.iter().filter(|event| is_missing(&event.kind)).collect();
        assert_eq!((gap.len(), &gap[0].kind), (1, &EventKind::Lost(records.lost)));
        assert_eq!(records.lost + kept.len() as u64 - 1, all);
    }
}
