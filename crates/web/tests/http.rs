// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page's server, as other programs of the machine meet it.

mod common;

use common::Page;
use rustix::fs::{Uid, fchown};
use rustix::net::{AddressFamily, SocketType, socket};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(180);

fn connect(page: &Page) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port(page))).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// The whole answer; empty where the connection was closed without one.
fn answer(page: &Page, request: &str) -> String {
    let mut stream = connect(page);
    // It may be closed before all is sent.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8(bytes).unwrap(),
    }
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap()
}

fn authority(page: &Page) -> &str {
    page.url.strip_prefix("http://").unwrap().trim_end_matches('/')
}

fn port(page: &Page) -> u16 {
    authority(page).rsplit_once(':').unwrap().1.parse().unwrap()
}

fn host(page: &Page) -> String {
    format!("Host: {}\r\n", authority(page))
}

fn with_token(page: &Page) -> String {
    format!("{}Authorization: Bearer {}\r\n", host(page), page.token)
}

fn posted(page: &Page, headers: &str, body: &str) -> String {
    let length = body.len();
    answer(
        page,
        &format!("POST /change HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}"),
    )
}

const JSON: &str = "Content-Type: application/json\r\n";
const CREATE: &str = r#"{"change": "create", "name": "motion", "cpus": "3"}"#;

fn count(page: &Page) -> usize {
    page.machine.partitions.lock().unwrap().len()
}

#[test]
fn the_pages_files_hold_nothing_of_the_machine_and_need_no_token() {
    let page = Page::serve(None);
    for (path, kind) in
        [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascr")]
    {
        let got = answer(&page, &format!("GET {path} HTTP/1.1\r\n{}\r\n", host(&page)));
        assert_eq!(status(&got), 200, "{path}");
        let head = got.split("\r\n\r\n").next().unwrap().to_lowercase();
        for line in [
            &format!("content-type: {kind}"),
            "content-security-policy: default-src 'none'; script-src 'self'; ",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "connection: close",
        ] {
            assert!(head.contains(line), "{path}: no {line:?} in {head}");
        }
        assert!(!got.contains(&page.token) && !head.contains("set-cookie"), "{path}");
        assert!(!got.contains("http://") && !got.contains("https://"), "{path}: from elsewhere");
    }
    assert_eq!(page.machine.reads.load(SeqCst), 0);
}

#[test]
fn without_the_token_nothing_is_told_and_nothing_is_changed() {
    let page = Page::serve(None);
    let wrong = format!("Authorization: Bearer {}\r\n", "0".repeat(64));
    for headers in [host(&page), host(&page) + &wrong] {
        for path in ["/events", "/reports", "/reports/a.html", "/none", "//", "/page.js/"] {
            let got = answer(&page, &format!("GET {path} HTTP/1.1\r\n{headers}\r\n"));
            assert_eq!(status(&got), 401, "{path}");
        }
        assert_eq!(status(&posted(&page, &(headers + JSON), CREATE)), 401);
    }
    // Nor by its address or a cookie.
    for request in [
        format!("GET /events?token={} HTTP/1.1\r\n{}\r\n", page.token, host(&page)),
        format!("GET /events HTTP/1.1\r\n{}Cookie: token={}\r\n\r\n", host(&page), page.token),
    ] {
        assert_eq!(status(&answer(&page, &request)), 401, "{request}");
    }
    assert_eq!((count(&page), page.machine.reads.load(SeqCst)), (0, 0));
}

#[test]
fn a_page_of_another_site_changes_nothing_even_with_the_token() {
    let page = Page::serve(None);
    let token = format!("Authorization: Bearer {}\r\n{JSON}", page.token);
    // Its name may lead here.
    let other = format!("Host: evil.example:{}\r\n{token}", port(&page));
    assert_eq!(status(&posted(&page, &other, CREATE)), 421);
    let origin = format!("{}{token}Origin: http://evil.example\r\n", host(&page));
    assert_eq!(status(&posted(&page, &origin, CREATE)), 403);
    // What a form can send.
    for kind in
        ["", "Content-Type: text/plain\r\n", "Content-Type: application/json, text/plain\r\n"]
    {
        assert_eq!(status(&posted(&page, &(with_token(&page) + kind), CREATE)), 415, "{kind}");
    }
    let asked = format!(
        "OPTIONS /change HTTP/1.1\r\n{}Origin: http://evil.example\r\n\
         Access-Control-Request-Method: POST\r\n\r\n",
        host(&page)
    );
    let got = answer(&page, &asked);
    assert!(status(&got) >= 400 && !got.to_lowercase().contains("access-control-allow"), "{got}");
    assert_eq!(count(&page), 0);
}

#[test]
fn a_program_of_another_user_is_refused_in_words() {
    let me = rustix::process::geteuid().as_raw();
    let page = Page::serve_to(None, me + 1);
    let events = format!("GET /events HTTP/1.1\r\n{}\r\n", with_token(&page));
    let got = answer(&page, &events);
    assert_eq!(status(&got), 403);
    let why = format!(
        "this page is for programs of user {}, and user {me} asks: start asmp web with --user {me}",
        me + 1
    );
    assert!(got.ends_with(&why), "{got}");
    assert_eq!(status(&posted(&page, &(with_token(&page) + JSON), CREATE)), 403);
    assert_eq!((count(&page), page.machine.reads.load(SeqCst)), (0, 0));
    // Those that say nothing keep no other from being told so for long.
    let silent: Vec<TcpStream> = (0..100).map(|_| connect(&page)).collect();
    let begun = Instant::now();
    while answer(&page, &events).is_empty() {
        assert!(begun.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(silent);
}

#[test]
fn connections_of_another_user_take_no_place() {
    let me = rustix::process::geteuid().as_raw();
    if me != 0 {
        println!("skipped: sockets of another user: needs root");
        return;
    }
    let page = Page::serve(None);
    let address = SocketAddr::from(([127, 0, 0, 1], port(&page)));
    let foreign = |_| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        fchown(&socket, Some(Uid::from_raw(65534)), None).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        socket
    };
    let foreign: Vec<OwnedFd> = (0..200).map(foreign).collect();
    let got = answer(&page, &format!("GET / HTTP/1.1\r\n{}\r\n", host(&page)));
    assert_eq!(status(&got), 200, "{got}");
    drop(foreign);
}

#[test]
fn both_addresses_of_its_name_answer() {
    let page = Page::serve(None);
    let Ok(mut stream) = TcpStream::connect(("::1", port(&page))) else {
        println!("skipped: ::1: no such address on this machine");
        return;
    };
    stream.write_all(format!("GET / HTTP/1.1\r\n{}\r\n", host(&page)).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(status(&text), 200);
}

#[test]
fn a_machine_that_does_not_answer_is_told_and_not_asked_again() {
    let page = Page::serve(None);
    page.machine.hangs.store(true, SeqCst);
    let (mut stream, mut rest) = (connect(&page), Vec::new());
    let request = format!("GET /events HTTP/1.1\r\n{}\r\n", with_token(&page));
    stream.write_all(request.as_bytes()).unwrap();
    for _ in 0..2 {
        assert_eq!(event(&mut stream, &mut rest), r#"{"failed":"it takes longer than 5 s"}"#);
    }
    assert_eq!(page.machine.reads.load(SeqCst), 1);
    page.machine.hangs.store(false, SeqCst);
    let end = Instant::now() + SOON;
    while !event(&mut stream, &mut rest).starts_with("{\"seen\":{") {
        assert!(Instant::now() < end);
    }
}

#[test]
fn a_signal_ends_it_after_the_change_under_way_and_waits_for_no_read() {
    let me = rustix::process::geteuid().as_raw();
    // Another page of this process takes no signal.
    let signal = rustix::process::Signal::USR1;
    let (page, ended) = Page::serve_until(vec![signal.as_raw()], None, me);
    page.machine.hangs.store(true, SeqCst);
    page.machine.changes_hang.store(true, SeqCst);
    let mut watch = connect(&page);
    let request = format!("GET /events HTTP/1.1\r\n{}\r\n", with_token(&page));
    watch.write_all(request.as_bytes()).unwrap();
    event(&mut watch, &mut Vec::new());
    let mut change = connect(&page);
    let (headers, length) = (with_token(&page) + JSON, CREATE.len());
    let text =
        format!("POST /change HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{CREATE}");
    change.write_all(text.as_bytes()).unwrap();
    let end = Instant::now() + SOON;
    while !page.machine.changing.load(SeqCst) {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(10));
    }
    rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!ended.is_finished(), "a change is under way");
    page.machine.changes_hang.store(false, SeqCst);
    while !ended.is_finished() {
        assert!(Instant::now() < end, "it waits for a read");
        std::thread::sleep(Duration::from_millis(10));
    }
    ended.join().unwrap().unwrap();
    assert_eq!(count(&page), 1);
    page.machine.hangs.store(false, SeqCst);
}

#[test]
fn each_stream_begins_with_the_same_name_of_its_server_and_another_server_has_another() {
    let name = |page: &Page| {
        let request = format!("GET /events HTTP/1.1\r\n{}\r\n", with_token(page));
        let mut stream = connect(page);
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        while !text.contains("}\n\n") {
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes).unwrap();
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        let (_, begin) = text.split_once("data: {\"server\":\"").expect("its name");
        begin[..32].to_owned()
    };
    let [one, other] = [Page::serve(None), Page::serve(None)];
    assert_eq!(name(&one), name(&one));
    assert_ne!(name(&one), name(&other));
}

#[test]
fn changes_are_made_or_refused_in_words() {
    let page = Page::serve(None);
    let headers = with_token(&page) + JSON;
    let made = posted(&page, &headers, CREATE);
    assert_eq!(
        (status(&made), made.split("\r\n\r\n").nth(1), count(&page)),
        (200, Some("made"), 1)
    );
    let refused = posted(&page, &headers, r#"{"change": "create", "name": "a", "cpus": "0"}"#);
    assert_eq!(status(&refused), 409);
    let why = r#"{"code":22,"why":"a: CPU 0 stays with the system"}"#;
    assert!(refused.ends_with(why), "{refused}");
    for wrong in [
        "",
        "{}",
        "[]",
        "\u{0}",
        r#"{"change": "restore"}"#,
        r#"{"change": "destroy"}"#,
        r#"{"change": "destroy", "name": "motion", "demote": true}"#,
        r#"{"change": "create", "name": 1, "cpus": "3"}"#,
    ] {
        assert_eq!(status(&posted(&page, &headers, wrong)), 400, "{wrong:?}");
    }
    assert_eq!(count(&page), 1);
    let ended = posted(&page, &headers, r#"{"change": "destroy", "name": "motion"}"#);
    assert_eq!((status(&ended), count(&page)), (200, 0));
}

#[test]
fn a_body_that_is_too_long_or_too_slow_changes_nothing() {
    let page = Page::serve(None);
    let headers = with_token(&page) + JSON;
    let long = format!("{CREATE}{}", " ".repeat(70_000));
    let got = posted(&page, &headers, &long);
    // It may be closed before the answer is read.
    assert!(got.is_empty() || status(&got) == 413, "{got}");
    let begun = Instant::now();
    let mut slow = connect(&page);
    let length = CREATE.len();
    let head = format!("POST /change HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{{");
    slow.write_all(head.as_bytes()).unwrap();
    let mut got = String::new();
    slow.read_to_string(&mut got).unwrap();
    assert_eq!(status(&got), 408);
    assert!(begun.elapsed() >= Duration::from_secs(9));
    assert_eq!(count(&page), 0);
}

#[test]
fn what_says_nothing_is_closed_and_keeps_none_out_for_long() {
    let page = Page::serve(None);
    let mut silent: Vec<TcpStream> = (0..200).map(|_| connect(&page)).collect();
    for stream in silent.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ");
    }
    let begun = Instant::now();
    let files = || answer(&page, &format!("GET / HTTP/1.1\r\n{}\r\n", host(&page)));
    while files().is_empty() {
        assert!(begun.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(100));
    }
    for mut stream in silent {
        let mut bytes = Vec::new();
        // The end, or a word about the time; and nothing hangs.
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 408"), "{bytes:?}");
    }
}

#[test]
fn garbage_ends_its_connection_and_nothing_else() {
    let page = Page::serve(None);
    let mut word = 0x9E37_79B9_7F4A_7C15_u64;
    for turn in 0..300 {
        let bytes: Vec<u8> = (0..turn * 7 % 500 + 1)
            .map(|_| {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                word as u8
            })
            .collect();
        let mut stream = connect(&page);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let huge = format!("GET / HTTP/1.1\r\n{}X: {}\r\n\r\n", host(&page), "x".repeat(1 << 20));
    let got = answer(&page, &huge);
    assert!(got.is_empty() || status(&got) == 431, "{}", &got[..got.len().min(100)]);
    let got = answer(&page, &format!("GET / HTTP/1.1\r\n{}\r\n", host(&page)));
    assert_eq!(status(&got), 200);
}

/// The next event of a stream, without its `data: `.
fn event(stream: &mut TcpStream, rest: &mut Vec<u8>) -> String {
    loop {
        let text = String::from_utf8_lossy(rest).into_owned();
        if let Some(begin) = text.find("data: ")
            && let Some(end) = text[begin..].find("\n\n")
        {
            let event = text[begin + 6..begin + end].to_owned();
            *rest = text.as_bytes()[begin + end + 2..].to_vec();
            if !event.starts_with("{\"server\":\"") {
                return event;
            }
            continue;
        }
        let mut page = [0; 4096];
        let count = stream.read(&mut page).unwrap();
        assert!(count > 0, "it has ended: {text}");
        rest.extend_from_slice(&page[..count]);
    }
}

#[test]
fn who_watches_sees_each_change_and_without_one_nothing_is_read() {
    let page = Page::serve(None);
    let watch = || {
        let mut stream = connect(&page);
        stream
            .write_all(format!("GET /events HTTP/1.1\r\n{}\r\n", with_token(&page)).as_bytes())
            .unwrap();
        stream
    };
    let (mut one, mut rest) = (watch(), Vec::new());
    let first = event(&mut one, &mut rest);
    assert!(first.starts_with("{\"seen\":{") && first.contains("\"partitions\":[]"), "{first}");
    let (mut other, mut of_other) = (watch(), Vec::new());
    posted(&page, &(with_token(&page) + JSON), CREATE);
    for (stream, rest) in [(&mut one, &mut rest), (&mut other, &mut of_other)] {
        let end = Instant::now() + SOON;
        while !event(stream, rest).contains("\"name\":\"motion\"") {
            assert!(Instant::now() < end);
        }
    }
    *page.machine.fails.lock().unwrap() = Some("no /proc".to_owned());
    let end = Instant::now() + SOON;
    while event(&mut one, &mut rest) != r#"{"failed":"no /proc"}"# {
        assert!(Instant::now() < end);
    }
    drop((one, other));
    // The reader sees it at its next send, a second later at most.
    page.machine.until_unread();
    // And who comes then sees what is now.
    *page.machine.fails.lock().unwrap() = None;
    let (mut later, mut rest) = (watch(), Vec::new());
    assert!(event(&mut later, &mut rest).contains("\"name\":\"motion\""));
}

#[test]
fn a_watcher_too_many_is_told_and_the_page_is_served_all_the_same() {
    let page = Page::serve(None);
    let request = format!("GET /events HTTP/1.1\r\n{}\r\n", with_token(&page));
    let mut watchers: Vec<TcpStream> = Vec::new();
    for _ in 0..16 {
        let mut stream = connect(&page);
        stream.write_all(request.as_bytes()).unwrap();
        event(&mut stream, &mut Vec::new());
        watchers.push(stream);
    }
    assert_eq!(status(&answer(&page, &request)), 503);
    let file = answer(&page, &format!("GET / HTTP/1.1\r\n{}\r\n", host(&page)));
    assert_eq!(status(&file), 200);
    // A place is free once one has gone.
    watchers.pop();
    let end = Instant::now() + SOON;
    loop {
        let mut stream = connect(&page);
        stream.write_all(request.as_bytes()).unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        if &begin == b"HTTP/1.1 200" {
            break;
        }
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn reports_are_listed_and_read_with_the_token() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("run 1.html"), "<h1>latency</h1>").unwrap();
    std::fs::write(dir.path().join("secret.txt"), "x").unwrap();
    let page = Page::serve(Some(dir.path()));
    let get =
        |path: &str| answer(&page, &format!("GET {path} HTTP/1.1\r\n{}\r\n", with_token(&page)));
    assert!(get("/reports").ends_with("[\"run 1.html\"]"));
    let report = get("/reports/run%201.html");
    assert!(report.ends_with("<h1>latency</h1>"), "{report}");
    // A page that is opened as it is runs nothing.
    assert!(report.to_lowercase().contains("content-type: text/plain"), "{report}");
    for path in ["secret.txt", "..%2Fx.html", "%2Fetc%2Fpasswd", "none.html", "%00.html"] {
        let got = get(&format!("/reports/{path}"));
        assert!((400..500).contains(&status(&got)), "{path}: {got}");
    }
    drop(dir);
    let gone = get("/reports");
    assert_eq!(status(&gone), 404, "{gone}");
    assert!(gone.contains("the directory of reports cannot be listed: "), "{gone}");
    let none = Page::serve(None);
    let got = answer(&none, &format!("GET /reports HTTP/1.1\r\n{}\r\n", with_token(&none)));
    assert!(got.ends_with("[]"), "{got}");
}
