// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the declarations of the guest tests promise, checked where no guest is needed.

use super::guests::{Guest, Tier};
use super::lab::Test;
use super::random;
use libtest_mimic::Trial;
use std::collections::BTreeSet;

pub fn all() -> Vec<Trial> {
    let trial = |name: &str, check: fn()| {
        Trial::test(name, move || {
            check();
            Ok(())
        })
    };
    vec![
        trial("every test runs in a guest that CI boots or nightly does", every_test_has_a_guest),
        trial("every guest that is booted has tests", every_guest_has_tests),
        trial("nightly runs all that CI runs and more", nightly_is_more),
        trial("no two tests have the same name", names_differ),
        trial("a guest is called as test.sh calls it", guests_by_name),
        trial("CI's random sequences have each hand and each command", hands_of_ci),
    ]
}

/// Pairs of guest and test that are run.
fn runs(tier: Tier) -> BTreeSet<(String, String)> {
    let tests = crate::all();
    let guests = tier.guests().iter();
    let of = |guest: &Guest| -> Vec<(String, String)> {
        let here = tests.iter().filter(|test: &&Test| test.runs_in(*guest, tier));
        here.map(|test| (guest.to_string(), test.name.clone())).collect()
    };
    guests.flat_map(of).collect()
}

fn every_test_has_a_guest() {
    let all = crate::all();
    for tier in [Tier::Ci, Tier::Nightly] {
        let runs = runs(tier);
        let of_tier = all.iter().filter(|test| test.is_nightly() == (tier == Tier::Nightly));
        let nowhere = of_tier.filter(|test| !runs.iter().any(|(_, name)| *name == test.name));
        let nowhere: Vec<&String> = nowhere.map(|test| &test.name).collect();
        assert!(nowhere.is_empty(), "no guest of {tier:?} runs {nowhere:?}");
    }
    let of_ci = all.iter().filter(|test| !test.is_nightly()).count();
    assert!(of_ci > 100, "only {of_ci} tests");
}

fn every_guest_has_tests() {
    for tier in [Tier::Ci, Tier::Nightly] {
        let runs = runs(tier);
        for guest in tier.guests() {
            assert!(
                runs.iter().any(|(name, _)| *name == guest.to_string()),
                "{guest} has nothing to do"
            );
        }
    }
}

fn nightly_is_more() {
    let (ci, nightly) = (runs(Tier::Ci), runs(Tier::Nightly));
    assert!(
        ci.is_subset(&nightly),
        "only in CI: {:?}",
        ci.difference(&nightly).collect::<Vec<_>>()
    );
    assert!(nightly.len() > ci.len());
}

fn names_differ() {
    let all = crate::all();
    let names: BTreeSet<&String> = all.iter().map(|test| &test.name).collect();
    assert_eq!(names.len(), all.len());
}

fn guests_by_name() {
    for guest in Tier::Nightly.guests() {
        assert_eq!(Guest::of(&guest.to_string()), Some(*guest));
    }
    for wrong in ["sid-rt", "sid-rt:", "bookworm:bare", "sid-rt:warm", "sid-rt@vax:bare"] {
        assert_eq!(Guest::of(wrong), None, "{wrong}");
    }
}

fn hands_of_ci() {
    let of_ci: BTreeSet<String> = random::OF_CI.into_iter().flat_map(random::happens).collect();
    let all: BTreeSet<String> = (0..2000).flat_map(random::happens).collect();
    let missing: Vec<_> = all.difference(&of_ci).collect();
    assert!(missing.is_empty() && all.len() > 25, "{missing:?} of {}", all.len());
}
