// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls: every one of them in two processes, peers that die, and a server in Rust.

use crate::place::Place;
use crate::{compile, library, root};
use asmp_channel::call::{Scheduling, Server, Shape, Want};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SHAPE: Shape = Shape { clients: 2, scheduling: Scheduling::Full, inherit: true };

fn calls(place: &Place, library: &Path) -> PathBuf {
    let program = place.path("call_calls");
    compile(&[root().join("tests/call_calls.c")], &[], library, &program);
    program
}

#[test]
fn each_call_answers_as_documented_from_the_shared_and_from_the_static_library() {
    for extension in ["so", "a"] {
        let place = Place::new();
        place.tries_all_calls(&calls(&place, library(extension)), &[]);
    }
}

#[test]
fn a_client_in_c_calls_a_server_in_rust() {
    let place = Place::new();
    let mut server = Server::open(&place.path("channels"), "rust", SHAPE).unwrap();
    let mut client = place.start(&calls(&place, library("so")), &["client"]);
    let request = server.receive(Some(Duration::from_secs(180))).unwrap().request.unwrap();
    assert_eq!((request.client, request.priority, request.want), (1, 3, Want::Call));
    assert_eq!(request.message, [0, 1, 2, 3, 4, 5, 6, 7].map(|at| 0xffff_ffff_ffff_ff00 + at));
    server.reply(&request.message.map(|word| word << 4)).unwrap();
    let answer: String = (0..8).map(|at| format!("fffffffffffff0{at}0 ")).collect();
    assert_eq!(client.line(), answer.trim_end());
    assert!(client.child.wait().unwrap().success());
}

#[test]
fn a_server_of_another_version_is_refused_with_both() {
    let place = Place::new();
    let _server = Server::open(&place.path("channels"), "old", SHAPE).unwrap();
    let link = place.path("channels").join(&place.links()[0]);
    let file = std::fs::File::options().write(true).open(link).unwrap();
    // The second word of what stands before the body.
    file.write_all_at(&2u64.to_ne_bytes(), 8).unwrap();
    let mut refused = place.start(&calls(&place, library("so")), &["old"]);
    assert_eq!(
        refused.line(),
        "1 channel old does not match: it has version 2, this program has 1"
    );
}
