// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of a change, in words for those who asked for it.

use asmp_shield::{Outcome, Request};
use std::collections::BTreeMap;

/// All that must be known of it.
pub fn of(request: &Request, outcome: &Outcome) -> Vec<String> {
    let mut all = stays(outcome);
    all.extend(of_tasks(outcome));
    all.extend(fails(request, outcome));
    all
}

/// What asmp would end with an error for: what was not given back, and what is violated though it
/// was to be repaired.
pub fn fails(request: &Request, outcome: &Outcome) -> Vec<String> {
    let left = outcome.left.iter().map(|left| format!("not given back: {left}"));
    let violated = outcome.violated(request).into_iter().flat_map(|one| {
        one.violations.iter().map(|violation| format!("{}: {}", one.name, violation.what))
    });
    let unread = outcome.unread.iter().map(|why| format!("cannot read it back: {why}"));
    left.chain(violated).chain(unread).collect()
}

/// What a user must know of a change: what stays on its CPUs, and what this boot does not allow.
pub fn stays(outcome: &Outcome) -> Vec<String> {
    // One line for each reason.
    let mut stays: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in outcome.refused.iter().filter(|one| one.disturbs) {
        stays.entry(&one.reason).or_default().push(&one.what);
    }
    let stays = stays
        .into_iter()
        .map(|(reason, what)| format!("the kernel refused: {}: {reason}", what.join("; ")));
    let cannot = outcome.plan.cannot.iter();
    let cannot = cannot.map(|one| format!("not in this boot: {} (cure: {})", one.what, one.cure));
    stays.chain(cannot).collect()
}

/// What became of tasks that left.
pub fn of_tasks(outcome: &Outcome) -> Vec<String> {
    let demoted = outcome.demoted.iter().map(|one| {
        let (tid, command, from, policy) = (one.task.tid, &one.command, &one.partition, one.policy);
        format!("task {tid} ({command}) left {from} as SCHED_OTHER; it was {policy}")
    });
    demoted.chain(outcome.elsewhere.iter().map(ToString::to_string)).collect()
}
