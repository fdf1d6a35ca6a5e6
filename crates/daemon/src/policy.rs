// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /etc/asmp/policy.toml: who may use which CPUs without being root.
//!
//! Problem:  the names of users may lie in a directory on the network that does not answer, and
//!           asmpd must not wait for it.
//! Approach: names are those of /etc/passwd and /etc/group. Others are written as numbers. A
//!           file with an error grants nothing.

use asmp_duration::ExactDuration;
use asmp_host::limited::read_regular_at_most;
use asmp_host::peer::Peer;
use asmp_host::{CpuSet, CpuSpec, Schedule};
use asmp_shield::{Cpus, Grant, Refusal, Spec};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub const FILE: &str = "/etc/asmp/policy.toml";

const MOST_BYTES: u64 = 1 << 20;
/// Partitions last at most so long; a century has fewer seconds.
const MOST_S: u64 = 1 << 32;

/// What is granted, in the order of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Policy(Vec<Line>);

#[derive(Debug, PartialEq, Eq)]
struct Line {
    users: Vec<u32>,
    groups: Vec<u32>,
    cpus: CpuSet,
    policy: Schedule,
    time_s: Option<u64>,
    partitions: usize,
}

/// Where a policy and the names in it are read.
#[derive(Debug, Clone)]
pub struct Files {
    pub policy: PathBuf,
    pub users: PathBuf,
    pub groups: PathBuf,
    /// Who must own the policy and its directory.
    pub owner: u32,
}

impl Default for Files {
    fn default() -> Self {
        let [policy, users, groups] = [FILE, "/etc/passwd", "/etc/group"].map(PathBuf::from);
        Self { policy, users, groups, owner: 0 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[serde(default)]
    grant: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    users: Vec<Name>,
    #[serde(default)]
    groups: Vec<Name>,
    cpus: String,
    #[serde(default = "other")]
    policy: String,
    time: Option<String>,
    #[serde(default = "one")]
    partitions: usize,
}

fn other() -> String {
    "other".to_owned()
}

const fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Number(u32),
    Name(String),
}

impl Files {
    /// What is granted now; nothing where there is no file. Errors: in words, with the file.
    pub fn read(&self) -> Result<Policy, String> {
        let of_policy = |why: String| format!("{}: {why}", self.policy.display());
        // The directory first: only its owner can put another file in the place of this one.
        for path in [self.policy.parent(), Some(self.policy.as_path())].into_iter().flatten() {
            let found = match fs::symlink_metadata(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Policy::default()),
                found => found.map_err(|error| format!("{}: {error}", path.display()))?,
            };
            if found.is_symlink() {
                return Err(format!("{}: a symbolic link is not followed", path.display()));
            }
            if found.uid() != self.owner || found.mode() & 0o022 != 0 {
                return Err(format!("{}: users other than root may write to it", path.display()));
            }
        }
        let bytes = read_regular_at_most(&self.policy, MOST_BYTES);
        let bytes = bytes.map_err(|error| of_policy(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| of_policy("not UTF-8".to_owned()))?;
        let [users, groups] = [&self.users, &self.groups].map(|path| numbers(path));
        parse(&text, &users?, &groups?).map_err(of_policy)
    }
}

/// Name and number of each line of passwd(5) or group(5).
fn numbers(path: &Path) -> Result<BTreeMap<String, u32>, String> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let number = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    Ok(text.lines().filter_map(number).collect())
}

fn parse(
    text: &str,
    users: &BTreeMap<String, u32>,
    groups: &BTreeMap<String, u32>,
) -> Result<Policy, String> {
    let whole: Whole = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        format!("line {line}: {}", error.message())
    })?;
    let line = |(at, entry): (usize, Entry)| {
        entry.check(users, groups).map_err(|why| format!("grant {}: {why}", at + 1))
    };
    whole.grant.into_iter().enumerate().map(line).collect::<Result<_, _>>().map(Policy)
}

impl Entry {
    fn check(
        self,
        users: &BTreeMap<String, u32>,
        groups: &BTreeMap<String, u32>,
    ) -> Result<Line, String> {
        let find = |names: Vec<Name>, known: &BTreeMap<String, u32>, what: &str| {
            let number = |name| match name {
                Name::Number(number) => Ok(number),
                Name::Name(name) => known.get(&name).copied().ok_or_else(|| {
                    format!(
                        "no {what} {name:?} in /etc/{}: write its number",
                        if what == "user" { "passwd" } else { "group" }
                    )
                }),
            };
            names.into_iter().map(number).collect::<Result<Vec<u32>, String>>()
        };
        let users = find(self.users, users, "user")?;
        let groups = find(self.groups, groups, "group")?;
        if users.is_empty() && groups.is_empty() {
            return Err("it names no user and no group: add users or groups".to_owned());
        }
        let cpus: CpuSet = self.cpus.parse().map_err(|error| format!("cpus: {error}"))?;
        if cpus.is_empty() {
            return Err("cpus: the list selects no CPU".to_owned());
        }
        let policy: Schedule = self.policy.parse().map_err(|error| format!("policy: {error}"))?;
        if !matches!(policy, Schedule::Other { .. } | Schedule::Fifo { .. } | Schedule::Rr { .. }) {
            return Err(format!("policy: {policy} cannot be granted: use other, fifo:N or rr:N"));
        }
        if self.partitions == 0 {
            return Err("partitions: at least 1".to_owned());
        }
        let time_s = self.time.map(|time| {
            let ns = time.parse::<ExactDuration>().and_then(|time| Ok(time.whole_ns()?));
            match ns.map_err(|error| format!("time: {error}"))? / 1_000_000_000 {
                0 => Err(format!("time: {time}: at least 1 s")),
                s if s > MOST_S => Err(format!("time: {time}: too long: leave it out")),
                s => Ok(s),
            }
        });
        let time_s = time_s.transpose()?;
        Ok(Line { users, groups, cpus, policy, time_s, partitions: self.partitions })
    }
}

impl Policy {
    /// What this peer may do from now on, `now_s` seconds since 1970.
    pub fn of(&self, peer: &Peer, now_s: u64) -> Vec<Grant> {
        let names = |line: &&Line| {
            line.users.contains(&peer.uid)
                || line.groups.iter().any(|group| peer.groups.contains(group))
        };
        let grant = |line: &Line| Grant {
            uid: peer.uid,
            cpus: line.cpus.clone(),
            policy: line.policy,
            partitions: line.partitions,
            until_s: line.time_s.map(|s| now_s.saturating_add(s)),
        };
        self.0.iter().filter(names).map(grant).collect()
    }
}

/// The first of these grants that covers this partition and policy, as far as can be seen without
/// the machine. Errors: `NotGranted`.
pub fn choose(
    grants: Vec<Grant>,
    uid: u32,
    spec: &Spec,
    policy: &Schedule,
) -> Result<Grant, Refusal> {
    let has_cpus = |grant: &Grant| match &spec.cpus {
        // A list such as `last:2` depends on the machine; the shield looks again.
        Cpus::Named(CpuSpec::List(cpus)) => cpus.is_subset(&grant.cpus),
        Cpus::Named(_) => true,
        Cpus::Needed(need) => need.count <= grant.cpus.len(),
    };
    let granted = match grants.is_empty() {
        true => format!("{FILE} names neither user {uid} nor a group of this process"),
        false => grants.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    };
    let (mut covers_cpus, mut covers_policy) = (false, false);
    for grant in grants {
        let (cpus, policy) = (has_cpus(&grant), grant.covers(policy));
        if cpus && policy {
            return Ok(grant);
        }
        (covers_cpus, covers_policy) = (covers_cpus || cpus, covers_policy || policy);
    }
    let asked = match &spec.cpus {
        Cpus::Named(cpus) => format!("CPU {cpus}"),
        Cpus::Needed(need) => format!("a number of {} CPUs", need.count),
    };
    let what = match (covers_cpus, covers_policy) {
        (true, false) => format!("policy {policy}"),
        (false, true) => asked,
        _ => format!("{asked} with policy {policy}"),
    };
    Err(Refusal::NotGranted { what, granted })
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
