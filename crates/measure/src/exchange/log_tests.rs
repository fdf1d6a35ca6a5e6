// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logs of HdrHistogram that other programs wrote.

use super::hdr::from_hdr;
use crate::histogram::Latencies;
use crate::hlog::{Recorder, Writer};
use crate::sample::Sample;
use std::time::UNIX_EPOCH;

/// Two seconds without a tag and one with it, without what only asmp writes.
fn log(tag: &str) -> String {
    let mut log = Writer::new(Vec::new(), UNIX_EPOCH).unwrap();
    log.second(0, None, &Latencies::of([1_000, 2_000])).unwrap();
    log.second(1, Some(tag), &Latencies::of([7_000])).unwrap();
    log.second(1, None, &Latencies::of([3_000])).unwrap();
    String::from_utf8(log.finish().unwrap()).unwrap().replace("#[Logged with asmp]\n", "")
}

/// Name, counts and state of each column.
fn columns(text: &str) -> Vec<(String, u64, Option<String>)> {
    let columns = from_hdr(text, None).unwrap().into_iter();
    columns.map(|one| (one.name, one.latencies.instants(), one.partial)).collect()
}

#[test]
fn a_tag_of_another_program_is_a_column_whatever_its_name() {
    for tag in ["read", "missed"] {
        let found = columns(&log(tag));
        assert_eq!(found, [("all".into(), 3, None), (tag.to_owned(), 1, None)]);
    }
}

#[test]
fn a_log_of_ours_that_a_kill_has_cut_keeps_its_missed_instants_and_is_partial() {
    let mut log = Recorder::new(Vec::new(), UNIX_EPOCH, Some(1_000_000)).unwrap();
    for second in 0..3 {
        let sample =
            Sample { due_ns: second * 1_000_000_000, value_ns: 4_500_000, ..Sample::default() };
        log.sample(&sample).unwrap();
    }
    let text = String::from_utf8(log.finish(0).unwrap().1).unwrap();
    let whole = &from_hdr(&text, None).unwrap()[0];
    assert_eq!((whole.latencies.known_missed(), &whole.partial), (Some(12), &None));
    let killed = &text[..text.find("#[asmp ").unwrap()];
    let [column] = from_hdr(killed, None).unwrap().try_into().unwrap();
    assert_eq!((column.latencies.instants(), column.latencies.known_missed()), (15, Some(12)));
    assert_eq!(column.partial.as_deref(), Some("cut short: its last comments are missing"));
}

#[test]
fn a_log_without_a_histogram_is_refused() {
    let text = log("read");
    let begin = text.find(",HISTF").unwrap() + 20;
    assert_eq!(from_hdr(&text[..begin], None).unwrap_err(), "its last line is cut");
    let none = from_hdr("#a,HISTFAAAA\n", None).unwrap_err();
    assert_eq!(none, "it has no histogram");
}

#[test]
fn the_last_line_counts_without_its_end_and_a_cut_one_is_told() {
    let text = log("read");
    assert_eq!(columns(text.trim_end())[0], ("all".into(), 3, None));
    let cut = Some("its last line is cut".to_owned());
    assert_eq!(columns(&text[..text.len() - 20])[0], ("all".into(), 2, cut));
}
