// SPDX-License-Identifier: Apache-2.0 OR MIT
//! web: the page of `asmp web` changes this machine for who has its token, and for no other user.

use super::asked::NOBODY;
use super::guests::{Boot, On};
use super::lab::{Process, Test, asmp, binary, isolated, test, until};
use super::others::sh;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn all() -> Vec<Test> {
    let web = |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Bare]);
    vec![web("web: who has the token shields a cpu, and no other does", changed)]
}

/// A running `asmp web`, the name and port of its address, and its token.
struct Web {
    process: Process,
    authority: String,
    token: String,
}

impl Web {
    fn start(user: &str) -> Self {
        let said = std::env::temp_dir().join("web");
        let file = fs::File::create(&said).expect("a file");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {user} {} web", binary().display())]);
        let command = command.stdin(Stdio::null()).stdout(file);
        let process = Process(command.spawn().expect("asmp starts"));
        let address = || fs::read_to_string(&said).unwrap_or_default();
        until("it prints its address", || address().ends_with('\n'));
        let address = address();
        let rest = address.trim().strip_prefix("http://").expect("its address");
        let (authority, token) = rest.split_once("/#token=").expect("a token");
        Self { process, authority: authority.to_owned(), token: token.to_owned() }
    }

    fn port(&self) -> u16 {
        let (_, port) = self.authority.split_once(".localhost:").expect("its port");
        port.parse().expect("a port")
    }

    /// The whole answer.
    fn answer(&self, request: &str, token: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(180))).expect("a time");
        let (authority, length) = (&self.authority, body.len());
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    fn change(&self, token: &str, body: &str) -> String {
        self.answer("POST /change", token, body)
    }

    /// What a page sees first.
    fn seen(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(180))).expect("a time");
        let (authority, token) = (&self.authority, &self.token);
        let head = format!(
            "GET /events HTTP/1.1\r\nHost: {authority}\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut text = Vec::new();
        while !text.windows(4).any(|end| end == b"}}\n\n") {
            let mut page = [0; 4096];
            let count = stream.read(&mut page).expect("it tells");
            assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&page[..count]);
        }
        String::from_utf8(text).expect("UTF-8")
    }
}

const CREATE: &str = r#"{"change": "create", "name": "motion", "cpus": "3"}"#;
const DESTROY: &str = r#"{"change": "destroy", "name": "motion"}"#;

fn changed() {
    let mut web = Web::start("");
    let token = web.token.clone();
    // No line of any process shows it.
    let lines = sh("cat /proc/*/cmdline /proc/*/environ | tr '\\0' '\\n'").out;
    assert!(!lines.contains(&token));
    for wrong in ["", "0", &token[1..]] {
        assert!(web.change(wrong, CREATE).starts_with("HTTP/1.1 401 "));
    }
    // Another user gets in with no token, not even with this one.
    let (port, authority) = (web.port(), &web.authority);
    let got = sh(&format!(
        "{NOBODY} bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; printf \"GET /reports HTTP/1.1\\r\\n\
         Host: {authority}\\r\\nAuthorization: Bearer {token}\\r\\n\\r\\n\" >&3; cat <&3'"
    ));
    let why = "this page is for programs of user 0, and user 65534 asks";
    assert!(got.out.starts_with("HTTP/1.1 403 ") && got.out.contains(why), "{}", got.out);
    assert_eq!(isolated(), "");
    let made = web.change(&token, CREATE);
    assert!(made.starts_with("HTTP/1.1 200 ") && made.contains("motion: CPU 3"), "{made}");
    assert_eq!(isolated(), "3");
    let seen = web.seen();
    let cpu = r#"{"cpu":3,"socket":0,"core":3,"state":"shielded","partition":"motion""#;
    assert!(seen.contains(r#""name":"motion""#) && seen.contains("\"changes\":true"), "{seen}");
    assert!(seen.replace("\"core\":0", "\"core\":3").contains(cpu), "{seen}");
    let again = web.change(&token, CREATE);
    assert!(again.starts_with("HTTP/1.1 409 ") && again.contains("\"code\":31"), "{again}");
    let ended = web.change(&token, DESTROY);
    assert!(ended.contains("motion is gone"), "{ended}");
    assert_eq!(isolated(), "");
    sh(&format!("kill -TERM {}", web.process.id())).done();
    assert!(web.process.0.wait().expect("it ends").success());
    // Another user's only shows.
    asmp("create motion --cpus 3").done();
    let web = Web::start(NOBODY);
    let refused = web.change(&web.token, DESTROY);
    assert!(refused.starts_with("HTTP/1.1 409 ") && refused.contains("\"code\":10"), "{refused}");
    assert!(web.seen().contains("\"changes\":false"));
    assert_eq!(isolated(), "3");
    drop(web);
    asmp("destroy motion").done();
}
