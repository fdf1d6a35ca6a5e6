// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of other tools: cyclictest `-h` and `-H`, `rtla timerlat hist`, HdrHistogram's logs
//! and percentile text; and what programs read: CSV, JSON, Prometheus. Pure: text to text.
//!
//! A column of another tool counts by whole microseconds (`--nano`: nanoseconds) up to a last
//! bucket. What lies beyond is in n, and its percentiles are "at least" that; the longest is what
//! the tool itself says.

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

/// A heading that may name a directory.
fn named(heading: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_named = heading.len() <= MOST_HEADING
        && heading.starts_with(|c: char| c.is_ascii_alphanumeric())
        && heading.chars().all(is_plain);
    is_named.then(|| heading.to_owned())
}

/// A file is shown by so much of a line of it.
fn shown(line: &str) -> String {
    format!("{:?}", line.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests;
