// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFOs by name: the calls, and what C and Rust see of each other's records.

use crate::place::Place;
use crate::{compile, library, root};
use asmp_channel::{Overflow, Plain, TypedFifo, WaitError, Wake};
use std::path::{Path, PathBuf};
use std::process::Command;

/// As in tests/named_calls.c.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    number: u64,
    value: f64,
    rest: [u8; 8],
}

// SAFETY: numbers only, each of 8 bytes: no padding.
unsafe impl Plain for Sample {}

fn calls(place: &Place, library: &Path) -> PathBuf {
    let program = place.path("named_calls");
    compile(&[root().join("tests/named_calls.c")], &[], library, &program);
    program
}

fn sample(number: u64) -> Sample {
    Sample { number, value: -2.5, rest: [1, 2, 3, 4, 5, 6, 7, 255] }
}

#[test]
fn each_call_on_a_fifo_by_name_answers_as_documented_from_the_shared_and_from_the_static_library() {
    for extension in ["so", "a"] {
        let place = Place::new();
        place.tries_all_calls(&calls(&place, library(extension)), &[]);
        assert_eq!(place.links(), [""; 0], "nothing is left");
    }
}

#[test]
fn records_that_c_puts_are_those_that_rust_gets() {
    let place = Place::new();
    let fifo = TypedFifo::<Sample>::create(&place.path("channels"), "samples", 8, Overflow::Refuse)
        .unwrap();
    let mut reader = fifo.into_reader(Wake::IfAsleep).unwrap();
    let mut writer = place.start(&calls(&place, library("so")), &["write"]);
    let mut next = 0;
    while next < 1000 {
        match reader.wait(None) {
            Ok(()) => {
                assert_eq!(reader.get(), Ok(Some(sample(next))));
                next += 1;
            }
            // It has not come yet.
            Err(error) => assert!(error == WaitError::PeerGone && next == 0, "{error} at {next}"),
        }
    }
    let said = writer.complaint();
    assert!(writer.child.wait().unwrap().success(), "{said}");
    assert_eq!(reader.get(), Ok(None));
}

#[test]
fn records_that_rust_puts_are_those_that_c_gets_and_it_hears_when_the_writer_is_gone() {
    let place = Place::new();
    let fifo = TypedFifo::<Sample>::create(&place.path("channels"), "samples", 8, Overflow::Refuse)
        .unwrap();
    let mut writer = fifo.into_writer(Wake::IfAsleep).unwrap();
    let mut reader = place.start(&calls(&place, library("so")), &["read"]);
    assert_eq!(reader.line(), "open");
    for number in 0..1000 {
        while writer.put(&sample(number)).is_err() {
            writer.wait(1, None).unwrap();
        }
    }
    drop(writer);
    assert_eq!(reader.line(), format!("{} 1", 999 * 1000 / 2), "{}", reader.complaint());
}

#[test]
fn the_example_of_samples_says_each_once_and_in_order_but_for_those_it_counts_as_dropped() {
    let place = Place::new();
    let program = place.path("samples");
    compile(&[root().join("../../examples/rt/c/samples.c")], &[], library("so"), &program);
    let mut early = place.start(&program, &["read"]);
    let said = early.complaint();
    assert!(
        said.starts_with("attach: no channel samples in ")
            && said.ends_with(": create the channel first\n"),
        "{said}"
    );
    assert_eq!(early.child.wait().unwrap().code(), Some(1));

    let mut writer = place.start(&program, &["write", "300"]);
    assert_eq!(writer.line(), "ready");
    let mut reader = place.start(&program, &["read"]);
    let mut numbers: Vec<u64> = Vec::new();
    for line in std::iter::from_fn(|| Some(reader.line()).filter(|line| !line.is_empty())) {
        let number = line.strip_suffix(" ns late").unwrap().split_once(' ').unwrap().0;
        numbers.push(number.parse().unwrap());
    }
    assert!(reader.child.wait().unwrap().success(), "{}", reader.complaint());
    let said = writer.line();
    let dropped =
        said.strip_prefix("300 put, ").and_then(|rest| rest.strip_suffix(" dropped")).unwrap();
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.last() == Some(&299), "{numbers:?}");
    assert_eq!(numbers.len() as u64 + dropped.parse::<u64>().unwrap(), 300, "{numbers:?}, {said}");
    assert!(writer.child.wait().unwrap().success());
}

#[test]
fn an_empty_name_of_the_directory_is_none() {
    let place = Place::new();
    let mut command = Command::new(calls(&place, library("so")));
    let output =
        command.arg("read").env("ASMP_CHANNELS", "").current_dir(place.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // SAFETY: takes nothing and cannot fail.
    let own = format!("no channel samples in /dev/shm/asmp-{}: ", unsafe { libc::geteuid() });
    assert!(said.contains(&own), "{said}");
}
