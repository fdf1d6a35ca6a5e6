// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides of an offer, also as two users (root only), and what hostile or careless programs do
//! at a socket.

use super::*;
use crate::fifo::{Fifo, FifoReader, FifoWriter, Options, Wake};
use crate::mbuff::{Mbuff, MbuffError, RawRecord};
use crate::names::tests::{THIRD, USER, dir_of, in_child, is_root};
use crate::ring::Overflow;
use crate::shm::{Pages, Role};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tempfile::TempDir;

/// What comes, comes within this time on any machine.
const SOON: Option<Duration> = Some(Duration::from_secs(120));

/// A directory of this user, in which others may look up paths.
fn dir() -> TempDir {
    // SAFETY: takes nothing, cannot fail.
    dir_of(unsafe { libc::geteuid() }, 0o755)
}

fn fifo(dir: &TempDir, name: &str) -> Fifo {
    let options = Options { capacity_bytes: 1000, overflow: Overflow::Refuse };
    Fifo::create(dir.path(), name, &options).unwrap()
}

fn writer(dir: &TempDir) -> FifoWriter {
    fifo(dir, "a").into_writer(Wake::Never).unwrap()
}

fn offer(dir: &TempDir, channel: &SharedMemory, access: Access, users: &[u32]) -> Arc<Offer> {
    Arc::new(Offer::new(&dir.path().join("socket"), channel, access, users).unwrap())
}

/// Serves until it is ended; how many clients got the channel.
fn serve(offer: &Arc<Offer>) -> std::thread::JoinHandle<usize> {
    let offer = Arc::clone(offer);
    std::thread::spawn(move || {
        let mut given = 0;
        loop {
            match offer.serve_one(None) {
                Ok(_) => given += 1,
                Err(OfferError::Ended { .. }) => return given,
                Err(error) => panic!("{error}"),
            }
        }
    })
}

fn receive_fifo(dir: &TempDir) -> Result<Fifo, OfferError> {
    Ok(Fifo::from_shared(receive(&dir.path().join("socket"), None, Kind::Fifo, SOON)?)?)
}

fn echo(writer: &mut FifoWriter, reader: &mut FifoReader) {
    let mut bytes = [0; 8];
    writer.put(b"12345678").unwrap();
    assert_eq!((reader.get(&mut bytes), &bytes), (Ok(8), b"12345678"));
}

#[test]
fn who_receives_a_fifo_has_roles_of_its_own_and_cannot_release_ours() {
    let dir = dir();
    let mut writer = writer(&dir);
    let offer = offer(&dir, writer.fifo().shared(), Access::Write, &[]);
    let server = serve(&offer);
    let received = receive_fifo(&dir).unwrap();
    let shared = received.shared();
    assert!(shared.is_held(Role::Writer), "a lock of another open file description");
    assert!(matches!(shared.acquire(Role::Writer), Err(ShmError::RoleTaken { .. })));
    shared.release(Role::Writer);
    let observer = Fifo::attach(dir.path(), "a").unwrap();
    assert!(observer.shared().is_held(Role::Writer), "ours is not theirs to release");
    let mut reader = received.into_reader(Wake::Never).unwrap();
    assert!(reader.has_writer() && writer.has_reader());
    echo(&mut writer, &mut reader);
    drop(reader);
    // The other direction, by the same path: the role is free again.
    receive_fifo(&dir).unwrap().into_reader(Wake::Never).unwrap();
    offer.end();
    assert_eq!(server.join().unwrap(), 2);
    drop(offer);
    assert!(!dir.path().join("socket").exists(), "the socket goes with its offer");
}

#[test]
fn a_program_that_reads_offers_the_writers_role() {
    let dir = dir();
    let mut reader = fifo(&dir, "a").into_reader(Wake::Never).unwrap();
    let offer = offer(&dir, reader.fifo().shared(), Access::Write, &[]);
    let server = serve(&offer);
    let mut writer = receive_fifo(&dir).unwrap().into_writer(Wake::Never).unwrap();
    echo(&mut writer, &mut reader);
    offer.end();
    server.join().unwrap();
}

#[test]
fn what_is_offered_for_reading_can_only_be_read() {
    let dir = dir();
    let record = RawRecord::alloc(dir.path(), "a", 8, Pages::Normal).unwrap();
    let mut writer = record.writer().unwrap();
    writer.write(b"12345678");
    let offer = offer(&dir, writer.record().shared(), Access::Read, &[]);
    let server = serve(&offer);
    let path = dir.path().join("socket");
    let shared = receive(&path, None, Kind::Mbuff, SOON).unwrap();
    assert!(!shared.is_writable());
    let received = RawRecord::from_shared(shared).unwrap();
    let mut bytes = [0; 8];
    assert_eq!((received.read(&mut bytes), &bytes), (Ok(Some(1)), b"12345678"));
    assert!(received.has_writer());
    let refused = received.writer().unwrap_err().to_string();
    assert_eq!(refused, "channel a was offered for reading: offer it for writing too");
    drop(writer);
    let refused = Mbuff::from_shared(receive(&path, None, Kind::Mbuff, SOON).unwrap());
    assert!(matches!(refused, Err(MbuffError::ViewMismatch { .. })));
    offer.end();
    server.join().unwrap();
    let raw = Mbuff::alloc(dir.path(), "raw", 100, Pages::Normal).unwrap();
    raw.write(0, b"xyz").unwrap();
    let file = raw.shared().open_again(false).unwrap();
    let raw = SharedMemory::from_fd(file.into(), "raw", Kind::Mbuff).unwrap();
    assert!(!raw.again().unwrap().is_writable(), "nor where it is mapped again");
    let raw = Mbuff::from_shared(raw).unwrap();
    let refused = raw.write(0, b"abc").unwrap_err();
    assert!(matches!(refused, MbuffError::Shm(ShmError::ReadOnly { .. })), "{refused}");
    raw.read(0, &mut bytes[..3]).unwrap();
    assert_eq!(&bytes[..3], b"xyz");
}

#[test]
fn a_peer_who_spoils_header_and_memory_keeps_no_second_mapping_from_its_end() {
    let dir = dir();
    let first = fifo(&dir, "a");
    let peer = first.shared().open_again(true).unwrap();
    peer.write_all_at(&[0xff; 64], 0).unwrap();
    let whole = peer.metadata().unwrap().len() as libc::off_t;
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::fallocate(peer.as_raw_fd(), punch, 0, whole) }, 0);
    let again = Fifo::from_shared(first.shared().again().unwrap()).unwrap();
    assert_eq!(again.capacity_bytes(), first.capacity_bytes());
    assert!(Fifo::attach(dir.path(), "a").is_err(), "it was not spoiled");
}

#[test]
fn a_second_mapping_shares_its_roles_with_the_first() {
    let dir = dir();
    let first = fifo(&dir, "a");
    let second = first.shared().again().unwrap();
    let third = second.again().unwrap();
    first.shared().acquire(Role::Reader).unwrap();
    first.shared().acquire(Role::Reader).unwrap();
    assert!(second.is_held(Role::Reader) && !first.shared().is_held(Role::Reader));
    assert!(matches!(third.acquire(Role::Reader), Err(ShmError::RoleTaken { .. })));
    assert!(matches!(second.acquire(Role::Reader), Err(ShmError::RoleTaken { .. })));
    let another = Fifo::attach(dir.path(), "a").unwrap();
    another.shared().acquire(Role::Writer).unwrap();
    assert!(matches!(third.acquire(Role::Writer), Err(ShmError::RoleTaken { .. })));
    drop(another);
    third.acquire(Role::Writer).unwrap();
    drop(first);
    second.acquire(Role::Reader).unwrap();
    drop(third);
    second.acquire(Role::Writer).unwrap();
}

#[test]
fn only_users_that_the_program_names_get_the_channel() {
    if !is_root("two users") {
        return;
    }
    let dir = dir();
    let writer = writer(&dir);
    let path = dir.path().join("socket");
    let as_user = |user| {
        in_child(user, || {
            let found = receive(&path, Some(0), Kind::Fifo, SOON).map(|_| ());
            match (user, found) {
                (USER, Ok(())) => Ok(()),
                (THIRD, Err(refused)) => {
                    let line = refused.to_string();
                    assert!(
                        line.ends_with(
                            "socket is not for user 65533: its program must name this user"
                        ),
                        "{line}"
                    );
                    Ok(())
                }
                (_, found) => panic!("user {user}: {found:?}"),
            }
        });
    };
    // Alone, the kernel keeps the others off the socket; together they are asked who they are.
    for (users, mode, refused) in [(&[USER][..], 0o600, 0), (&[USER, 65532], 0o666, 1)] {
        let offer = offer(&dir, writer.fifo().shared(), Access::Write, users);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, mode);
        let server = serve(&offer);
        as_user(USER);
        as_user(THIRD);
        receive(&path, None, Kind::Fifo, SOON).unwrap();
        offer.end();
        assert_eq!((server.join().unwrap(), offer.refused()), (2, refused), "{users:?}");
    }
    let offer = offer(&dir, writer.fifo().shared(), Access::Write, &[]);
    as_user(THIRD);
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    assert!(offer.serve_one(Some(Duration::ZERO)).is_err());
}

#[test]
fn a_peer_of_another_user_can_widen_nothing_that_it_got() {
    if !is_root("a peer of another user") {
        return;
    }
    let dir = dir();
    let record = RawRecord::alloc(dir.path(), "a", 8, Pages::Normal).unwrap();
    let writer = record.writer().unwrap();
    let offer = offer(&dir, writer.record().shared(), Access::Read, &[USER]);
    let server = serve(&offer);
    let path = dir.path().join("socket");
    in_child(USER, || {
        let shared = receive(&path, Some(0), Kind::Mbuff, SOON).unwrap();
        let again = shared.open_again(true).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EACCES), "not even by its own descriptor");
        Ok(())
    });
    offer.end();
    server.join().unwrap();
}

#[test]
fn a_socket_of_another_user_is_trusted_only_if_the_program_names_that_user() {
    if !is_root("a program of another user") {
        return;
    }
    let (dir, path) = (dir_of(USER, 0o755), PathBuf::new());
    let path = path.join(dir.path()).join("socket");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            in_child(USER, || {
                let channel = fifo(&dir, "a");
                channel.shared().acquire(Role::Reader).unwrap();
                let offer = Offer::new(&path, channel.shared(), Access::Write, &[]).unwrap();
                // A client that trusts it not may be gone before it is served.
                let end = Instant::now() + SOON.unwrap();
                while !dir.path().join("done").exists() && Instant::now() < end {
                    let _ = offer.serve_one(Some(Duration::from_millis(5)));
                }
                Ok(())
            });
        });
        // The program makes the socket first and listens then: it is asked until it does.
        let refused = loop {
            match receive(&path, None, Kind::Fifo, SOON).unwrap_err() {
                OfferError::NotFound { .. } => std::thread::sleep(Duration::from_millis(1)),
                other => break other.to_string(),
            }
        };
        assert!(
            refused.contains("is served by user 65534, and not by root or user 0: name that user"),
            "{refused}"
        );
        receive(&path, Some(USER), Kind::Fifo, SOON).unwrap();
        std::fs::write(dir.path().join("done"), "").unwrap();
    });
}

#[test]
fn a_path_that_cannot_be_is_refused_and_a_stale_socket_replaced() {
    let dir = dir();
    let writer = writer(&dir);
    let shared = writer.fifo().shared();
    let make = |path: &Path| Offer::new(path, shared, Access::Write, &[]).map(drop);
    let said = |path: &Path| make(path).unwrap_err().to_string();
    let at = |name: &str| dir.path().join(name);
    for path in [at(&"x".repeat(108)), PathBuf::from("/"), dir.path().join("..")] {
        assert!(said(&path).contains("at most 107 bytes: choose another"), "{}", path.display());
    }
    std::fs::write(at("file"), "kept").unwrap();
    assert!(said(&at("file")).ends_with("is no socket: remove it, or choose another path"));
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    assert!(said(&at("link")).contains("is a symbolic link: remove it"));
    let refused = receive(&at("link"), None, Kind::Fifo, SOON).unwrap_err();
    assert!(matches!(refused, OfferError::NotASocket { what: "a symbolic link", .. }), "{refused}");
    let refused = receive(&at("file"), None, Kind::Fifo, SOON).unwrap_err();
    assert!(matches!(refused, OfferError::NotASocket { what: "no socket", .. }), "{refused}");
    assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "kept");

    let live = UnixListener::bind(at("socket")).unwrap();
    assert!(said(&at("socket")).contains("another process listens on"));
    drop(live);
    // The child that another test forks has a copy of it, until it becomes its program or ends.
    let end = Instant::now() + Duration::from_secs(180);
    while UnixStream::connect(at("socket")).is_ok() {
        assert!(Instant::now() < end, "a dropped listener listens");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(at("socket").exists(), "its process left it behind");
    let refused = receive(&at("socket"), None, Kind::Fifo, SOON).unwrap_err().to_string();
    assert!(refused.ends_with("socket: start the program that offers it"), "{refused}");
    make(&at("socket")).unwrap();
    assert!(!at("socket").exists());
    let refused = receive(&at("none"), None, Kind::Fifo, SOON).unwrap_err();
    assert!(matches!(refused, OfferError::NotFound { .. }), "{refused}");

    std::fs::create_dir(at("open")).unwrap();
    std::fs::set_permissions(at("open"), Permissions::from_mode(0o1777)).unwrap();
    assert!(said(&at("open/socket")).contains("open may be written by other users: choose a dir"));
    if is_root("a directory of another user") {
        let theirs = dir_of(USER, 0o755);
        let refused = said(&theirs.path().join("socket"));
        assert!(refused.contains("belongs to another user: choose a directory"), "{refused}");
    }
}

#[test]
fn a_program_that_ends_before_it_accepts_its_client_is_named_as_ended() {
    let dir = dir();
    let path = dir.path().join("socket");
    let live = UnixListener::bind(&path).unwrap();
    let receiving = {
        let path = path.clone();
        std::thread::spawn(move || receive(&path, None, Kind::Fifo, SOON).map(drop))
    };
    let mut asked = libc::pollfd { fd: live.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd on our stack.
    assert_eq!(unsafe { libc::poll(&raw mut asked, 1, 60_000) }, 1, "it connects");
    drop(live);
    let refused = receiving.join().unwrap().unwrap_err().to_string();
    assert!(
        refused.ends_with("socket: its program ended before it handed the channel over: try again"),
        "{refused}"
    );
}

#[test]
fn what_would_give_the_peer_too_much_is_not_offered() {
    let dir = dir();
    let channel = fifo(&dir, "a");
    let path = dir.path().join("socket");
    let refused = Offer::new(&path, channel.shared(), Access::Write, &[]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "channel a has no end here: take its role first, then offer it"
    );
    let writer = channel.into_writer(Wake::Never).unwrap();
    let refused = Offer::new(&path, writer.fifo().shared(), Access::Read, &[]).unwrap_err();
    assert!(matches!(refused, OfferError::BothWrite { .. }), "{refused}");
    assert!(!path.exists());
    match Mbuff::alloc(dir.path(), "huge", 100, Pages::Huge) {
        Err(error) => println!("skipped: no huge pages: {error}"),
        Ok(huge) => {
            let refused = Offer::new(&path, huge.shared(), Access::Write, &[]).unwrap_err();
            assert!(matches!(refused, OfferError::HugePages { .. }), "{refused}");
        }
    }
}

#[test]
fn clients_that_say_nothing_take_nothing_or_come_by_hundreds_keep_no_other_out() {
    let dir = dir();
    let writer = writer(&dir);
    let offer = offer(&dir, writer.fifo().shared(), Access::Write, &[]);
    let server = serve(&offer);
    let path = dir.path().join("socket");
    let silent: Vec<_> = (0..300).map(|_| UnixStream::connect(&path).unwrap()).collect();
    (0..300).for_each(|_| drop(UnixStream::connect(&path).unwrap()));
    receive_fifo(&dir).unwrap();
    drop(silent);
    offer.end();
    assert!(server.join().unwrap() >= 301);
}

#[test]
fn a_program_without_descriptors_says_so_and_serves_when_it_has_some() {
    let dir = dir();
    let path = dir.path().join("socket");
    in_child(me(), || {
        let writer = writer(&dir);
        let offer = Offer::new(&path, writer.fifo().shared(), Access::Write, &[]).unwrap();
        let limit = |most| {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: 1024 };
            // SAFETY: the kernel reads one rlimit of ours.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        };
        let lowest = || u64::from(File::open("/dev/null").unwrap().as_raw_fd().unsigned_abs());
        let waiting = UnixStream::connect(&path).unwrap();
        for free in [0, 1] {
            let _second = (free == 1).then(|| UnixStream::connect(&path).unwrap());
            let first = lowest();
            limit(first + free);
            let refused = offer.serve_one(Some(Duration::ZERO)).unwrap_err();
            limit(1024);
            let OfferError::Io { cause, .. } = refused else { panic!("{refused}") };
            assert_eq!(cause.raw_os_error(), Some(libc::EMFILE), "{free} free");
        }
        // The first one heard that it was in vain.
        let refused = wire::take(&waiting, &path).unwrap().unwrap();
        assert!(refused.status == Status::Busy && refused.descriptor.is_none());
        let client = UnixStream::connect(&path).unwrap();
        offer.serve_one(SOON).unwrap();
        limit(lowest());
        let refused = wire::take(&client, &path).unwrap_err().to_string();
        limit(1024);
        assert!(refused.contains("may not open more files: raise its limit"), "{refused}");
        Ok(())
    });
}

fn me() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

#[test]
fn the_socket_does_not_depend_on_the_umask() {
    let dir = dir();
    in_child(me(), || {
        let writer = writer(&dir);
        for (mask, users, mode) in
            [(0o777, &[][..], 0o600), (0, &[], 0o600), (0o777, &[1, 2, 3], 0o666)]
        {
            // SAFETY: takes a number. This process is a child of the test.
            unsafe { libc::umask(mask) };
            let offer = offer(&dir, writer.fifo().shared(), Access::Write, users);
            assert_eq!(offer.path().metadata().unwrap().mode() & 0o777, mode);
        }
        Ok(())
    });
}

/// What `receive` makes of a server that does this to its client.
fn hostile(act: impl FnOnce(UnixStream) + Send) -> OfferError {
    let dir = dir();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| act(listener.accept().unwrap().0));
        receive(&path, None, Kind::Fifo, Some(Duration::from_millis(500))).unwrap_err()
    })
}

/// A link in a path may lead to a channel that another user has asmpd keep.
#[test]
fn of_what_root_serves_the_user_who_registered_it_counts() {
    if !is_root("what root serves") {
        return;
    }
    let error = hostile(|to| {
        let dir = dir();
        let raw = Mbuff::alloc(dir.path(), "a", 100, Pages::Normal).unwrap();
        let fd = Some(raw.shared().as_fd());
        wire::send(&to, Status::Given, Some(USER), "a", fd).unwrap();
    });
    let is_users = matches!(error, OfferError::WrongOwner { found, asked: 0, .. } if found == USER);
    assert!(is_users, "{error}");
    // Root's own.
    let error = hostile(|to| wire::send(&to, Status::NotForYou, Some(0), "a", None).unwrap());
    assert!(matches!(error, OfferError::NotForUs { .. }), "{error}");
}

#[test]
fn what_is_no_offer_is_refused_and_nothing_hangs() {
    let bad = |act: &(dyn Fn(UnixStream) + Sync)| match hostile(act) {
        OfferError::BadMessage { what, .. } => what,
        other => panic!("{other}"),
    };
    assert!(bad(&drop).starts_with("its program ended before"));
    assert!(bad(&|mut to| to.write_all(b"hello").unwrap()).starts_with("what listens there"));
    assert!(bad(&|mut to| to.write_all(&[0; 200]).unwrap()).starts_with("what listens there"));
    let nothing = |to: UnixStream| wire::send(&to, Status::Given, None, "a", None).unwrap();
    assert!(bad(&nothing).starts_with("what listens there"));
    let with = |to: UnixStream| {
        let file = File::open("/dev/null").unwrap();
        wire::send(&to, Status::NotForYou, None, "a", Some(file.as_fd())).unwrap();
    };
    assert!(bad(&with).starts_with("what listens there"));
    let refused = hostile(|to| {
        let file = tempfile::tempfile().unwrap();
        wire::send(&to, Status::Given, None, "a", Some(file.as_fd())).unwrap();
    });
    assert_eq!(refused.to_string(), "channel a does not match: its size is not sealed");
    let refused = hostile(|to| {
        let dir = dir();
        let raw = Mbuff::alloc(dir.path(), "a", 100, Pages::Normal).unwrap();
        wire::send(&to, Status::Given, None, "a", Some(raw.shared().as_fd())).unwrap();
    });
    assert!(refused.to_string().contains("of kind 2, expected 1 (Fifo)"), "{refused}");
    let refused = hostile(|to| {
        let file = File::open("/dev/null").unwrap();
        wire::send(&to, Status::Given, None, "../a", Some(file.as_fd())).unwrap();
    });
    assert!(matches!(refused, OfferError::Shm(ShmError::BadName { .. })), "{refused}");
    // Said in time, by a server that never says anything.
    let silent = hostile(|to| {
        std::thread::sleep(Duration::from_secs(2));
        drop(to);
    });
    assert!(matches!(silent, OfferError::TimedOut { .. }), "{silent}");
    // And by one that never takes a client, though others wait already.
    let dir = dir();
    let path = dir.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut waiting = Vec::new();
    while let Ok(client) = wire::connect(&path, Some(Duration::from_millis(1))) {
        waiting.push(client);
    }
    let refused = receive(&path, None, Kind::Fifo, Some(Duration::from_millis(50))).unwrap_err();
    assert!(matches!(refused, OfferError::TimedOut { .. }), "{refused}");
}

#[test]
fn a_thread_that_serves_ends_when_another_ends_the_offer() {
    let dir = dir();
    let writer = writer(&dir);
    let offer = offer(&dir, writer.fifo().shared(), Access::Write, &[]);
    let server = serve(&offer);
    // So that the thread sleeps in most runs. Where it does not yet, it finds the offer ended: both
    // ways must end it.
    std::thread::sleep(Duration::from_millis(20));
    offer.end();
    assert_eq!(server.join().unwrap(), 0);
    let refused = offer.serve_one(None).unwrap_err().to_string();
    assert!(refused.ends_with("socket has ended"), "{refused}");
    let refused = receive_fifo(&dir).unwrap_err();
    assert!(matches!(refused, OfferError::NotFound { .. }), "{refused}");
}
