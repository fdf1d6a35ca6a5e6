//! A run as a trace that Perfetto and chrome://tracing open (Chrome's trace event format, JSON object form): a process a
//! CPU, a thread a task, complete events (`X`) for segments, instants (`i`) for releases and misses. Times in microseconds
//! with three decimals, as the format wants.

use super::{Record, Run};
use std::fmt::Write;

fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// The same run gives the same bytes.
pub fn trace(run: &Run, record: &Record) -> String {
    let mut events = Vec::with_capacity(record.segments.len() + record.releases.len());
    for (core, cpu) in run.cpus.iter().enumerate() {
        events.push(format!(
            r#"{{"name":"process_name","ph":"M","pid":{core},"args":{{"name":"CPU {cpu}"}}}}"#
        ));
    }
    let names: Vec<String> =
        run.names.iter().map(|name| serde_json::Value::from(name.as_str()).to_string()).collect();
    for (stream, name) in names.iter().enumerate() {
        let core = run.core_of(stream);
        events.push(format!(
            r#"{{"name":"thread_name","ph":"M","pid":{core},"tid":{stream},"args":{{"name":{name}}}}}"#
        ));
    }
    for segment in &record.segments {
        let (name, core, stream, job) = (&names[segment.stream], segment.core, segment.stream, segment.job);
        let (from, length) = (us(segment.from_ns), us(segment.to_ns - segment.from_ns));
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
            (run.core_of(instant.stream), instant.stream, instant.job, us(instant.at_ns));
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
