// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Varlink interface org.asmp.Partitions: from a request to [`Work`], and from what came of it
//! to the reply. Pure, but for the policy, which is read again when its file has changed.

use crate::board::Board;
use crate::interface::{Parameters, Wrong, parameters, wrong_value};
use crate::policy;
use crate::seen::Seen;
use crate::work::{Refused, Work};
use asmp_host::peer::Peer;
use asmp_host::shown::cut;
use asmp_host::{CpuSpec, Schedule};
use asmp_shield::code::{BAD_FILE, USAGE};
use asmp_shield::{Aspect, Cpus, Grant, Need, Refusal, Request, Smt, Spec, Tick};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const INTERFACE: &str = "org.asmp.Partitions";

/// The names of users' partitions begin with this: no user takes a name that others rely on.
const PREFIX: &str = "run-";

/// Characters of a command that are kept: the state has them for each process.
const MOST_COMMAND: usize = 64;

/// What asmpd does with a request of this interface.
pub enum Asked {
    Reply(Value),
    Work(Work),
    Refused(Refused),
}

/// The reply to `Run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub name: String,
    pub cpus: String,
    pub notes: Vec<String>,
}

/// The reply to `End`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub notes: Vec<String>,
    /// The exit code of asmp(8).
    #[serde(default)]
    pub code: u8,
}

/// The reply to `GetGrants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    pub grants: Vec<Shown>,
}

/// The type `Grant`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    pub cpus: String,
    pub policy: String,
    pub partitions: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The parameters of `Run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_cores: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Tick>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt: Option<Smt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Vec<Aspect>>,
    pub policy: String,
    pub command: String,
}

/// The parameters of `Enter`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enter {
    pub name: String,
    pub policy: String,
    pub command: String,
}

/// The parameters of `End`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub name: String,
}

/// The parameters of `Change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub request: Request,
    pub command: String,
}

/// The reply to `Change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub transaction: u64,
    pub changes: usize,
    pub notes: Vec<String>,
}

/// Reads a request of `peer`. Errors: the interface has no such method or parameter.
pub(crate) fn ask(
    method: &str,
    given: &Parameters,
    (peer, board): (&Peer, &Board),
    seen: &mut Seen,
    now_s: u64,
) -> Result<Asked, Wrong> {
    // Others have no partition: their requests are no work for the thread that repairs.
    let own = |name: &str, work: Work| match board.knows_user(peer.uid) {
        true => Asked::Work(work),
        false => Asked::Refused(not_own(name, peer.uid).into()),
    };
    match method {
        "GetGrants" => {
            let crate::interface::Nothing {} = parameters(given)?;
            Ok(match grants(peer, seen, now_s) {
                Ok(grants) => Asked::Reply(shown(&grants, now_s)),
                Err(refused) => Asked::Refused(refused),
            })
        }
        "Run" => {
            let asked = run(parameters(given)?, peer, seen, now_s)?;
            if matches!(asked, Asked::Work(_)) {
                board.note_user(peer.uid);
            }
            Ok(asked)
        }
        "Enter" => {
            let Enter { name, policy, command } = parameters(given)?;
            let policy = policy.parse().map_err(|_| wrong_value("policy"))?;
            let command = cut(&command, MOST_COMMAND).into_owned();
            Ok(own(&name, Work::Enter { peer: peer.clone(), name: name.clone(), policy, command }))
        }
        "End" => {
            let End { name } = parameters(given)?;
            Ok(own(&name, Work::End { peer: peer.clone(), name: name.clone() }))
        }
        "Change" if peer.uid != 0 => Ok(Asked::Refused(Refusal::NotRoot.into())),
        "Change" => {
            let Change { request, command } = parameters(given)?;
            let (request, command) = (Box::new(request), cut(&command, MOST_COMMAND).into_owned());
            Ok(match takes_long(&request) {
                Some(why) => Asked::Refused(Refused { code: USAGE, why: why.to_owned() }),
                None => Asked::Work(Work::Change { peer: peer.clone(), request, command }),
            })
        }
        _ => Err(Wrong::Method(format!("{INTERFACE}.{method}"))),
    }
}

/// A partition that this user may not enter or end.
pub(crate) fn not_own(name: &str, uid: u32) -> Refusal {
    let granted = format!("it was not made for user {uid}");
    Refusal::NotGranted { what: format!("partition {name}"), granted }
}

pub const COUNTS_TICKS: &str = "to count ticks keeps repairs waiting: use asmp for \"require-off\"";

/// Why a request is not for asmpd, if so. It repairs nothing while it makes a change.
fn takes_long(request: &Request) -> Option<&'static str> {
    let counts_ticks = match request {
        Request::Create { spec, .. } => spec.tick == Tick::RequireOff,
        Request::Apply { declaration } => {
            declaration.partitions.iter().any(|one| one.tick == Tick::RequireOff)
        }
        Request::Destroy { .. }
        | Request::Add { .. }
        | Request::Remove { .. }
        | Request::Move { .. }
        | Request::Resize { .. }
        | Request::Repair { .. }
        | Request::Restore { .. } => false,
        _ => return Some("this request is for commands of asmp alone"),
    };
    counts_ticks.then_some(COUNTS_TICKS)
}

fn run(asked: Run, peer: &Peer, seen: &mut Seen, now_s: u64) -> Result<Asked, Wrong> {
    let policy: Schedule = asked.policy.parse().map_err(|_| wrong_value("policy"))?;
    let cpus = match (&asked.cpus, asked.count) {
        (Some(cpus), None) => {
            Cpus::Named(cpus.parse::<CpuSpec>().map_err(|_| wrong_value("cpus"))?)
        }
        (None, Some(count)) => Cpus::Needed(Need {
            count,
            near: asked.near,
            whole_cores: asked.whole_cores.unwrap_or_default(),
        }),
        _ => return Err(wrong_value("cpus")),
    };
    let spec = Spec {
        tick: asked.tick.unwrap_or_default(),
        smt: asked.smt.unwrap_or_default(),
        strict: asked.strict.unwrap_or_default(),
        without: asked.without.unwrap_or_default(),
        ..Spec::with(cpus)
    };
    if !asked.name.starts_with(PREFIX) {
        let why = format!("the partition of a user has a name that begins with {PREFIX:?}");
        return Ok(Asked::Refused(Refused { code: USAGE, why }));
    }
    let chosen = grants(peer, seen, now_s)
        .and_then(|grants| Ok(policy::choose(grants, peer.uid, &spec, &policy)?));
    Ok(match chosen {
        Ok(grants) => {
            let spec = Box::new(spec);
            let (name, command) = (asked.name, cut(&asked.command, MOST_COMMAND).into_owned());
            Asked::Work(Work::Run { peer: peer.clone(), name, spec, grants, policy, command })
        }
        Err(refused) => Asked::Refused(refused),
    })
}

fn grants(peer: &Peer, seen: &mut Seen, now_s: u64) -> Result<Vec<Grant>, Refused> {
    let policy = seen
        .policy()
        .map_err(|why| Refused { code: BAD_FILE, why: format!("nothing is granted: {why}") })?;
    Ok(policy.of(peer, now_s))
}

/// Grants as the interface has them.
fn shown(grants: &[Grant], now_s: u64) -> Value {
    let one = |grant: &Grant| Shown {
        cpus: grant.cpus.to_string(),
        policy: grant.policy.to_string(),
        partitions: grant.partitions,
        seconds: grant.until_s.map(|until_s| until_s.saturating_sub(now_s)),
    };
    json!(Grants { grants: grants.iter().map(one).collect() })
}
