// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts and percentiles beside an independent model (oracle/model.py, Python's standard library),
//! and logs as that model reads them. `ASMP_TIER=nightly`: up to 10^6 samples.

use asmp_measure::histogram::{Latencies, Quantile};
use asmp_measure::hlog::{self, Recorder};
use asmp_measure::sample::Sample;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::UNIX_EPOCH;

/// `None` where there is no Python: in CI that is a failure.
fn model(arguments: &[&str]) -> Option<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/model.py");
    let output = Command::new("python3").arg(script).args(arguments).output();
    let is_ci = std::env::var_os("ASMP_CI").is_some_and(|value| !value.is_empty());
    match output {
        Err(_) if !is_ci => {
            println!("skipped: no python3 on this machine");
            None
        }
        output => {
            let output = output.expect("python3 starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            Some(output)
        }
    }
}

/// A value in buckets is the true one, or at most a 1024th above it.
fn is_within(found_ns: u64, true_ns: u64) -> bool {
    found_ns >= true_ns && found_ns - true_ns <= true_ns / 1024
}

fn alike(found: f64, truth: f64) -> bool {
    (found - truth).abs() <= 1e-9 * truth.abs().max(1.0)
}

/// What a case says, and whether the latencies say the same.
fn agree(case: &Value, latencies: &Latencies) {
    let name = &case["name"];
    let number = |key: &str| case[key].as_u64().expect("a number");
    let exact = latencies.exact();
    assert_eq!(latencies.instants(), number("n"), "{name}");
    assert_eq!((latencies.missed(), latencies.lost()), (number("missed"), 0), "{name}");
    assert_eq!((exact.min_ns, exact.max_ns), (Some(number("min_ns")), Some(number("max_ns"))));
    let (average, deviation) = (exact.average_ns().unwrap(), exact.deviation_ns().unwrap());
    assert!(alike(average, case["average_ns"].as_f64().unwrap()), "{name}: {average}");
    assert!(alike(deviation, case["deviation_ns"].as_f64().unwrap()), "{name}: {deviation}");
    for (one_in, truth) in case["quantiles"].as_object().unwrap() {
        let found = latencies.quantile(one_in.parse().unwrap());
        match (found, truth.as_u64()) {
            (Quantile::At { ns }, Some(truth)) => {
                assert!(is_within(ns, truth), "{name}: 1 in {one_in}: {ns}, not {truth}");
            }
            (found, truth) => assert_eq!((found, truth), (Quantile::Unsupported, None), "{name}"),
        }
    }
    let (above, truth) = (latencies.above(number("limit_ns")), number("above"));
    assert!((above.at_least..=above.at_most).contains(&truth), "{name}: {above:?}, not {truth}");
    // No more is left open than what lies that close to the limit.
    assert!(above.at_most - above.at_least <= number("limit_alike"), "{name}: {above:?}");
}

/// Every case, counted as its samples come, and its log.
fn each_case(dir: &Path, mut see: impl FnMut(&Value, Latencies, Vec<u8>)) -> usize {
    let text = std::fs::read_to_string(dir.join("cases.jsonl")).unwrap();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let bytes = std::fs::read(dir.join(case["file"].as_str().unwrap())).unwrap();
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect();
        let period_ns = case["period_ns"].as_u64();
        let mut recorder = Recorder::new(Vec::new(), UNIX_EPOCH, period_ns).unwrap();
        for sample in words.chunks_exact(2) {
            let (due_ns, value_ns) = (sample[0], sample[1]);
            recorder.sample(&Sample { due_ns, value_ns, ..Sample::default() }).unwrap();
        }
        let (latencies, log) = recorder.finish(0).unwrap();
        see(&case, latencies, log);
    }
    text.lines().count()
}

#[test]
fn counts_and_percentiles_are_those_of_an_independent_model() {
    let dir = tempfile::tempdir().unwrap();
    let nightly = std::env::var("ASMP_TIER").is_ok_and(|tier| tier == "nightly");
    let most = if nightly { "1000000" } else { "100000" };
    if model(&["cases", dir.path().to_str().unwrap(), most]).is_none() {
        return;
    }
    let cases = each_case(dir.path(), |case, latencies, log| {
        agree(case, &latencies);
        // Written and read again nothing has changed.
        let read = hlog::read(log.as_slice(), |_| ()).unwrap();
        assert_eq!(read[&None], latencies, "{}", case["name"]);
    });
    assert!(cases > 3000, "{cases}");
}

#[test]
fn a_log_is_what_another_reader_of_the_format_reads() {
    let dir = tempfile::tempdir().unwrap();
    if model(&["cases", dir.path().to_str().unwrap(), "1000"]).is_none() {
        return;
    }
    let (mut paths, mut expected) = (Vec::new(), Vec::new());
    each_case(dir.path(), |case, latencies, log| {
        if case["name"].as_str().unwrap().contains("period 11") || case["n"].as_u64() > Some(900) {
            let path = dir.path().join(format!("{}.hlog", paths.len()));
            std::fs::write(&path, log).unwrap();
            paths.push(path.to_str().unwrap().to_owned());
            expected.push(latencies);
        }
    });
    let arguments: Vec<&str> =
        ["read"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let said = String::from_utf8(model(&arguments).unwrap().stdout).unwrap();
    assert!(expected.len() > 50);
    for (line, latencies) in said.lines().zip(&expected) {
        let read: Value = serde_json::from_str(line).unwrap();
        let mut counts: BTreeMap<u64, u64> =
            serde_json::from_value(read["tags"][""].clone()).unwrap();
        for bucket in latencies.buckets() {
            assert_eq!(counts.remove(&bucket.from_ns), Some(bucket.instants), "{bucket:?}");
        }
        assert!(counts.is_empty(), "{counts:?}");
        let missed: BTreeMap<u64, u64> =
            serde_json::from_value(read["tags"]["missed"].clone()).unwrap_or_default();
        assert_eq!(missed.values().sum::<u64>(), latencies.missed());
    }
    assert_eq!(said.lines().count(), expected.len());
}
