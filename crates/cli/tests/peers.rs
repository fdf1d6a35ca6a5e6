// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of asmp and its peers, in README.md and docs/measurements/peers.md, say what the raw
//! figures say (docs/measurements/peers.json, made by `make bench-peers`).

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// What a row counts, in the order of the columns.
const COUNTS: [&str; 6] =
    ["ticks", "foreign_switches", "kernel_switches", "device_irqs", "ipis", "page_faults"];
const WAYS: [&str; 7] =
    ["nothing", "taskset", "systemd", "vfio-isolate", "tuned", "script", "asmp"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rows() -> Vec<Value> {
    let path = root().join("docs/measurements/peers.json");
    let text = fs::read_to_string(path).expect("figures");
    let raw: Value = serde_json::from_str(&text).expect("JSON");
    raw["rows"].as_array().expect("rows").clone()
}

/// The cells of the first table between the markers, without its two lines of heading.
fn table(document: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join(document)).expect("the document");
    let (_, text) = text.split_once("<!-- peers: begin").expect("a marker");
    let (text, _) = text.split_once("<!-- peers: end -->").expect("a marker");
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let lines = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.map(cells).collect()
}

/// Of three: the middle one.
fn medians(row: &Value) -> Vec<String> {
    let counts = row["counts"].as_array().expect("counts");
    assert_eq!(counts.len(), 3, "{}: three repetitions", row["row"]);
    let median = |kind: &str| {
        let mut all: Vec<u64> =
            counts.iter().map(|count| count[kind].as_u64().expect("a count")).collect();
        all.sort_unstable();
        all[1].to_string()
    };
    COUNTS.map(median).to_vec()
}

fn length(list: &Value) -> usize {
    list.as_array().expect("a list").len()
}

/// After the undo, after a kill, after a kill and the undo; of several kills the worst.
fn left(row: &Value) -> Vec<String> {
    let kills = row["kills"].as_array().expect("kills");
    let worst = |what: &str| match kills.iter().map(|kill| length(&kill[what])).max() {
        Some(worst) => worst.to_string(),
        None => "no set-up".to_owned(),
    };
    vec![length(&row["left"]).to_string(), worst("left"), worst("left_after_undo")]
}

#[test]
fn the_tables_of_peers_show_the_medians_of_the_raw_figures() {
    let rows = rows();
    let full = table("docs/measurements/peers.md");
    let short = table("README.md");
    assert_eq!((full.len(), short.len()), (rows.len(), rows.len()));
    for ((row, full), short) in rows.iter().zip(full).zip(short) {
        let (medians, left) = (medians(row), left(row));
        let lines = row["lines"].to_string();
        assert_eq!(full[0], short[0]);
        assert_eq!(full[1..7], medians, "{}, peers.md", row["row"]);
        assert_eq!(full[8..11], left, "{}, peers.md", row["row"]);
        assert_eq!(full[11], lines, "{}, peers.md", row["row"]);
        assert_eq!(short[1..6], medians[..5], "{}, README", row["row"]);
        assert_eq!(short[6..], [left[0].clone(), left[2].clone(), lines], "{}, README", row["row"]);
    }
}

#[test]
fn each_way_has_a_row_that_ran_to_its_end() {
    let rows = rows();
    let ways: Vec<&str> = rows.iter().map(|row| row["row"].as_str().expect("a name")).collect();
    assert_eq!(ways, WAYS);
    for row in rows {
        assert!(row.get("error").is_none(), "{}: {}", row["row"], row["error"]);
        for count in row["counts"].as_array().expect("counts") {
            assert_eq!(
                count["on_cpu"], 3,
                "{}: the task was on the CPU that is counted",
                row["row"]
            );
            assert_eq!(count["lost_events"], 0, "{}", row["row"]);
        }
    }
}
