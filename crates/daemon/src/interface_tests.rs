// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages, and what is answered.

use super::*;
use crate::hold::{Event, Hold, Pace, Record};
use crate::policy::Files;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// What a message gets from an asmpd with two events.
fn of(message: &str) -> Answer {
    of_user(1000, message)
}

fn of_user(uid: u32, message: &str) -> Answer {
    let board = Board::new(2_000_000).unwrap();
    board.note_user(1000);
    board.show(&Hold::new(Pace::default()), 3_000_000);
    for _ in 0..2 {
        let event = Event::Failed { why: "no /proc".to_owned() };
        board.tell(&Record { at_ns: 1, event, cause: "a link".to_owned() }, 7);
    }
    let peer = Peer { pid: 1, uid, groups: [29].into() };
    let mut policy = Seen::new(granting(), |_| {});
    let mut asker = Asker { peer: &peer, policy: &mut policy, now_ns: 5_000_000, now_s: 100 };
    answer(message.as_bytes(), &board, &mut asker)
}

/// Files that grant CPUs 2 and 3 to group 29.
fn granting() -> Files {
    let dir = tempfile::tempdir().unwrap().keep();
    std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        std::fs::set_permissions(dir.join(name), Permissions::from_mode(0o644)).unwrap();
        dir.join(name)
    };
    let grant = "[[grant]]\ngroups = [29]\ncpus = '2-3'\npolicy = 'fifo:50'\ntime = '8h'\n";
    Files {
        policy: write("policy.toml", grant),
        users: write("passwd", ""),
        groups: write("group", ""),
        owner: std::fs::metadata(&dir).unwrap().uid(),
    }
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
    assert_eq!(info["parameters"]["interfaces"], json!([SERVICE, INTERFACE, granted::INTERFACE]));
    for name in [SERVICE, INTERFACE, granted::INTERFACE] {
        let asked = format!("{{\"interface\": \"{name}\"}}");
        let json = json_of(&call("org.varlink.service.GetInterfaceDescription", &asked));
        let text = json["parameters"]["description"].as_str().expect("a text");
        assert!(text.contains(&format!("interface {name}\n")), "{text}");
    }
}

const RUN: &str = "org.asmp.Partitions.Run";

#[test]
fn a_user_is_told_what_is_granted() {
    let json = json_of(&call("org.asmp.Partitions.GetGrants", "{}"));
    let expected = json!([{"cpus": "2-3", "policy": "fifo:50", "partitions": 1, "seconds": 28800}]);
    assert_eq!(json["parameters"]["grants"], expected);
}

#[test]
fn what_is_granted_becomes_work_with_no_more_than_was_asked_for() {
    let asked = r#"{"name": "run-7", "cpus": "3", "policy": "rr:9", "command": "app",
        "smt": "share", "tick": "keep", "without": ["governor"], "strict": true}"#;
    let Answer::Work(Work::Run { peer, name, spec, grants, policy, command }) =
        of(&call(RUN, asked))
    else {
        panic!("no work");
    };
    assert_eq!((peer.uid, name.as_str(), command.as_str()), (1000, "run-7", "app"));
    let expected = json!({
        "cpus": "3", "irqs": [], "irq_priority": null, "tick": "keep", "smt": "share",
        "strict": true, "without": ["governor"], "mode": "isolated",
    });
    assert_eq!(json!(spec), expected);
    let [grant] = &grants[..] else { panic!("{grants:?}") };
    assert_eq!(
        grant.to_string(),
        "user 1000 may use CPU 2-3 with at most fifo:50, in one partition"
    );
    assert_eq!(policy.to_string(), "rr:9");
    assert_eq!(grant.until_s, Some(28_900));
    let chosen = r#"{"name": "run-7", "count": 2, "whole_cores": true, "policy": "other",
        "command": "app"}"#;
    let Answer::Work(Work::Run { spec, .. }) = of(&call(RUN, chosen)) else { panic!("no work") };
    let need = json!({"count": 2, "near": null, "whole_cores": true});
    assert_eq!(json!(spec)["cpus"], need);
}

#[test]
fn what_is_not_granted_or_wrong_becomes_no_work() {
    let with = |rest: &str| {
        format!("{{\"name\": \"run-7\", \"policy\": \"other\", \"command\": \"app\"{rest}}}")
    };
    for (asked, code) in [
        (with(", \"cpus\": \"1\""), 29),
        (with(", \"count\": 3"), 29),
        (with(", \"cpus\": \"3\"").replace("other", "fifo:51"), 29),
        (with(", \"cpus\": \"3\"").replace("run-7", "motion"), 2),
    ] {
        let json = json_of(&call(RUN, &asked));
        assert_eq!(json["error"], "org.asmp.Partitions.Refused", "{asked}: {json}");
        assert_eq!(json["parameters"]["code"], code, "{asked}: {json}");
    }
    for (asked, named) in [
        (with(""), "cpus"),
        (with(", \"cpus\": \"3\", \"count\": 1"), "cpus"),
        (with(", \"cpus\": \"x\""), "cpus"),
        (with(", \"cpus\": \"3\"").replace("other", "x"), "policy"),
        (with(", \"cpus\": \"3\", \"irqs\": [4]"), "irqs"),
        (with(", \"cpus\": \"3\", \"owner\": 1"), "owner"),
        (with(", \"cpus\": 3"), "cpus"),
    ] {
        let json = json_of(&call(RUN, &asked));
        assert_eq!(json["error"], "org.varlink.service.InvalidParameter", "{asked}: {json}");
        assert_eq!(json["parameters"]["parameter"], named, "{asked}: {json}");
    }
    // A client that changes something must hear of it.
    let end = call("org.asmp.Partitions.End", "{\"name\": \"run-7\"}");
    assert!(matches!(of(&end), Answer::Work(Work::End { .. })));
    // One who was never granted a partition gives the thread that repairs no work.
    let enter = call(
        "org.asmp.Partitions.Enter",
        "{\"name\": \"run-7\", \"policy\": \"other\", \"command\": \"app\"}",
    );
    for asked in [&end, &enter] {
        let Answer::Reply(refused) = of_user(1001, asked) else { panic!("{asked}") };
        let refused = String::from_utf8(refused).unwrap();
        assert!(refused.contains("partition run-7 is not granted: it was not made"), "{refused}");
    }
    assert_eq!(of(&end.replacen('{', "{\"oneway\": true, ", 1)), Answer::Nonsense);
}

#[test]
fn a_long_command_is_cut_before_it_is_kept() {
    let long = "x".repeat(60_000);
    let parameters = format!(
        "{{\"name\": \"run-1\", \"policy\": \"other\", \"cpus\": \"3\", \"command\": \"{long}\"}}"
    );
    let Answer::Work(Work::Run { command: ran, .. }) =
        of(&call("org.asmp.Partitions.Run", &parameters))
    else {
        panic!("Run")
    };
    let parameters = parameters.replace("\"cpus\": \"3\", ", "");
    let Answer::Work(Work::Enter { command: entered, .. }) =
        of(&call("org.asmp.Partitions.Enter", &parameters))
    else {
        panic!("Enter")
    };
    assert_eq!([ran.chars().count(), entered.chars().count()], [64, 64]);
}

const CHANGE: &str = "org.asmp.Partitions.Change";

/// The requests that the description shows.
fn examples() -> Vec<String> {
    let lines = OF_PARTITIONS.lines().filter_map(|line| line.strip_prefix("#   {"));
    lines.map(|rest| format!("{{\"request\": {{{rest}, \"command\": \"app\"}}")).collect()
}

#[test]
fn each_request_of_the_description_is_work_for_root_and_for_no_other_user() {
    let examples = examples();
    assert_eq!(examples.len(), 9);
    for example in examples {
        match of_user(0, &call(CHANGE, &example)) {
            Answer::Work(Work::Change { peer, command, .. }) => {
                assert_eq!((peer.uid, command.as_str()), (0, "app"));
            }
            other => panic!("{example}: {other:?}"),
        }
        let Answer::Reply(refused) = of(&call(CHANGE, &example)) else { panic!("{example}") };
        let json: Value = serde_json::from_slice(&refused[..refused.len() - 1]).unwrap();
        assert_eq!(json["error"], "org.asmp.Partitions.Refused");
        assert_eq!(json["parameters"]["code"], 10);
    }
}

#[test]
fn what_takes_long_and_what_belongs_to_a_command_is_refused() {
    let create =
        r#"{"request": "create", "name": "a", "spec": {"cpus": "3", "tick": "require-off"}}"#;
    let apply = r#"{"request": "apply", "declaration":
        {"partition": [{"name": "a", "cpus": "3", "tick": "require-off"}]}}"#;
    let exec = r#"{"request": "exec", "name": "a",
        "process": {"tid": 1, "start_ticks": 1}, "command": "x"}"#;
    let end = r#"{"request": "end-run", "name": "run-1", "owner": null}"#;
    for (asked, words) in
        [(create, "to count"), (apply, "to count"), (exec, "alone"), (end, "alone")]
    {
        let asked = format!("{{\"request\": {asked}, \"command\": \"app\"}}");
        let Answer::Reply(refused) = of_user(0, &call(CHANGE, &asked)) else { panic!("{asked}") };
        let text = String::from_utf8_lossy(&refused).into_owned();
        assert!(text.contains(words) && text.contains("Partitions.Refused"), "{text}");
    }
    for asked in ["{\"request\": \"destroy\"}", "{\"request\": \"stop\"}", "\"destroy\"", "{}"] {
        let asked = format!("{{\"request\": {asked}, \"command\": \"app\"}}");
        let Answer::Reply(wrong) = of_user(0, &call(CHANGE, &asked)) else { panic!("{asked}") };
        let text = String::from_utf8_lossy(&wrong).into_owned();
        assert!(text.contains("org.varlink.service.InvalidParameter"), "{text}");
    }
}
