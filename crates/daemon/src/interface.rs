// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Varlink interface org.asmp.Hold: from a message to the reply. Pure.
//!
//! Source: <https://varlink.org/Service>, for the interface org.varlink.service that each service
//! has.

use crate::board::Board;
use crate::hold::Counts;
use crate::log::{Entry, MOST_KEPT};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use varlink::sansio::protocol::{parse_request, serialize_reply};
use varlink::{Reply, Request};

/// The directory of [`crate::socket`], and the socket's name in it.
pub const DIR: &str = "/run/asmpd";
pub const NAME: &str = "socket";

pub const INTERFACE: &str = "org.asmp.Hold";
const DESCRIPTION: &str = include_str!("../org.asmp.Hold.varlink");
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
    pub violations: Vec<Violated>,
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
struct Nothing {}

/// Answers a message without the zero that ends it.
pub fn answer(message: &[u8], board: &Board, now_ns: u64) -> Answer {
    let Ok(request) = parse_request(message) else { return Answer::Nonsense };
    let wants = |flag: Option<bool>| flag == Some(true);
    if wants(request.oneway) {
        // No method changes anything, and there is no reply, not even an error.
        return Answer::Silence;
    }
    match reply(&request, board, now_ns) {
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

/// The last reply to a client: an error of this interface.
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
}

enum Wrong {
    Interface(String),
    Method(String),
    Parameter(String),
}

fn reply(request: &Request, board: &Board, now_ns: u64) -> Result<Replied, Wrong> {
    let whole = request.method.as_ref();
    let (interface, method) = whole.rsplit_once('.').unwrap_or(("", whole));
    let once = |value| Ok(Replied::Once(value));
    // The number of an event, and those after it.
    let events = || {
        let After { after } = parameters(request)?;
        let unknown = || Wrong::Parameter("after".to_owned());
        board.events(after, MOST_KEPT).ok_or_else(unknown)
    };
    match (interface, method) {
        (SERVICE, "GetInfo") => {
            let Nothing {} = parameters(request)?;
            once(json!({
                "vendor": "asmp", "product": "asmpd", "version": env!("CARGO_PKG_VERSION"),
                "url": "", "interfaces": [SERVICE, INTERFACE],
            }))
        }
        (SERVICE, "GetInterfaceDescription") => {
            let Described { interface } = parameters(request)?;
            match interface.as_str() {
                INTERFACE => once(json!({ "description": DESCRIPTION })),
                SERVICE => once(json!({ "description": OF_SERVICE })),
                _ => Err(Wrong::Interface(interface)),
            }
        }
        (INTERFACE, "GetState") => {
            let Nothing {} = parameters(request)?;
            once(json!(board.state(now_ns)))
        }
        (INTERFACE, "GetEvents") => {
            let (_, events) = events()?;
            let events: Vec<&Entry> = events.iter().map(AsRef::as_ref).collect();
            once(json!({ "events": events }))
        }
        (INTERFACE, "FollowEvents") => events().map(|(after, _)| Replied::Again(after)),
        (SERVICE | INTERFACE, _) => Err(Wrong::Method(whole.to_owned())),
        _ => Err(Wrong::Interface(interface.to_owned())),
    }
}

/// Errors: the name of the parameter that is wrong, or `parameters` where one is missing.
fn parameters<T: DeserializeOwned>(request: &Request) -> Result<T, Wrong> {
    let wrong = |name: &str| Err(Wrong::Parameter(name.to_owned()));
    let all = match &request.parameters {
        None => serde_json::Map::new(),
        Some(Value::Object(all)) => all.clone(),
        Some(_) => return wrong("parameters"),
    };
    let read = |value: Value| serde_json::from_value::<T>(value).ok();
    if let Some(read) = read(Value::Object(all.clone())) {
        return Ok(read);
    }
    let mut alone = all.iter().filter(|(name, value)| read(json!({ *name: value })).is_none());
    wrong(alone.next().map_or("parameters", |(name, _)| name))
}

#[cfg(test)]
#[path = "interface_tests.rs"]
mod tests;
