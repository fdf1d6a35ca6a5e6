// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages, and what is answered.

use super::*;
use crate::hold::{Event, Hold, Pace, Record};

/// What a message gets from an asmpd with two events.
fn of(message: &str) -> Answer {
    let board = Board::new(2_000_000).unwrap();
    board.show(&Hold::new(Pace::default()), 3_000_000);
    for _ in 0..2 {
        let event = Event::Failed { why: "no /proc".to_owned() };
        board.tell(&Record { at_ns: 1, event, cause: "a link".to_owned() }, 7);
    }
    answer(message.as_bytes(), &board, 5_000_000)
}

/// The reply as JSON.
fn json_of(message: &str) -> Value {
    match of(message) {
        Answer::Reply(bytes) => {
            let (end, text) = bytes.split_last().expect("bytes");
            assert_eq!(*end, 0);
            serde_json::from_slice(text).expect("JSON")
        }
        other => panic!("{message}: {other:?}"),
    }
}

fn call(method: &str, parameters: &str) -> String {
    format!("{{\"method\": \"{method}\", \"parameters\": {parameters}}}")
}

#[test]
fn each_method_of_the_description_is_answered() {
    let methods: Vec<&str> = DESCRIPTION
        .lines()
        .filter_map(|line| line.strip_prefix("method ")?.split_once('(').map(|(name, _)| name))
        .collect();
    assert_eq!(methods, ["GetState", "GetEvents", "FollowEvents"]);
    for method in methods {
        let json = json_of(&format!("{{\"method\": \"{INTERFACE}.{method}\"}}"));
        let error = json["error"].as_str().unwrap_or_default();
        assert!(error.is_empty() || error == "org.varlink.service.ExpectedMore", "{json}");
    }
}

#[test]
fn the_state_has_the_fields_of_the_description() {
    let json = json_of(&call("org.asmp.Hold.GetState", "{}"));
    let state = json["parameters"].as_object().expect("an object");
    let counts = state["counts"].as_object().expect("an object");
    for field in state.keys().chain(counts.keys()) {
        assert!(DESCRIPTION.contains(&format!("  {field}: ")), "{field}");
    }
    assert_eq!(state["running_us"], 3000);
    let back: State = serde_json::from_value(json["parameters"].clone()).unwrap();
    assert_eq!(back.counts, Counts::default());
}

#[test]
fn events_are_given_from_a_number_on_and_followed_with_more() {
    let numbers = |parameters: &str| -> Vec<u64> {
        let json = json_of(&call("org.asmp.Hold.GetEvents", parameters));
        let events = json["parameters"]["events"].as_array().expect("a list");
        events.iter().map(|event| event["number"].as_u64().expect("a number")).collect()
    };
    assert_eq!(numbers("{}"), [1, 2]);
    assert_eq!(numbers("{\"after\": 1}"), [2]);
    assert_eq!(numbers("{\"after\": null}"), [1, 2]);
    let follow = call("org.asmp.Hold.FollowEvents", "{\"after\": 1}");
    assert_eq!(of(&follow.replacen('{', "{\"more\": true, ", 1)), Answer::Follow(1));
    assert_eq!(json_of(&follow)["error"], "org.varlink.service.ExpectedMore");
}

#[test]
fn what_is_wrong_is_named_by_the_errors_of_the_protocol() {
    for (message, error, named) in [
        (call("org.asmp.Hold.Stop", "{}"), "MethodNotFound", "org.asmp.Hold.Stop"),
        (call("org.asmp.Other.GetState", "{}"), "InterfaceNotFound", "org.asmp.Other"),
        (call("GetState", "{}"), "InterfaceNotFound", ""),
        (call("org.asmp.Hold.GetEvents", "{\"after\": -1}"), "InvalidParameter", "after"),
        (call("org.asmp.Hold.GetEvents", "{\"after\": 3}"), "InvalidParameter", "after"),
        (call("org.asmp.Hold.FollowEvents", "{\"after\": 3}"), "InvalidParameter", "after"),
        (call("org.asmp.Hold.GetEvents", "{\"before\": 1}"), "InvalidParameter", "before"),
        (call("org.asmp.Hold.GetEvents", "{\"after\": 1, \"b\": 1}"), "InvalidParameter", "b"),
        (call("org.asmp.Hold.GetState", "[]"), "InvalidParameter", "parameters"),
        (
            call("org.varlink.service.GetInterfaceDescription", "{}"),
            "InvalidParameter",
            "parameters",
        ),
    ] {
        let json = json_of(&message);
        assert_eq!(json["error"], format!("org.varlink.service.{error}"), "{message}");
        let said = json["parameters"].as_object().and_then(|all| all.values().next());
        assert_eq!(said.and_then(Value::as_str), Some(named), "{message}");
    }
    for message in ["", "x", "[]", "{}", "{\"method\": 1}", "{\"method\": \"a.b\""] {
        assert_eq!(of(message), Answer::Nonsense, "{message}");
    }
    let quiet = "{\"method\": \"org.asmp.Hold.GetState\", \"oneway\": true}";
    assert_eq!(of(quiet), Answer::Silence);
}

#[test]
fn the_service_describes_itself() {
    let info = json_of(&call("org.varlink.service.GetInfo", "{}"));
    assert_eq!(info["parameters"]["interfaces"], json!([SERVICE, INTERFACE]));
    for name in [SERVICE, INTERFACE] {
        let asked = format!("{{\"interface\": \"{name}\"}}");
        let json = json_of(&call("org.varlink.service.GetInterfaceDescription", &asked));
        let text = json["parameters"]["description"].as_str().expect("a text");
        assert!(text.contains(&format!("interface {name}\n")), "{text}");
    }
}
