// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mbuffs and records: the calls, the classic counter, and what C and Rust see of each other's.

use crate::place::{Place, until};
use crate::{compile, library, permitted, root, rtlinux, shims};
use asmp_channel::{Mbuff, Pages, Plain, Record};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn each_mbuff_call_answers_as_documented_from_the_shared_and_from_the_static_library() {
    for extension in ["so", "a"] {
        let place = Place::new();
        place.tries_all_calls(&calls(&place, library(extension)), &[]);
        assert_eq!(place.links(), [""; 0], "nothing is left");
    }
}

fn calls(place: &Place, library: &Path) -> PathBuf {
    let program = place.path("mbuff_calls");
    compile(&[root().join("tests/mbuff_calls.c")], &[&shims()], library, &program);
    program
}

#[test]
fn memory_of_another_version_is_refused_with_both() {
    let place = Place::new();
    let old = Mbuff::alloc(&place.path("channels"), "old", 8, Pages::Normal).unwrap();
    let file = File::from(old.shared().as_fd().try_clone_to_owned().unwrap());
    // The second word of what stands before the bytes.
    file.write_all_at(&2u64.to_ne_bytes(), 8).unwrap();
    let mut refused = place.start(&calls(&place, library("so")), &["old"]);
    assert_eq!(
        refused.line(),
        "1 channel old does not match: it has version 2, this program has 1"
    );
}

/// As in tests/mbuff_calls.c.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    number: u64,
    value: f64,
    small: [i32; 3],
    flags: [u8; 4],
}

// SAFETY: numbers only, of 8, 8, 12 and 4 bytes one after the other: no padding.
unsafe impl Plain for Sample {}

#[test]
fn a_record_is_the_same_to_c_and_to_rust() {
    let place = Place::new();
    let record = Record::<Sample>::alloc(&place.path("channels"), "shared", Pages::Normal).unwrap();
    let sample =
        Sample { number: 1 << 40, value: -2.5, small: [-1, 0, 1 << 20], flags: [1, 2, 3, 254] };
    // Lets the role go before the other side takes it.
    let attach = || Record::<Sample>::attach(&place.path("channels"), "shared").unwrap();
    attach().writer().unwrap().write(&sample);
    let mut peer = place.start(&calls(&place, library("so")), &["peer"]);
    let (line, said) = (peer.line(), peer.complaint());
    assert!(peer.child.wait().unwrap().success(), "{said}");
    assert_eq!(line, "1099511627776 -2.5 -1 0 1048576 1 2 3 254");
    let next = Sample {
        number: (1 << 40) + 1,
        value: -1.5,
        small: [0, 1, (1 << 20) + 1],
        flags: [2, 3, 4, 255],
    };
    assert_eq!(record.read(), Ok(Some((2, next))));
}

#[test]
fn an_rtlinux_counter_rebuilds_and_counts_whoever_reads_or_is_killed() {
    let place = Place::new();
    let (counter, reader) = (place.path("mbuff_counter"), place.path("mbuff_reader"));
    rtlinux("mbuff_counter.c", &counter, &[]);
    let source = root().join("../../examples/rt/c/mbuff_reader.c");
    compile(&[source], &[&shims()], library("so"), &reader);
    let mut counter = place.start(&counter, if permitted() { &[] } else { &["-n"] });
    let channels = place.path("channels");
    let mut there = None;
    until(|| {
        assert!(counter.child.try_wait().unwrap().is_none(), "{}", counter.complaint());
        there = Mbuff::attach(&channels, "counter").ok();
        there.is_some()
    });
    let there = there.unwrap();
    assert_eq!(there.bytes(), 16);
    let read = |at: usize| there.words()[at].load(Relaxed);
    until(|| read(0) > 10);
    for _ in 0..3 {
        let mut killed = place.start(&reader, &["1000000"]);
        let first: u64 = killed.line().parse().unwrap();
        let next: u64 = killed.line().parse().unwrap();
        assert!(first > 0 && next > first, "{first} {next}");
        killed.kill();
    }
    let (number, at_ns) = (read(0), read(1));
    until(|| read(0) > number + 100);
    assert!(read(1) > at_ns);
    assert_eq!(counter.end(), "");
    let last = read(0);
    drop(there);
    assert!(
        last > number && Mbuff::attach(&channels, "counter").is_err(),
        "it went with the last who had it"
    );
}
