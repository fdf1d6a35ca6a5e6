// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages with bytes that are changed, lost and repeated. `ASMP_MESSAGES` says how many.

use super::*;
use crate::granted;
use crate::work::Work;

/// A generator that each run has alike: Marsaglia, Xorshift RNGs (2003).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// A call of each method that is not of the service itself.
fn calls() -> Vec<Vec<u8>> {
    let of = |method: &str, parameters: &str| {
        let method = format!("{}.{method}", granted::INTERFACE);
        format!("{{\"method\": \"{method}\", \"parameters\": {parameters}}}").into_bytes()
    };
    let change =
        |request: &str| of("Change", &format!("{{\"request\": {request}, \"command\": \"app\"}}"));
    let mut all = vec![
        b"{\"method\": \"org.asmp.Hold.GetState\"}".to_vec(),
        b"{\"method\": \"org.asmp.Hold.GetEvents\", \"parameters\": {\"after\": 1}}".to_vec(),
        of("GetGrants", "{}"),
        of("Run", r#"{"name": "run-1", "cpus": "3", "policy": "fifo:50", "command": "app"}"#),
        of("Enter", r#"{"name": "run-1", "policy": "fifo:50", "command": "app"}"#),
        of("End", r#"{"name": "run-1"}"#),
    ];
    all.extend([
        change(r#"{"request": "create", "name": "a", "spec": {"cpus": "2-3", "irqs": ["eth0"]}}"#),
        change(r#"{"request": "add", "name": "a", "members": {"pids": [812], "irqs": ["24"]}}"#),
        change(
            r#"{"request": "apply", "declaration": {"partition": [{"name": "a", "cpus": "3"}]}}"#,
        ),
        change(r#"{"request": "destroy", "name": null, "demote": true}"#),
        change(r#"{"request": "resize", "name": "a", "cpus": "all-but 0"}"#),
    ]);
    all
}

/// A message with some bytes changed.
fn mutated(random: &mut Random, calls: &[Vec<u8>]) -> Vec<u8> {
    let mut message = calls[random.below(calls.len())].clone();
    for _ in 0..random.below(4) {
        let at = random.below(message.len());
        match random.below(6) {
            0 => message[at] = random.below(256) as u8,
            1 => drop(message.remove(at)),
            2 => message.insert(at, b"{}[]\":,\\ 0-"[random.below(11)]),
            3 => message.truncate(at + 1),
            4 => {
                let end = (at + random.below(30)).min(message.len());
                let again = message[at..end].to_vec();
                message.splice(at..at, again);
            }
            _ => {
                let other = &calls[random.below(calls.len())];
                message.splice(at.., other[at.min(other.len())..].iter().copied());
            }
        }
        if message.is_empty() {
            message.push(b'x');
        }
    }
    message
}

/// Does a message ask for work, by its JSON alone?
fn may_be_work(message: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(message) else { return false };
    let method = value["method"].as_str().unwrap_or_default();
    let method = method.strip_prefix("org.asmp.Partitions.");
    let asked = &value["parameters"];
    let text = |key: &str| asked[key].is_string();
    match method {
        Some("End") => text("name"),
        Some("Enter") => text("name") && text("policy") && text("command"),
        Some("Change") => {
            let request = asked["request"]["request"].as_str();
            text("command")
                && ["create", "add", "apply", "destroy", "resize"].contains(&request.unwrap_or(""))
        }
        // No policy file grants anything here.
        _ => false,
    }
}

#[test]
fn no_changed_message_becomes_work_that_it_does_not_ask_for() {
    let count = std::env::var("ASMP_MESSAGES").map_or(30_000, |text| text.parse().unwrap());
    // Other messages each night.
    let is_nightly = std::env::var("ASMP_TIER").is_ok_and(|tier| tier == "nightly");
    let seed = if is_nightly { 7 + unix_s() / 86_400 } else { 7 };
    println!("seed {seed}");
    let (mut random, calls) = (Random(seed), calls());
    let mut server = Server::new();
    let mut client = server.client();
    let (mut works, mut may_be) = (0, 0);
    for number in 0..count {
        let mut message = mutated(&mut random, &calls);
        message.push(0);
        // A zero inside ends a message too.
        let asked = message.split(|byte| *byte == 0).filter(|part| may_be_work(part)).count();
        let cut = random.below(message.len());
        client.set_nonblocking(true).unwrap();
        let sent = client.write_all(&message[..cut]);
        server.turn();
        let sent = sent.and_then(|()| client.write_all(&message[cut..]));
        server.turn();
        let mut found = 0;
        while let Some((key, work)) = server.board.take_work() {
            if work != Work::Left {
                found += 1;
                server.board.reply(key, b"{}\0".to_vec());
            }
            server.turn();
            server.turn();
        }
        let words = String::from_utf8_lossy(&message);
        assert!(found <= asked, "message {number}: {words}");
        (works, may_be) = (works + found, may_be + asked);
        let mut room = [0; 1 << 16];
        // What it asked first may have been nonsense: then it is let go.
        if sent.is_err() || client.read(&mut room).is_ok_and(|count| count == 0) {
            drop(client);
            server.turn();
            client = server.client();
        }
    }
    println!("{count} messages, {may_be} of which might be work, {works} were");
    // A policy or a name may be none.
    assert!(works * 10 > may_be * 9, "{works} of {may_be}");
    let mut client = server.client();
    client.write_all(STATE).unwrap();
    server.turn();
    assert!(reply(&mut BufReader::new(client)).contains("running_us"));
}
