// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is read from open files, and of what poll(2) tells, without a mount.

use super::*;
use crate::hold::{Event, Record};
use crate::tree::PartitionFile;
use asmp_host::Kernel;
use asmp_host::Schedule;
use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_shield::{Caller, Members, Request, Spec};

fn shared() -> (tempfile::TempDir, Shared) {
    let (dir, shared, _) = machine();
    (dir, shared)
}

fn machine() -> (tempfile::TempDir, Shared, Arc<FakeKernel>) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let kernel = Arc::new(FakeKernel::new());
    let board = Arc::new(Board::new(0).unwrap());
    let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
    let shared = Shared {
        texts: Texts::new(shield.clone(), Arc::clone(&board)),
        board,
        inodes: Inodes::default(),
        started: SystemTime::UNIX_EPOCH,
        waiting: Mutex::default(),
        open: Mutex::default(),
        last: Mutex::default(),
    };
    (dir, shared, kernel)
}

fn tell(shared: &Shared, why: &str) {
    let event = Event::Failed { why: why.to_owned() };
    shared.board.tell(&Record { at_ns: 1, event, cause: "a link".to_owned() }, 1_000_000);
}

/// A handle of a file that user 1000 opens.
fn opened(shared: &Shared, node: &Node) -> u64 {
    let number = shared.inodes.number(&shared.texts.view().unwrap(), node);
    shared.open().add(number, 1000).unwrap()
}

fn events(shared: &Shared) -> u64 {
    opened(shared, &Node::Events)
}

fn read(shared: &Shared, handle: u64, room: u32) -> String {
    let number = INodeNo(shared.inodes.number(&View::default(), &Node::Events));
    // A stream: the place does not matter.
    String::from_utf8(shared.read(number, handle, 7, room).unwrap()).unwrap()
}

#[test]
fn events_are_read_once_and_in_pieces_of_any_size() {
    let (_dir, shared) = shared();
    (0..40).for_each(|number| tell(&shared, &format!("event {number}")));
    let whole = read(&shared, events(&shared), 1 << 20);
    assert_eq!(whole.lines().count(), 40);
    assert!(whole.starts_with("1970-01-01 00:00:01 UTC  event 0 (a link)\n"), "{whole}");
    let handle = events(&shared);
    let mut pieces = String::new();
    loop {
        let piece = read(&shared, handle, 7);
        assert!(piece.len() <= 7);
        if piece.is_empty() {
            break;
        }
        pieces += &piece;
    }
    assert_eq!(pieces, whole);
    tell(&shared, "one more");
    assert_eq!(read(&shared, handle, 1000).lines().count(), 1);
    assert_eq!(read(&shared, handle, 1000), "");
}

#[test]
fn no_name_begins_another_line() {
    let (_dir, shared) = shared();
    tell(&shared, "task 7 (x\n2026-01-01 00:00:00 UTC  motion)");
    assert_eq!(read(&shared, events(&shared), 1000).lines().count(), 1);
}

#[test]
fn events_are_as_old_as_the_last_one() {
    let (_dir, shared) = shared();
    let mtime = |node: &Node| shared.attributes(&View::default(), node).mtime;
    assert_eq!(mtime(&Node::Events), SystemTime::UNIX_EPOCH);
    tell(&shared, "the first");
    let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    assert_eq!((mtime(&Node::Events), mtime(&Node::Root)), (second, SystemTime::UNIX_EPOCH));
}

#[test]
fn who_reads_too_slowly_goes_on_with_the_oldest_event() {
    let (_dir, shared) = shared();
    let handle = events(&shared);
    tell(&shared, "the first");
    assert!(read(&shared, handle, 1000).contains("the first"));
    (0..1001).for_each(|number| tell(&shared, &format!("event {number}.")));
    let rest = read(&shared, handle, 1 << 20);
    assert!(rest.contains("event 1. ") && !rest.contains("event 0. "), "{}", &rest[..200]);
    assert_eq!(rest.lines().count(), 1000);
}

#[test]
fn poll_tells_of_what_was_not_read_yet() {
    let (_dir, shared) = shared();
    let handle = events(&shared);
    let is_news = || shared.poll(handle, None).contains(PollEvents::POLLIN | PollEvents::POLLPRI);
    assert!(!is_news());
    tell(&shared, "the first");
    assert!(is_news());
    read(&shared, handle, 3);
    assert!(is_news(), "the rest of the line");
    read(&shared, handle, 1000);
    assert!(!is_news());
    // What poll(2) does not know is always ready, as a file on a disk is.
    let metrics = opened(&shared, &Node::Metrics);
    assert_eq!(shared.poll(metrics, None), PollEvents::POLLIN | PollEvents::POLLOUT);
    assert_eq!(shared.poll(99, None), PollEvents::POLLERR);
}

/// Else no one could read why asmpd is blind.
#[test]
fn where_the_state_cannot_be_read_metrics_and_events_can() {
    let (dir, shared) = shared();
    create(&shared, "motion", "3");
    let handle = events(&shared);
    let view = shared.texts.view().unwrap();
    let number = |node: &Node| INodeNo(shared.inodes.number(&view, node));
    let cpus = Node::OfPartition("motion".to_owned(), PartitionFile::Cpus);
    let found = |node: &Node| shared.at(number(node), Errno::ENOENT).map(|_| ());
    assert!(found(&cpus).is_ok());
    fs::write(dir.path().join("state.json"), "x").unwrap();
    assert_eq!(found(&cpus).map_err(|error| error.code()), Err(libc::EIO));
    for node in [Node::Root, Node::Events, Node::Metrics] {
        assert!(found(&node).is_ok(), "{node:?}");
    }
    let metrics = shared.open().add(number(&Node::Metrics).0, 1000).unwrap();
    let text = shared.read(number(&Node::Metrics), metrics, 0, 1 << 20).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("asmp_partition_cpus{partition=\"motion\"} 1"), "{text}");
    assert_eq!(shared.poll(handle, None), PollEvents::empty(), "its partition has not ended");
    tell(&shared, "why");
    assert!(shared.poll(handle, None).contains(PollEvents::POLLIN));
    assert!(read(&shared, handle, 1000).contains("why"));
    let open = shared.open().add(number(&cpus).0, 1000).unwrap();
    assert!(!shared.poll(open, None).contains(PollEvents::POLLHUP));
}

#[test]
fn who_waits_is_noted_once() {
    let (_dir, shared) = shared();
    let handle = events(&shared);
    let waits = || shared.open().take_waiting().pop();
    shared.poll(handle, Some(PollHandle(5)));
    shared.poll(handle, None);
    assert_eq!(waits().map(|one| one.0), Some(5));
    assert!(waits().is_none());
}

fn create(shared: &Shared, name: &str, cpus: &str) {
    let spec = Spec::of(cpus.parse().unwrap());
    ask(shared, &Request::Create { name: name.to_owned(), spec });
}

fn ask(shared: &Shared, request: &Request) {
    shared.texts.shield().change(request, &Caller::now(0, "root", "test")).unwrap();
}

fn add(shared: &Shared, name: &str, pids: Vec<i32>) {
    let members = Members { pids, ..Members::default() };
    ask(shared, &Request::Add { name: name.to_owned(), members });
}

fn remove(shared: &Shared, name: &str, pids: Vec<i32>) {
    let members = Members { pids, ..Members::default() };
    ask(shared, &Request::Remove { name: name.to_owned(), members, demote: true });
}

const PIDS: fn() -> Node = || Node::OfPartition("a".to_owned(), PartitionFile::Pids);

fn at(shared: &Shared, node: &Node) -> INodeNo {
    INodeNo(shared.inodes.number(&shared.texts.view().unwrap(), node))
}

/// What a read of at most 4 bytes gives.
fn piece(shared: &Shared, node: &Node, handle: u64, from: u64) -> String {
    let bytes = shared.read(at(shared, node), handle, from, 4).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn who_reads_in_pieces_gets_one_text() {
    let (_dir, shared, kernel) = machine();
    for pid in [2001, 2002, 2003] {
        kernel.start(pid, pid, "app", Schedule::Other { nice: 0 });
    }
    create(&shared, "a", "3");
    add(&shared, "a", vec![2001, 2002, 2003]);
    let handle = opened(&shared, &PIDS());
    let mut text = piece(&shared, &PIDS(), handle, 0);
    // What was read first is gone from the file meanwhile.
    remove(&shared, "a", vec![2001]);
    while let more @ 1.. = text.len() as u64 {
        let next = piece(&shared, &PIDS(), handle, more);
        if next.is_empty() {
            break;
        }
        text += &next;
    }
    assert_eq!(text, "2001\n2002\n2003\n");
    // After its end there is no more of it, and from its beginning there is a new one.
    assert_eq!(piece(&shared, &PIDS(), handle, 1), "");
    assert_eq!(piece(&shared, &PIDS(), handle, 0), "2002");
    // Another reader has its own.
    let other = opened(&shared, &PIDS());
    assert_eq!(piece(&shared, &PIDS(), other, 5), "2003");
}

#[test]
fn an_open_file_is_not_of_a_later_partition_of_its_name() {
    let (_dir, shared, _) = machine();
    create(&shared, "a", "3");
    let old = at(&shared, &PIDS());
    assert!(shared.at(old, Errno::ENODEV).is_ok());
    let destroy = || Request::Destroy { name: Some("a".to_owned()), demote: true };
    ask(&shared, &destroy());
    assert!(shared.at(old, Errno::ENODEV).is_err());
    let spec = Spec::of("3".parse().unwrap());
    let again = Request::Create { name: "a".to_owned(), spec };
    shared.texts.shield().change(&again, &Caller::now(0, "root", "another command")).unwrap();
    assert_eq!(
        shared.at(old, Errno::ENODEV).err().map(|error| error.code()),
        Some(Errno::ENODEV.code())
    );
    assert_ne!(at(&shared, &PIDS()), old);
}

#[test]
fn poll_of_violations_tells_that_their_partition_has_ended() {
    let (_dir, shared, _) = machine();
    create(&shared, "a", "3");
    let node = Node::OfPartition("a".to_owned(), PartitionFile::Violations);
    let handle = opened(&shared, &node);
    shared.read(at(&shared, &node), handle, 0, 100).unwrap();
    assert_eq!(shared.poll(handle, None), PollEvents::empty());
    ask(&shared, &Request::Destroy { name: None, demote: true });
    let told = shared.poll(handle, None);
    assert!(told.contains(PollEvents::POLLIN | PollEvents::POLLERR | PollEvents::POLLHUP));
}

#[test]
fn a_list_of_entries_is_one_however_it_is_read() {
    let (_dir, shared, _) = machine();
    create(&shared, "a", "2");
    create(&shared, "b", "3");
    let handle = opened(&shared, &Node::Partitions);
    let names = |from: u64| -> Vec<String> {
        let (_, entries) = shared.entries(at(&shared, &Node::Partitions), handle, from).unwrap();
        entries.iter().skip(from as usize).map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(0), [".", "..", "a", "b"]);
    ask(&shared, &Request::Destroy { name: Some("a".to_owned()), demote: true });
    assert_eq!(names(3), ["b"]);
    assert_eq!(names(0), [".", "..", "b"]);
}

#[test]
fn the_state_is_read_once_for_many_and_a_change_is_seen_at_once() {
    let (_dir, shared, kernel) = machine();
    create(&shared, "a", "3");
    let first = shared.texts.view().unwrap();
    let calls = kernel.calls();
    for _ in 0..100 {
        assert!(Arc::ptr_eq(&first, &shared.texts.view().unwrap()));
    }
    assert_eq!(kernel.calls(), calls);
    create(&shared, "b", "2");
    assert_eq!(shared.texts.view().unwrap().state.partitions.len(), 2);
    // Counters are read once for all who ask within a tenth of a second, texts of tasks each time.
    let noise = Node::OfPartition("a".to_owned(), PartitionFile::Noise);
    let reads = |node: &Node| {
        let before = kernel.calls();
        let texts: Vec<_> =
            (0..2).map(|_| shared.texts.of(&shared.texts.view().unwrap(), node)).collect();
        (kernel.calls() - before, texts)
    };
    let (once, texts) = reads(&noise);
    assert_eq!((reads(&noise).0, &texts[0]), (0, &texts[1]), "{once}");
    assert!(reads(&PIDS()).0 > 0);
}
