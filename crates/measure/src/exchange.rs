// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of other tools: cyclictest `-h` and `-H`, `rtla timerlat hist`, HdrHistogram's logs
//! and percentile text; and what programs read: CSV, JSON, Prometheus. Pure: text to text.
//!
//! A column of another tool counts by whole microseconds (`--nano`: nanoseconds) up to a last
//! bucket. What lies beyond is in n, and its percentiles are "at least" that. Least, average and
//! longest are what the tool itself says. Such tools pass over the periods that they miss: how many
//! that were is not known of an import, and its figures are of samples alone.

mod cyclictest;
mod hdr;
mod json;
mod prometheus;
mod rows;
mod rtla;
mod table;

pub use cyclictest::{from_cyclictest, to_cyclictest};
pub use hdr::{from_hdr, to_hdr};
pub use json::Document;
pub use prometheus::{Exported, to_prometheus};
pub use rows::Rows;
pub use rtla::{from_rtla, to_rtla};
pub use table::{csv_heading, csv_line};

use crate::histogram::Latencies;
use crate::run::{Experiment, Run, Source};
use std::str::FromStr;

/// Longer headings than rtla has.
const MOST_HEADING: usize = 32;

/// One column of another tool's file.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// As the tool calls it, and safe as the name of a directory: letters, digits and '-'.
    pub name: String,
    pub latencies: Latencies,
    /// Why some of what the tool measured may be missing.
    pub partial: Option<String>,
}

/// Formats that `asmp measure` writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Cyclictest,
    Rtla,
    Hdr,
    Csv,
    Json,
    Prometheus,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "cyclictest" => Self::Cyclictest,
            "rtla" => Self::Rtla,
            "hdr" => Self::Hdr,
            "csv" => Self::Csv,
            "json" => Self::Json,
            "prometheus" => Self::Prometheus,
            _ => {
                let expected = "cyclictest, rtla, hdr, csv, json or prometheus";
                return Err(format!("invalid format {text:?}: expected {expected}"));
            }
        })
    }
}

/// How a comment of ours begins that says why a run is partial; in HdrHistogram's text it ends with
/// a bracket.
const PARTIAL: &str = "asmp: partial: ";
const WITH_MISSED: &str = "asmp: all instants of the period, the missed ones included";

/// An export as text with comments on what its format has no place for.
pub fn noted(text: String, to: Format, run: &Run) -> String {
    let partial = run.provenance.partial.as_ref().map(|why| format!("{PARTIAL}{why}"));
    let is_of_all =
        run.provenance.experiment == Experiment::Latency && run.provenance.source != Source::Import;
    let notes = partial.into_iter().chain(is_of_all.then(|| WITH_MISSED.to_owned()));
    // A reason is one line, as another program reads it.
    let notes = notes.map(|note| note.replace(char::is_control, " "));
    match to {
        Format::Hdr => text + &notes.map(|note| format!("#[{note}]\n")).collect::<String>(),
        _ => notes.map(|note| format!("# {note}\n")).collect::<String>() + &text,
    }
}

/// Why what was exported is partial, as [`noted`] has written it.
pub fn partial(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let note = line.strip_prefix("# ");
        let note = note.or_else(|| line.strip_prefix("#[")?.strip_suffix(']'))?;
        note.strip_prefix(PARTIAL).map(str::to_owned)
    })
}

/// A heading that may name a directory.
pub fn named(heading: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_named = heading.len() <= MOST_HEADING
        && heading.starts_with(|c: char| c.is_ascii_alphanumeric())
        && heading.chars().all(is_plain);
    is_named.then(|| heading.to_owned())
}

/// A last line without its end may lack digits.
fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

/// A file is shown by so much of a line of it.
fn shown(line: &str) -> String {
    format!("{:?}", line.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod rounded_tests;
#[cfg(test)]
mod tests;
