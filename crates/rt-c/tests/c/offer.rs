// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Channels for programs of other users.

use crate::place::Place;
use crate::{compile, library, root};
use std::os::unix::fs::PermissionsExt;

#[test]
fn each_call_on_an_offer_answers_as_documented_from_the_shared_and_from_the_static_library() {
    for extension in ["so", "a"] {
        let place = Place::new();
        // Other users look up the socket there.
        let dir = place.path("sockets");
        std::fs::create_dir(&dir).unwrap();
        for open in [&place.path("."), &dir] {
            std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let program = place.path("offer_calls");
        compile(&[root().join("tests/offer_calls.c")], &[], library(extension), &program);
        place.tries_all_calls(&program, &[dir.to_str().unwrap()]);
        assert_eq!(place.links(), [""; 0], "nothing is left");
    }
}
