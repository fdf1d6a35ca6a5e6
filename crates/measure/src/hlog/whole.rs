// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counts of a whole log from its last comments: a log of days has a million lines, and a table
//! needs none of them.

use super::{ByTag, HlogError, Trailer, decode};
use crate::histogram::{Latencies, Rounding};
use std::io::{Read, Seek, SeekFrom};

/// The last comments are in so many bytes.
const MOST_TAIL: u64 = 4 << 20;

/// What [`super::read`] tells, without a look at the seconds. `None` where the last comments do not
/// have it: the log of a killed run, of a full disk, of another program or of an older asmp. Then
/// the seconds have to be added up.
pub fn whole(mut from: impl Read + Seek) -> Result<Option<ByTag>, HlogError> {
    let length = from.seek(SeekFrom::End(0))?;
    from.seek(SeekFrom::Start(length.saturating_sub(MOST_TAIL)))?;
    let mut tail = Vec::new();
    from.take(MOST_TAIL).read_to_end(&mut tail)?;
    Ok(of_tail(&tail))
}

/// The line before the comments must be there: else the first of them may be missing.
fn of_tail(tail: &[u8]) -> Option<ByTag> {
    let mut all = ByTag::new();
    for line in tail.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n') {
        let Some(json) = line.strip_prefix(b"#[asmp ") else {
            return (!all.is_empty()).then_some(all);
        };
        let trailer: Trailer = serde_json::from_slice(json.strip_suffix(b"]")?).ok()?;
        let counts = trailer.counts.as_ref()?;
        let [instants, missed] = counts.each_ref().map(|text| decode(text));
        let missed = if counts[1].is_empty() { None } else { Some(missed.ok()?) };
        let mut latencies = match instants {
            Ok(instants) => Latencies::of_counts(&instants, missed.as_ref()).ok()?,
            Err(_) if counts[0].is_empty() => Latencies::default(),
            Err(_) => return None,
        };
        let Trailer { tag, sampled, missed, lost, beyond, spread_ns, cut_ns, .. } = trailer;
        let rounding = Rounding { spread_ns, cut_ns };
        latencies.correct((sampled, missed), lost, beyond, rounding)?;
        all.insert(tag, latencies);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Recorder, Writer, read};
    use super::*;
    use crate::sample::Sample;
    use std::io::Cursor;
    use std::time::UNIX_EPOCH;

    /// Three seconds of samples with a stall and with other times, and their log.
    fn log() -> Vec<u8> {
        let mut recorder = Recorder::new(Vec::new(), UNIX_EPOCH, Some(1_000_000)).unwrap();
        for turn in (0..3000).filter(|turn| !(500..540).contains(turn)) {
            let value_ns = if turn == 499 { 40_000_001 } else { 5_000 + turn % 77 };
            let (due_ns, thread_ns) = (turn * 1_000_000, Some(value_ns / 2));
            let sample = Sample { due_ns, value_ns, thread_ns, ..Sample::default() };
            recorder.sample(&sample).unwrap();
        }
        recorder.finish(7).unwrap().1
    }

    #[test]
    fn the_last_comments_tell_the_same_as_all_seconds() {
        let log = log();
        let all = read(log.as_slice(), |_| ()).unwrap();
        assert!(all.len() > 1 && all[&None].missed() == 40 && all[&None].lost() == 7);
        assert_eq!(whole(Cursor::new(&log)).unwrap(), Some(all.clone()));
        // Whatever the lines before them are: none is looked at.
        let text = String::from_utf8(log).unwrap();
        let at = text.find("#[asmp").unwrap();
        let other = format!("{}\n{}", "garbage\n".repeat(1 << 20), &text[at..]);
        assert_eq!(whole(Cursor::new(other)).unwrap(), Some(all));
        let mut empty = Writer::new(Vec::new(), UNIX_EPOCH).unwrap();
        empty.exact(None, &Latencies::default()).unwrap();
        let none = whole(Cursor::new(empty.finish().unwrap())).unwrap().unwrap();
        assert_eq!(none[&None], Latencies::default());
    }

    #[test]
    fn comments_that_do_not_have_the_whole_are_not_used() {
        let text = String::from_utf8(log()).unwrap();
        let refused = |text: &str| assert_eq!(whole(Cursor::new(text)).unwrap(), None);
        let at = text.find("#[asmp").unwrap();
        refused(&text[..at]);
        refused(&text[..text.len() - 1]);
        refused(&text[..text.len() - 9]);
        refused(&text[at..]);
        refused(&(text.clone() + "3.000,1.000,5.000,AAAA\n"));
        refused(&text.replace("\"count\":2960", "\"count\":2961"));
        let counts = text.rfind(",\"counts\":").unwrap();
        refused(&(text[..counts].to_owned() + "}]\n"));
        refused("");
        assert!(whole(Cursor::new(&text)).unwrap().is_some());
    }
}
