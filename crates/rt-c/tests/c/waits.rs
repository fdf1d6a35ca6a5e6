// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits: their descriptors, and what ends them.

use crate::place::Place;
use crate::{compile, library, root};

#[test]
fn each_wait_has_a_descriptor_and_is_ended_by_a_thread_a_handler_and_pthread_cancel() {
    for extension in ["so", "a"] {
        let place = Place::new();
        let program = place.path("wait_calls");
        compile(&[root().join("tests/wait_calls.c")], &[], library(extension), &program);
        place.tries_all_calls(&program, &[]);
    }
}
