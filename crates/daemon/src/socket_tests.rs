// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that ask, that send anything, and that do not read.

use super::*;
use crate::hold::{Event, Hold, Pace, Record};
use crate::policy::Files;
use std::io::{BufRead, BufReader};

/// A socket, and what it shows.
struct Server {
    dir: tempfile::TempDir,
    place: Place,
    socket: Socket,
    board: Arc<Board>,
}

impl Server {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(&dir.path().join("asmpd")).unwrap();
        let board = Arc::new(Board::new(1).unwrap());
        board.note_user(rustix::process::geteuid().as_raw());
        board.show(&Hold::new(Pace::default()), 1);
        let policy = Seen::new(Files::default(), |_| {});
        let socket = Socket::new(&place, Arc::clone(&board), policy).unwrap();
        Self { dir, place, socket, board }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("asmpd").join(NAME)
    }

    fn client(&mut self) -> UnixStream {
        let client = UnixStream::connect(self.path()).unwrap();
        self.turn();
        client
    }

    fn turn(&mut self) {
        self.socket.turn(Some(Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    fn happens(&self, why: &str) {
        let event = Event::Failed { why: why.to_owned() };
        self.board.tell(&Record { at_ns: 1, event, cause: String::new() }, 1);
    }

    fn clients(&self) -> usize {
        self.socket.clients.len()
    }
}

const STATE: &[u8] = b"{\"method\": \"org.asmp.Hold.GetState\"}\0";
const FOLLOW: &[u8] = b"{\"method\": \"org.asmp.Hold.FollowEvents\", \"more\": true}\0";

/// The next reply that has come.
fn reply(client: &mut BufReader<UnixStream>) -> String {
    let mut bytes = Vec::new();
    client.read_until(0, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_request_may_come_in_parts_and_several_at_once() {
    let mut server = Server::new();
    let mut client = server.client();
    for byte in STATE {
        client.write_all(&[*byte]).unwrap();
        server.turn();
    }
    client.write_all(&[STATE, STATE].concat()).unwrap();
    server.turn();
    let mut client = BufReader::new(client);
    for _ in 0..3 {
        assert!(reply(&mut client).contains("running_us"));
    }
}

#[test]
fn one_that_follows_gets_each_event_once_and_no_other_reply() {
    let mut server = Server::new();
    server.happens("first");
    let mut client = server.client();
    client.write_all(FOLLOW).unwrap();
    server.turn();
    server.turn();
    server.happens("second");
    server.turn();
    // A reply would come in the middle of those that it waits for.
    client.write_all(STATE).unwrap();
    server.turn();
    assert_eq!(server.clients(), 0);
    let mut client = BufReader::new(client);
    for says in ["first", "second"] {
        let reply = reply(&mut client);
        assert!(reply.contains(says) && reply.contains("\"continues\":true"), "{says}: {reply}");
    }
    assert_eq!(reply(&mut client), "");
}

#[test]
fn one_that_only_listens_may_close_its_end() {
    let mut server = Server::new();
    let mut client = server.client();
    client.write_all(FOLLOW).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    server.turn();
    server.happens("later");
    server.turn();
    let mut client = BufReader::new(client);
    assert!(reply(&mut client).contains("later"));
    drop(client);
    server.turn();
    assert_eq!(server.clients(), 0);
}

#[test]
fn requests_that_want_no_reply_keep_others_waiting_for_a_few_of_them_only() {
    let mut server = Server::new();
    let mut greedy = server.client();
    let quiet = b"{\"method\":\"org.asmp.Hold.GetEvents\",\"oneway\":true}\0".repeat(1000);
    greedy.write_all(&quiet).unwrap();
    greedy.write_all(STATE).unwrap();
    let mut turns = 0;
    greedy.set_nonblocking(true).unwrap();
    while greedy.read(&mut [0; 4096]).is_err() {
        server.turn();
        turns += 1;
    }
    // What was read is gone on with, without another word of the client.
    assert!((1000 / MOST_AT_ONCE..1100).contains(&turns), "{turns}");
}

#[test]
fn nonsense_and_a_request_without_an_end_are_let_go() {
    let mut server = Server::new();
    let mut nonsense = server.client();
    nonsense.write_all(b"GET / HTTP/1.1\r\n\r\n\0").unwrap();
    server.turn();
    assert_eq!(server.clients(), 0);
    let mut endless = server.client();
    endless.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while server.clients() == 1 {
        sent += endless.write(&[b' '; 4096]).unwrap_or(0);
        server.turn();
        assert!(sent < 1 << 20, "{sent} bytes were read");
    }
    let mut gone = server.client();
    gone.write_all(&STATE[..5]).unwrap();
    drop(gone);
    server.turn();
    assert_eq!(server.clients(), 0);
}

#[test]
fn one_that_does_not_read_keeps_only_itself_waiting() {
    let mut server = Server::new();
    (0..1000).for_each(|_| server.happens(&"x".repeat(300)));
    let mut lazy = server.client();
    let events = b"{\"method\": \"org.asmp.Hold.GetEvents\"}\0".repeat(20);
    lazy.write_all(&events).unwrap();
    let mut other = server.client();
    other.write_all(STATE).unwrap();
    server.turn();
    server.turn();
    assert!(reply(&mut BufReader::new(other)).contains("running_us"));
    let one = server.socket.clients.values().next().unwrap();
    assert!(!one.unsent.is_empty() && one.read.len() > events.len() / 2, "one reply at a time");
    // It gets all of them when it reads.
    lazy.set_nonblocking(true).unwrap();
    let (mut got, mut page) = (0, vec![0; 1 << 20]);
    while got < 20 {
        server.turn();
        if let Ok(count) = lazy.read(&mut page) {
            got += page[..count].iter().filter(|byte| **byte == 0).count();
        }
    }
    assert_eq!(got, 20);
}

#[test]
fn a_follower_that_takes_nothing_costs_little_and_is_told_what_it_lost() {
    let mut server = Server::new();
    let mut lazy = server.client();
    lazy.write_all(FOLLOW).unwrap();
    server.turn();
    for _ in 0..3000 {
        server.happens(&"x".repeat(1000));
        server.turn();
    }
    let one = server.socket.clients.values().next().unwrap();
    let waits = one.unsent.len() - one.sent;
    assert!(waits < 2 * MOST_UNSENT, "{waits} bytes wait");
    // It reads again, and some events are kept no more.
    let mut all = Vec::new();
    lazy.set_nonblocking(true).unwrap();
    while server.clients() == 1 {
        let _ = lazy.read_to_end(&mut all);
        server.turn();
    }
    let _ = lazy.read_to_end(&mut all);
    let text = String::from_utf8(all).unwrap();
    let replies: Vec<&str> = text.split_terminator('\0').collect();
    let (last, events) = replies.split_last().unwrap();
    assert!(last.contains("org.asmp.Hold.EventsLost"), "{last}");
    assert!(events.iter().all(|event| event.contains("\"continues\":true")) && events.len() > 50);
}

#[test]
fn there_is_a_limit_of_clients_and_one_too_many_is_told() {
    let mut server = Server::new();
    // Root has no limit of its own.
    let limit = if rustix::process::geteuid().is_root() { MOST_CLIENTS } else { MOST_OF_USER };
    let clients: Vec<UnixStream> = (0..limit).map(|_| server.client()).collect();
    let mut more = BufReader::new(server.client());
    assert!(reply(&mut more).contains("org.asmp.Hold.TooManyClients"));
    assert_eq!((reply(&mut more).as_str(), server.clients()), ("", limit));
    drop(clients);
    server.turn();
    assert_eq!(server.clients(), 0);
    let _one = server.client();
    assert_eq!(server.clients(), 1);
}

#[test]
fn users_have_fewer_places_than_root_and_leave_it_some() {
    let users = |count: u32| -> Vec<u32> { (0..count).map(|at| 1000 + at / 16).collect() };
    assert!(has_room(&users(15), 1000) && !has_room(&users(16), 1000));
    assert!(has_room(&users(16), 1001));
    assert!(has_room(&users(55), 1009) && !has_room(&users(56), 1009));
    assert!(has_room(&users(56), 0));
    assert!(!has_room(&[users(56), vec![0; 8]].concat(), 0));
}

#[test]
fn a_second_one_is_refused_and_what_a_killed_one_left_is_replaced() {
    let server = Server::new();
    let dir = server.dir.path().join("asmpd");
    assert_eq!(Place::take(&dir).err().as_deref(), Some("another asmpd runs"));
    assert!(UnixStream::connect(server.path()).is_ok(), "the first one is still there");
    let Server { dir: _kept, place, socket, .. } = server;
    drop((place, socket));
    assert!(!dir.join(NAME).exists(), "an end removes it");
    // A kill does not.
    drop(UnixListener::bind(dir.join(NAME)).unwrap());
    let _place = Place::take(&dir).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join(NAME)), mode(&dir.join("lock"))), (0o755, 0o666, 0o600));
    assert_eq!(mode(&dir.join(ROOTS)), 0o600);
}

#[test]
fn root_is_answered_while_the_queue_of_the_users_is_full() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let mut server = Server::new();
    let users = SocketAddrUnix::new(server.path()).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let mut waiting = Vec::new();
    let full = loop {
        let one = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let one = one.unwrap();
        match rustix::net::connect(&one, &users) {
            Ok(()) => waiting.push(one),
            Err(errno) => break errno,
        }
        assert!(waiting.len() < 100_000);
    };
    assert_eq!(full, Errno::AGAIN);
    let mut root = UnixStream::connect(server.dir.path().join("asmpd").join(ROOTS)).unwrap();
    root.write_all(STATE).unwrap();
    server.turn();
    let uids = server.clients();
    assert!(uids <= MOST_AT_ONCE + 1, "a turn takes some of each queue: {uids}");
    server.turn();
    root.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    assert!(reply(&mut BufReader::new(root)).contains("running_us"));
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let all = tempfile::tempdir().unwrap();
    let dir = all.path().join("open");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    let link = all.path().join("link");
    std::os::unix::fs::symlink(all.path(), &link).unwrap();
    for dir in [dir, link] {
        let why = Place::take(&dir).err().expect("it is refused");
        assert!(why.contains("remove it"), "{why}");
        assert!(!dir.join(NAME).exists());
    }
}

/// Any bytes, in any cuts, from several clients at once: none ends asmpd.
#[test]
fn any_bytes_from_any_client_are_outlived() {
    let mut seed = 7u64;
    let mut random = move |below: usize| {
        // Marsaglia, Xorshift RNGs (2003).
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut server = Server::new();
    server.happens("an event");
    let words = [
        STATE,
        FOLLOW,
        b"{\"method\":",
        b"\"org.asmp.Hold.",
        b"GetEvents\"",
        b"}",
        b"\0",
        b"{",
        b"[",
        b"\xff\xfe",
        b"\"parameters\": {\"after\": ",
        b"18446744073709551616",
        b"-1",
        b"null",
        b"1e9",
    ];
    let mut clients: Vec<UnixStream> = Vec::new();
    for _ in 0..100_000 {
        if clients.len() < 8 {
            let client = server.client();
            client.set_nonblocking(true).unwrap();
            clients.push(client);
        }
        let at = random(clients.len());
        let word = words[random(words.len())];
        let cut = &word[..=random(word.len())];
        let whole = if random(3) == 0 { word } else { cut };
        let is_gone =
            clients[at].write(whole).is_err_and(|error| error.kind() != ErrorKind::WouldBlock);
        server.turn();
        let _ = clients[at].read(&mut [0; 4096]);
        if is_gone || random(50) == 0 {
            clients.swap_remove(at);
        }
    }
    clients.clear();
    let mut client = server.client();
    client.write_all(STATE).unwrap();
    server.turn();
    assert!(reply(&mut BufReader::new(client)).contains("running_us"));
    assert_eq!(server.clients(), 1);
}

const END: &[u8] =
    b"{\"method\": \"org.asmp.Partitions.End\", \"parameters\": {\"name\": \"run-1\"}}\0";

#[test]
fn one_that_wants_work_waits_for_it_and_is_answered_in_order() {
    let mut server = Server::new();
    let mut client = server.client();
    client.write_all(&[END, STATE].concat()).unwrap();
    server.turn();
    server.turn();
    let (key, work) = server.board.take_work().expect("work");
    assert!(matches!(work, Work::End { ref name, .. } if name == "run-1"));
    assert!(server.board.take_work().is_none());
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0; 64]).unwrap_err().kind(), ErrorKind::WouldBlock);
    // Others are served meanwhile.
    let mut other = server.client();
    other.write_all(STATE).unwrap();
    server.turn();
    assert!(reply(&mut BufReader::new(other)).contains("running_us"));
    server.board.reply(key, b"done\0".to_vec());
    server.turn();
    server.turn();
    client.set_nonblocking(false).unwrap();
    let mut client = BufReader::new(client);
    assert_eq!(reply(&mut client), "done\0");
    assert!(reply(&mut client).contains("running_us"));
}

#[test]
fn one_that_leaves_is_told_of_after_its_work() {
    let mut server = Server::new();
    let mut client = server.client();
    client.write_all(END).unwrap();
    server.turn();
    drop(client);
    server.turn();
    server.turn();
    let (key, work) = server.board.take_work().expect("work");
    assert!(matches!(work, Work::End { .. }));
    // Until then it keeps its place: the line is no longer than there are places.
    assert_eq!((server.clients(), server.board.take_work()), (1, None));
    // The reply reaches no client.
    server.board.reply(key, b"done\0".to_vec());
    server.turn();
    assert_eq!(server.clients(), 0);
    assert_eq!(server.board.take_work(), Some((key, Work::Left)));
    // One that wanted nothing is not told of.
    let mut other = server.client();
    other.write_all(STATE).unwrap();
    server.turn();
    drop(other);
    server.turn();
    assert_eq!(server.board.take_work(), None);
}

#[path = "socket_fuzz_tests.rs"]
mod fuzz;
