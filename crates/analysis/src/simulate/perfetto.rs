// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as a trace that Perfetto and chrome://tracing open (Chrome's trace event format, JSON
//! object form): a process a CPU, a thread a task, complete events (`X`) for segments, instants
//! (`i`) for releases and misses. Times in microseconds with three decimals, as the format wants.

use super::record::Record;
use super::run::Run;
use crate::time::TimeBase;
use std::fmt::Write;

fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            // Writing to a String does not fail.
            c if c.is_control() => drop(write!(json, "\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json + "\""
}

/// The same run gives the same bytes. Instants are rounded down to nanoseconds.
pub fn perfetto_trace(run: &Run, record: &Record, time: TimeBase) -> String {
    let ns = |ticks: u64| ticks / time.ticks_per_ns();
    let mut events = Vec::with_capacity(record.segments.len() + record.releases.len());
    for (core, cpu) in run.cpus.iter().enumerate() {
        events.push(format!(
            r#"{{"name":"process_name","ph":"M","pid":{core},"args":{{"name":"CPU {cpu}"}}}}"#
        ));
    }
    let names: Vec<String> = run.names.iter().map(|name| quoted(name)).collect();
    for (stream, name) in names.iter().enumerate() {
        let core = run.core_of(stream);
        events.push(format!(
            r#"{{"name":"thread_name","ph":"M","pid":{core},"tid":{stream},"args":{{"name":{name}}}}}"#
        ));
    }
    for segment in &record.segments {
        let (name, core, stream, job) =
            (&names[segment.stream], segment.core, segment.stream, segment.job);
        let (from, length) =
            (us(ns(segment.from_ticks)), us(ns(segment.to_ticks) - ns(segment.from_ticks)));
        events.push(format!(
            r#"{{"name":{name},"cat":"job","ph":"X","ts":{from},"dur":{length},"pid":{core},"tid":{stream},"args":{{"job":{job}}}}}"#
        ));
    }
    let instants = record
        .releases
        .iter()
        .map(|at| ("release", at))
        .chain(record.misses.iter().map(|at| ("deadline missed", at)));
    for (what, instant) in instants {
        let (core, stream, job, at) =
            (run.core_of(instant.stream), instant.stream, instant.job, us(ns(instant.at_ticks)));
        events.push(format!(
            r#"{{"name":"{what}","cat":"instant","ph":"i","s":"t","ts":{at},"pid":{core},"tid":{stream},"args":{{"job":{job}}}}}"#
        ));
    }
    let mut text = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    for (index, event) in events.iter().enumerate() {
        let end = if index + 1 < events.len() { ",\n" } else { "\n" };
        // Writing to a String does not fail.
        let _ = write!(text, "{event}{end}");
    }
    text.push_str("]}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_from_its_json() {
        for name in ["axis", "a \"b\" \\ c", "\u{0}\u{1b}\n\u{7f}\u{85}", "µ → 漢"] {
            assert_eq!(serde_json::from_str::<String>(&quoted(name)).unwrap(), name);
        }
    }
}
