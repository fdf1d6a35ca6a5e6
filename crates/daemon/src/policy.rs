// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /etc/asmp/policy.toml: who may use which CPUs without being root, and receive which channels.
//!
//! Problem:  the names of users may lie in a directory on the network that does not answer, and
//!           asmpd must not wait for it.
//! Approach: names are those of /etc/passwd and /etc/group. Others are written as numbers. A
//!           file with an error grants nothing.

use asmp_channel::keeper::is_channel_name;
use asmp_duration::ExactDuration;
use asmp_host::limited::read_regular_at_most;
use asmp_host::names::number_of;
use asmp_host::peer::Peer;
use asmp_host::{CpuSet, CpuSpec, Schedule};
use asmp_shield::{Cpus, Grant, Need, Refusal, Spec};
use serde::Deserialize;
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
pub struct Policy {
    grants: Vec<Line>,
    channels: Vec<Channel>,
}

/// Who may receive a channel besides those whom its program names.
#[derive(Debug, PartialEq, Eq)]
struct Channel {
    owner: u32,
    name: String,
    users: Vec<u32>,
    groups: Vec<u32>,
}

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
    #[serde(default)]
    channel: Vec<ChannelEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelEntry {
    name: String,
    owner: Name,
    #[serde(default)]
    users: Vec<Name>,
    #[serde(default)]
    groups: Vec<Name>,
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
#[serde(untagged, expecting = "expected a name, or a number from 0 to 4294967295")]
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
        let [users, groups] = [&self.users, &self.groups].map(|path| text_of(path));
        parse(&text, &users?, &groups?).map_err(of_policy)
    }
}

/// A text of any length that root keeps, with bytes of any encoding.
fn text_of(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `users` and `groups`: the texts of /etc/passwd and /etc/group.
fn parse(text: &str, users: &str, groups: &str) -> Result<Policy, String> {
    let whole: Whole = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        format!("line {line}: {}", error.message())
    })?;
    let grant = |(at, entry): (usize, Entry)| {
        entry.check(users, groups).map_err(|why| format!("grant {}: {why}", at + 1))
    };
    let channel = |(at, entry): (usize, ChannelEntry)| {
        entry.check(users, groups).map_err(|why| format!("channel {}: {why}", at + 1))
    };
    Ok(Policy {
        grants: whole.grant.into_iter().enumerate().map(grant).collect::<Result<_, _>>()?,
        channels: whole.channel.into_iter().enumerate().map(channel).collect::<Result<_, _>>()?,
    })
}

const USERS: (&str, &str) = ("user", "/etc/passwd");
const GROUPS: (&str, &str) = ("group", "/etc/group");

/// The numbers of these names, of which `text` has those with letters.
fn numbers(names: Vec<Name>, text: &str, (what, file): (&str, &str)) -> Result<Vec<u32>, String> {
    let number = |name| match name {
        Name::Number(number) => Ok(number),
        Name::Name(name) => number_of(text, &name)
            .ok_or_else(|| format!("no {what} {name:?} in {file}: write its number")),
    };
    names.into_iter().map(number).collect()
}

/// Both kinds of names, of which there is one at least.
fn everyone(
    users: (Vec<Name>, &str),
    groups: (Vec<Name>, &str),
) -> Result<(Vec<u32>, Vec<u32>), String> {
    let users = numbers(users.0, users.1, USERS)?;
    let groups = numbers(groups.0, groups.1, GROUPS)?;
    match users.is_empty() && groups.is_empty() {
        true => Err("it names no user and no group: add users or groups".to_owned()),
        false => Ok((users, groups)),
    }
}

impl ChannelEntry {
    fn check(self, users: &str, groups: &str) -> Result<Channel, String> {
        let owner = numbers(vec![self.owner], users, USERS)?[0];
        let name = self.name;
        if !is_channel_name(&name) {
            return Err(format!("name: {name:?} is not the name of a channel"));
        }
        let (users, groups) = everyone((self.users, users), (self.groups, groups))?;
        Ok(Channel { owner, name, users, groups })
    }
}

impl Entry {
    fn check(self, users: &str, groups: &str) -> Result<Line, String> {
        let (users, groups) = everyone((self.users, users), (self.groups, groups))?;
        let list = |_| format!("cpus: {:?} is no list such as \"1-3,5\"", self.cpus);
        let cpus: CpuSet = self.cpus.parse().map_err(list)?;
        if cpus.is_empty() {
            return Err("cpus: the list selects no CPU".to_owned());
        }
        let cannot =
            || format!("policy: {} cannot be granted: use other, fifo:N or rr:N", self.policy);
        // What is wrong with a number, and not which policies there are.
        let policy: Schedule = self.policy.parse().map_err(|error| {
            let is_known = self.policy.starts_with("fifo") || self.policy.starts_with("rr");
            if is_known { format!("policy: {error}") } else { cannot() }
        })?;
        if !matches!(policy, Schedule::Other { .. } | Schedule::Fifo { .. } | Schedule::Rr { .. }) {
            return Err(cannot());
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
        self.grants.iter().filter(names).map(grant).collect()
    }

    /// May this peer receive the channel of this name that this user has registered?
    pub fn gives_channel(&self, owner: u32, name: &str, peer: &Peer) -> bool {
        self.channels.iter().filter(|one| (one.owner, &*one.name) == (owner, name)).any(|one| {
            one.users.contains(&peer.uid)
                || one.groups.iter().any(|group| peer.groups.contains(group))
        })
    }
}

/// The grants that may cover this partition and policy. The shield knows the machine and decides.
/// Errors: `NotGranted` if there is none.
pub fn choose(
    grants: Vec<Grant>,
    uid: u32,
    spec: &Spec,
    policy: &Schedule,
) -> Result<Vec<Grant>, Refusal> {
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
    let covers_cpus = grants.iter().any(has_cpus);
    let covers_policy = grants.iter().any(|grant| grant.covers(policy));
    let mut grants = grants;
    grants.retain(|grant| has_cpus(grant) && grant.covers(policy));
    if !grants.is_empty() {
        return Ok(grants);
    }
    let asked = match &spec.cpus {
        Cpus::Named(cpus) => format!("CPU {cpus}"),
        Cpus::Needed(Need { count: 1, .. }) => "1 CPU".to_owned(),
        Cpus::Needed(need) => format!("{} CPUs", need.count),
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
