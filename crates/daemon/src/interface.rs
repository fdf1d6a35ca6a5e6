// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Varlink interfaces of asmpd: from a message to the reply, or to the work that it asks for;
//! org.asmp.Hold as a whole, and org.asmp.Partitions with [`granted`].
//!
//! Source: <https://varlink.org/Service>, for the interface org.varlink.service that each service
//! has.

use crate::board::Board;
use crate::granted::{self, Asked};
use crate::hold::Counts;
use crate::log::{Entry, MOST_KEPT};
use crate::seen::Seen;
use crate::work::{Refused, Work};
use asmp_host::peer::Peer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use varlink::sansio::protocol::{parse_request, serialize_reply};
use varlink::{Reply, Request};

/// The directory of [`crate::socket`], and the socket's name in it.
pub const DIR: &str = "/run/asmpd";
pub const NAME: &str = "socket";
/// The same for root alone, in the same directory.
pub const ROOTS: &str = "root";

pub const INTERFACE: &str = "org.asmp.Hold";
const DESCRIPTION: &str = include_str!("../org.asmp.Hold.varlink");
const OF_PARTITIONS: &str = include_str!("../org.asmp.Partitions.varlink");
const SERVICE: &str = "org.varlink.service";
const OF_SERVICE: &str = "\
interface org.varlink.service
method GetInfo() -> (
  vendor: string, product: string, version: string, url: string, interfaces: []string
)
method GetInterfaceDescription(interface: string) -> (description: string)
error InterfaceNotFound (interface: string)
error MethodNotFound (method: string)
error MethodNotImplemented (method: string)
error InvalidParameter (parameter: string)
error PermissionDenied ()
error ExpectedMore ()
";

/// What a message asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// These bytes.
    Reply(Vec<u8>),
    /// Each event with a greater number, now and later: see [`event`].
    Follow(u64),
    /// What the thread that repairs is to do, and then reply.
    Work(Work),
    /// The client wants no reply.
    Silence,
    /// It is no request.
    Nonsense,
}

/// The reply to `GetState`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub version: String,
    pub running_us: u64,
    pub blind: bool,
    pub storming: bool,
    pub counts: Counts,
    #[serde(default)]
    pub repaired: Vec<Repaired>,
    pub violations: Vec<Violated>,
}

/// The type `Repaired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repaired {
    pub partition: String,
    pub count: u64,
}

/// The type `Violation`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violated {
    pub partition: String,
    pub what: String,
    pub cause: String,
    pub for_us: u64,
    pub tries: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    #[serde(default)]
    after: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    interface: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Who asks, when, and the policy that says what a user may do.
pub struct Asker<'a> {
    pub peer: &'a Peer,
    pub policy: &'a mut Seen,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// Seconds since 1970-01-01 UTC.
    pub now_s: u64,
}

/// Answers a message without the zero that ends it.
pub fn answer(message: &[u8], board: &Board, asker: &mut Asker) -> Answer {
    let Ok(request) = parse_request(message) else { return Answer::Nonsense };
    let wants = |flag: Option<bool>| flag == Some(true);
    if wants(request.oneway) {
        // There is no reply, not even an error. A client that changes something must hear of it.
        let changes = request.method.starts_with(granted::INTERFACE);
        return if changes { Answer::Nonsense } else { Answer::Silence };
    }
    match reply(&request, board, asker) {
        Ok(Replied::Work(work)) => Answer::Work(work),
        Ok(Replied::Refused(refused)) => Answer::Reply(done(Err(refused))),
        Ok(Replied::Once(value)) => Answer::Reply(serialized(&Reply::parameters(Some(value)))),
        Ok(Replied::Again(after)) if wants(request.more) => Answer::Follow(after),
        Ok(Replied::Again(_)) => wrong("ExpectedMore", json!({})),
        Err(Wrong::Interface(name)) => wrong("InterfaceNotFound", json!({ "interface": name })),
        Err(Wrong::Method(name)) => wrong("MethodNotFound", json!({ "method": name })),
        Err(Wrong::Parameter(name)) => wrong("InvalidParameter", json!({ "parameter": name })),
    }
}

/// One of several replies: an event.
pub fn event(entry: &Entry) -> Vec<u8> {
    let parameters = json!({ "event": entry });
    serialized(&Reply { continues: Some(true), error: None, parameters: Some(parameters) })
}

/// The reply to what was asked for and done.
pub fn done(came: Result<Value, Refused>) -> Vec<u8> {
    serialized(&match came {
        Ok(value) => Reply::parameters(Some(value)),
        Err(refused) => {
            Reply::error(format!("{}.Refused", granted::INTERFACE), Some(json!(refused)))
        }
    })
}

/// The last reply to a client: an error of org.asmp.Hold.
pub fn last_words(error: &str) -> Vec<u8> {
    serialized(&Reply::error(format!("{INTERFACE}.{error}"), Some(json!({}))))
}

fn wrong(name: &str, parameters: Value) -> Answer {
    Answer::Reply(serialized(&Reply::error(format!("{SERVICE}.{name}"), Some(parameters))))
}

/// Values that are JSON already: nothing can fail but the memory.
fn serialized(reply: &Reply) -> Vec<u8> {
    serialize_reply(reply).unwrap_or_default()
}

enum Replied {
    Once(Value),
    /// For ever, from the event after this one.
    Again(u64),
    Work(Work),
    Refused(Refused),
}

pub(crate) enum Wrong {
    Interface(String),
    Method(String),
    Parameter(String),
}

fn reply(request: &Request, board: &Board, asker: &mut Asker) -> Result<Replied, Wrong> {
    let given = &request.parameters;
    let whole = request.method.as_ref();
    let (interface, method) = whole.rsplit_once('.').unwrap_or(("", whole));
    let once = |value| Ok(Replied::Once(value));
    // The number of an event, and those after it.
    let events = || {
        let After { after } = parameters(given)?;
        let unknown = || Wrong::Parameter("after".to_owned());
        board.events(after, MOST_KEPT).ok_or_else(unknown)
    };
    match (interface, method) {
        (SERVICE, "GetInfo") => {
            let Nothing {} = parameters(given)?;
            once(json!({
                "vendor": "asmp", "product": "asmpd", "version": env!("CARGO_PKG_VERSION"),
                "url": "", "interfaces": [SERVICE, INTERFACE, granted::INTERFACE],
            }))
        }
        (SERVICE, "GetInterfaceDescription") => {
            let Described { interface } = parameters(given)?;
            match interface.as_str() {
                INTERFACE => once(json!({ "description": DESCRIPTION })),
                granted::INTERFACE => once(json!({ "description": OF_PARTITIONS })),
                SERVICE => once(json!({ "description": OF_SERVICE })),
                _ => Err(Wrong::Interface(interface)),
            }
        }
        (INTERFACE, "GetState") => {
            let Nothing {} = parameters(given)?;
            once(json!(board.state(asker.now_ns)))
        }
        (INTERFACE, "GetEvents") => {
            let (_, events) = events()?;
            let events: Vec<&Entry> = events.iter().map(AsRef::as_ref).collect();
            once(json!({ "events": events }))
        }
        (INTERFACE, "FollowEvents") => events().map(|(after, _)| Replied::Again(after)),
        (granted::INTERFACE, _) => {
            let from = (asker.peer, board);
            let asked = granted::ask(method, given, from, asker.policy, asker.now_s)?;
            Ok(match asked {
                Asked::Reply(value) => Replied::Once(value),
                Asked::Work(work) => Replied::Work(work),
                Asked::Refused(refused) => Replied::Refused(refused),
            })
        }
        (SERVICE | INTERFACE, _) => Err(Wrong::Method(whole.to_owned())),
        _ => Err(Wrong::Interface(interface.to_owned())),
    }
}

/// What a request gives, as JSON.
pub(crate) type Parameters = Option<Value>;

pub(crate) fn wrong_value(name: &str) -> Wrong {
    Wrong::Parameter(name.to_owned())
}

/// Errors: the name of the parameter that is wrong, or `parameters` where one is missing.
pub(crate) fn parameters<T: DeserializeOwned>(given: &Parameters) -> Result<T, Wrong> {
    let wrong = |name: &str| Err(wrong_value(name));
    let all = match given {
        None => serde_json::Map::new(),
        Some(Value::Object(all)) => all.clone(),
        Some(_) => return wrong("parameters"),
    };
    let read = |all: serde_json::Map<_, _>| {
        serde_json::from_value::<T>(Value::Object(all)).map_err(|error| error.to_string())
    };
    let error = match read(all.clone()) {
        Ok(read) => return Ok(read),
        Err(error) if error.starts_with("missing field") => return wrong("parameters"),
        Err(error) => error,
    };
    // Without the one that it is about, there is another error, or none.
    let is_about = |name: &&String| {
        let others = all.iter().filter(|(other, _)| other != name);
        let others = others.map(|(other, value)| (other.clone(), value.clone()));
        read(others.collect()).err().is_none_or(|other| other != error)
    };
    wrong(all.keys().find(is_about).map_or("parameters", String::as_str))
}

#[cfg(test)]
#[path = "interface_tests.rs"]
mod tests;
