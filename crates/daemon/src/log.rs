// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last events, numbered, as other programs read them. Pure.

use crate::hold::{Event, Record, Violation};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events that are kept.
pub const MOST_KEPT: usize = 1000;

/// The type `Event` of org.asmp.Hold, where each field is explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub number: u64,
    pub time_us: u64,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Of one that entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
    pub cause: String,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Repaired,
    Ended,
    Stays,
    Entered,
    Told,
    Granted,
    Refused,
    StormBegan,
    StormEnded,
    Failed,
    /// Of another version.
    #[serde(other)]
    Other,
}

impl Entry {
    fn of(record: &Record, number: u64, time_us: u64) -> Self {
        let of = |kind, violation: Option<&Violation>| Self {
            number,
            time_us,
            kind,
            partition: violation.map(|one| one.partition.clone()),
            what: violation.map(|one| one.what.clone()),
            task: None,
            after_us: None,
            cure: None,
            cause: record.cause.clone(),
            text: record.to_string(),
        };
        match &record.event {
            Event::Repaired { violation, after_ns } => {
                Self { after_us: Some(after_ns / 1000), ..of(Kind::Repaired, Some(violation)) }
            }
            Event::Ended { violation } => of(Kind::Ended, Some(violation)),
            Event::Stays { violation, cure } => {
                Self { cure: Some(cure.clone()), ..of(Kind::Stays, Some(violation)) }
            }
            Event::Entered { partition, task, command } => Self {
                partition: Some(partition.clone()),
                what: Some(command.clone()),
                task: Some(*task),
                ..of(Kind::Entered, None)
            },
            Event::Told { what } => Self { what: Some(what.clone()), ..of(Kind::Told, None) },
            Event::Granted { partition, what } => Self {
                partition: Some(partition.clone()),
                what: Some(what.clone()),
                ..of(Kind::Granted, None)
            },
            Event::Refused { what } => Self { what: Some(what.clone()), ..of(Kind::Refused, None) },
            Event::StormBegan { .. } => of(Kind::StormBegan, None),
            Event::StormEnded => of(Kind::StormEnded, None),
            Event::Failed { .. } => of(Kind::Failed, None),
        }
    }
}

/// The last [`MOST_KEPT`] events.
#[derive(Debug, Default)]
pub struct Log {
    kept: VecDeque<Arc<Entry>>,
    last: u64,
}

impl Log {
    /// Keeps one, as of this time of day, and drops the oldest where there are too many.
    pub fn push(&mut self, record: &Record, time_us: u64) {
        self.last += 1;
        self.kept.push_back(Arc::new(Entry::of(record, self.last, time_us)));
        if self.kept.len() > MOST_KEPT {
            self.kept.pop_front();
        }
    }

    /// The time of the last one, in microseconds since 1970; 0: there is none yet.
    pub fn last_us(&self) -> u64 {
        self.kept.back().map_or(0, |entry| entry.time_us)
    }

    /// Those with a greater number, the oldest first. `None`: there was no event of that number, or
    /// some after it are kept no more.
    pub fn after(&self, number: u64) -> Option<impl Iterator<Item = &Arc<Entry>>> {
        let known = number.checked_sub(self.oldest())?;
        (number <= self.last).then(|| self.kept.iter().skip(known as usize))
    }

    /// The number before that of the oldest event that is kept.
    pub fn oldest(&self) -> u64 {
        self.last - self.kept.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(at_ns: u64) -> Record {
        Record { at_ns, event: Event::Failed { why: "no /proc".to_owned() }, cause: String::new() }
    }

    #[test]
    fn the_last_thousand_are_kept_under_their_numbers() {
        let mut log = Log::default();
        assert_eq!(log.after(0).unwrap().count(), 0);
        (1..=2500).for_each(|number| log.push(&failed(number), number));
        let numbers =
            |after| -> Vec<u64> { log.after(after).unwrap().map(|one| one.number).collect() };
        assert_eq!(log.oldest(), 1500);
        assert_eq!(numbers(1500), (1501..=2500).collect::<Vec<_>>());
        assert_eq!(numbers(2498), [2499, 2500]);
        assert!(numbers(2500).is_empty());
        assert!(log.after(1499).is_none() && log.after(2501).is_none());
    }

    #[test]
    fn an_event_says_what_and_how_long_and_in_words() {
        let violation = Violation { partition: "motion".to_owned(), what: "IRQ 4".to_owned() };
        let event = Event::Repaired { violation, after_ns: 1_501_000 };
        let record = Record { at_ns: 7, event, cause: "a link".to_owned() };
        let json = serde_json::to_value(Entry::of(&record, 3, 9)).unwrap();
        let text = "motion: IRQ 4: repaired 1.5 ms after the notice (a link)";
        assert_eq!(
            json,
            serde_json::json!({"number": 3, "time_us": 9, "kind": "repaired", "what": "IRQ 4",
                "partition": "motion", "after_us": 1501, "cause": "a link", "text": text})
        );
    }
}
