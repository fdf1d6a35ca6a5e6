// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all entries of a task file share: errors with their place, names, times.

use crate::task::{MAX_TICKS, is_name};
use crate::time::TimeBase;
use asmp_duration::ExactDuration;
use toml::Spanned;

/// Why a text is not a task set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    #[error("{reason}")]
    Syntax { reason: String },
    /// What is wrong with one entry. `place` is its name, or its line where it has none.
    #[error("{place}: {reason}")]
    Entry { place: String, reason: String },
    /// Times as ticks of one common length need more than 64 bits.
    #[error(
        "line {line}: duration {text:?}: no tick divides all times up to this one and fits 64 \
         bits; use fewer different fractions and rates"
    )]
    TimeBase { line: usize, text: String },
    /// Nothing that could be analysed.
    #[error("there is no task: describe each in a [[task]] with name, cost and period")]
    NoTasks,
}

/// Reads an entry. Errors: with the line of the key that they begin with, else of the entry.
pub(super) fn in_line<E, T>(
    text: &str,
    entry: Spanned<E>,
    read: impl FnOnce(E) -> Result<T, FileError>,
) -> Result<T, FileError> {
    let start = entry.span().start;
    read(entry.into_inner()).map_err(|error| {
        let reason = match &error {
            FileError::Entry { reason, .. } => reason.as_str(),
            _ => "",
        };
        let is_letter = |c: char| c.is_ascii_alphabetic();
        let key = &reason[..reason.find(|c| !is_letter(c)).unwrap_or(reason.len())];
        let line = line_of_key(text, start, key).unwrap_or_else(|| line_at(text, start));
        match error {
            FileError::Entry { place, reason } => {
                FileError::Entry { place: format!("line {line}, {place}"), reason }
            }
            FileError::Syntax { reason } => {
                FileError::Syntax { reason: format!("line {line}, {reason}") }
            }
            other => other,
        }
    })
}

/// The line, from 1, of a byte of the text.
pub(super) fn line_at(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|byte| *byte == b'\n').count() + 1
}

/// The line of a key of the entry that begins at this byte. `None`: the entry does not have it on a
/// line of its own.
pub(super) fn line_of_key(text: &str, start: usize, key: &str) -> Option<usize> {
    let header = line_at(text, start);
    let mut lines = (header + 1..).zip(text.lines().skip(header));
    let mut keys = lines.by_ref().take_while(|(_, line)| !line.trim_start().starts_with('['));
    let has_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key).filter(|_| !key.is_empty());
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    keys.find(|(_, line)| has_key(line)).map(|(number, _)| number)
}

/// The first letters of a text of the file.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(super) fn named(kind: &str, name: &str) -> Result<(), FileError> {
    match is_name(name) {
        true => Ok(()),
        false => {
            let place = format!("{kind} {:?}", shown(name));
            Err(FileError::Entry { place, reason: format!("name: {NAME}") })
        }
    }
}

pub(super) const NAME: &str =
    "invalid: use 1 to 64 characters, none of them a control character or invisible";

pub(super) fn bad(kind: &str, name: &str, reason: impl Into<String>) -> FileError {
    FileError::Entry { place: format!("{kind} {name}"), reason: reason.into() }
}

/// A time of a field in ticks. Errors: the field and why.
pub(super) fn ticks(time: TimeBase, field: &str, text: &str) -> Result<u64, String> {
    let duration: ExactDuration = text.parse().map_err(|error| format!("{field}: {error}"))?;
    time.ticks(duration).ok_or_else(|| too_long(time, field))
}

pub(super) fn too_long(time: TimeBase, field: &str) -> String {
    let finer =
        if time == TimeBase::NANOSECONDS { "" } else { ", the longest for such fine fractions" };
    format!("{field} is longer than {}{finer}", time.longest())
}

/// A time above 0, and no longer than the tests take.
pub(super) fn above_0(
    time: TimeBase,
    kind: &str,
    name: &str,
    field: &str,
    text: &str,
) -> Result<u64, FileError> {
    match ticks(time, field, text).map_err(|reason| bad(kind, name, reason))? {
        0 => Err(bad(kind, name, format!("{field} is 0"))),
        long if long > MAX_TICKS => Err(bad(kind, name, too_long(time, field))),
        value => Ok(value),
    }
}
