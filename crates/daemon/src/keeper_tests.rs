// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who gets a kept channel, what is not kept, and what ends it. Guest tests do it as other users.

use super::*;
use crate::policy::Files;
use asmp_channel::{Access, Fifo, FifoWriter, Kept as Registered, Kind, OfferError, Options};
use asmp_channel::{Overflow, Readers, Wake, receive};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use tempfile::TempDir;

const SOON: Option<Duration> = Some(Duration::from_secs(120));

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// asmpd's directory, and a program's directory of names.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self::with_keeper().0
    }

    fn with_keeper() -> (Self, Keeper) {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        let keeper = place.start();
        (place, keeper)
    }

    /// As the process starts that keeps channels: in a new directory.
    fn start(&self) -> Keeper {
        fs::create_dir(self.channels()).unwrap();
        let policy = self.dir.path().join("no-policy.toml");
        let files = Files { policy, ..Files::default() };
        start(&self.channels(), Seen::new(files, |_| {})).unwrap()
    }

    fn channels(&self) -> PathBuf {
        self.dir.path().join("channels")
    }

    fn writer(&self, name: &str) -> FifoWriter {
        let options = Options { capacity_bytes: 1000, overflow: Overflow::Refuse };
        let fifo = Fifo::create(&self.dir.path().join("names"), name, &options).unwrap();
        fifo.into_writer(Wake::Never).unwrap()
    }

    fn register(&self, writer: &FifoWriter) -> Result<Registered, OfferError> {
        let readers = Readers { users: &[7, 8], groups: &[9] };
        Registered::at(&self.channels(), writer.fifo().shared(), Access::Write, readers)
    }

    fn receive(&self, name: &str) -> Result<Fifo, OfferError> {
        let path = keeper::path_of(&self.channels(), me(), name);
        Ok(Fifo::from_shared(receive(&path, None, Kind::Fifo, SOON)?)?)
    }

    /// The files below asmpd's directory. Waits until there are `count` of them.
    fn wait_for_files(&self, count: usize) -> Vec<PathBuf> {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let dirs = [self.channels()].into_iter();
            let mut dirs: Vec<PathBuf> = dirs.collect();
            let mut files = Vec::new();
            while let Some(dir) = dirs.pop() {
                for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                    match entry.file_type().unwrap().is_dir() {
                        true => dirs.push(entry.path()),
                        false => files.push(entry.path()),
                    }
                }
            }
            if files.len() == count {
                return files;
            }
            assert!(Instant::now() < end, "{count} expected: {files:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_kept_channel_is_received_by_its_name_as_often_as_asked_until_its_program_ends() {
    let place = Place::new();
    let mut writer = place.writer("log");
    let kept = place.register(&writer).unwrap();
    assert!(place.wait_for_files(2).contains(&kept.path()));
    for turn in 0..3_u8 {
        let mut reader = place.receive("log").unwrap().into_reader(Wake::Never).unwrap();
        writer.put(&[turn; 8]).unwrap();
        let mut bytes = [0; 8];
        assert_eq!((reader.get(&mut bytes), bytes), (Ok(8), [turn; 8]));
    }
    let reader = place.receive("log").unwrap();
    drop(kept);
    place.wait_for_files(1);
    assert!(matches!(place.receive("log"), Err(OfferError::NotFound { .. })));
    // Who has it keeps it.
    let mut reader = reader.into_reader(Wake::Never).unwrap();
    writer.put(b"later").unwrap();
    assert_eq!(reader.get(&mut [0; 8]), Ok(5));
}

#[test]
fn a_name_is_one_channel_of_a_user_until_that_is_gone() {
    let place = Place::new();
    let first = place.writer("a");
    let kept = place.register(&first).unwrap();
    let taken = place.register(&first).unwrap_err();
    assert!(matches!(taken, OfferError::NameKept { .. }), "{taken}");
    let other = place.writer("b");
    let _other = place.register(&other).unwrap();
    place.wait_for_files(3);
    drop(kept);
    place.wait_for_files(2);
    let _again = place.register(&first).unwrap();
}

#[test]
fn a_program_that_is_started_again_gets_its_name_from_the_one_before() {
    let place = Place::new();
    let writer = place.writer("a");
    // Their last words may come later than the first of the next.
    for _ in 0..200 {
        drop(place.register(&writer).unwrap());
    }
    let kept = place.register(&writer).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(RESTART / 4);
            drop(kept);
        });
        place.register(&writer).unwrap();
    });
    assert!(begun.elapsed() >= RESTART / 4);
}

#[test]
fn where_no_name_can_be_made_nothing_is_left_of_it() {
    let place = Place::new();
    let writer = place.writer("a");
    let dir = place.channels().join(me().to_string());
    fs::write(&dir, "").unwrap();
    for _ in 0..2 {
        let refused = place.register(&writer).unwrap_err();
        assert!(matches!(refused, OfferError::Busy { .. }), "{refused}");
    }
    fs::remove_file(dir).unwrap();
    place.register(&writer).unwrap();
}

#[test]
fn one_program_too_many_is_told_so_and_has_a_place_once_another_ends() {
    let place = Place::new();
    let most = if me() == 0 { MOST } else { MOST_OF_USER };
    let mut all: Vec<_> = (0..most).map(|_| connected(&place, Reply::Ready)).collect();
    connected(&place, Reply::TooMany);
    let writer = place.writer("a");
    for _ in 0..100 {
        let refused = place.register(&writer).unwrap_err();
        assert!(matches!(refused, OfferError::TooMany), "{refused}");
    }
    all.pop();
    let end = Instant::now() + Duration::from_secs(120);
    while let Err(refused) = place.register(&writer) {
        assert!(matches!(refused, OfferError::TooMany) && Instant::now() < end, "{refused}");
        // Another thread sees the end.
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_program_registers_again_with_the_next_asmpd() {
    let place = Place::new();
    let writer = place.writer("a");
    let mut kept = place.register(&writer).unwrap();
    assert!(!kept.renew().unwrap(), "it is kept already");
    // The connection's thread ends with the process; here it is told.
    rustix::net::shutdown(kept.as_fd(), rustix::net::Shutdown::Both).unwrap();
    place.wait_for_files(1);
    fs::remove_dir_all(place.channels()).unwrap();
    assert!(matches!(kept.renew(), Err(OfferError::NoKeeper { .. })));
    assert!(matches!(place.register(&writer), Err(OfferError::NoKeeper { .. })));
    place.start();
    place.wait_for_files(1);
    assert!(kept.renew().unwrap());
    assert!(!kept.renew().unwrap(), "once is enough");
    place.receive("a").unwrap();
}

/// Whatever its threads wait for.
#[test]
fn programs_are_told_of_the_end_and_know_a_keeper_that_could_not_tell() {
    let (place, keeper) = Place::with_keeper();
    let writer = place.writer("a");
    let mut kept = place.register(&writer).unwrap();
    keeper.end();
    let mut polled = [PollFd::from_borrowed_fd(kept.as_fd(), PollFlags::IN)];
    let long = Timespec { tv_sec: 120, tv_nsec: 0 };
    assert_eq!(poll(&mut polled, Some(&long)), Ok(1));
    place.wait_for_files(1);
    assert!(kept.renew().unwrap());
    // Killed, it keeps the connection open if it cannot end.
    let old = place.dir.path().join("old");
    fs::rename(place.channels(), &old).unwrap();
    assert!(matches!(kept.renew(), Err(OfferError::NoKeeper { .. })));
    let _next = place.start();
    assert!(kept.renew().unwrap() && !kept.renew().unwrap());
    // The old one hears of the end now, and removes its own name.
    let end = Instant::now() + Duration::from_secs(120);
    while keeper::path_of(&old, me(), "a").exists() {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(1));
    }
    place.receive("a").unwrap();
}

#[test]
fn with_its_last_channel_the_directory_of_a_user_goes() {
    let place = Place::new();
    let (first, second) = (place.writer("a"), place.writer("b"));
    let kept = [place.register(&first).unwrap(), place.register(&second).unwrap()];
    let dir = kept[0].path().parent().unwrap().to_owned();
    assert!(dir.exists());
    drop(kept);
    let end = Instant::now() + Duration::from_secs(120);
    while dir.exists() {
        assert!(Instant::now() < end);
        // Another thread removes it.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Root registers before it drops its rights. Of this thread alone, as the kernel has it.
#[test]
fn a_program_that_changes_its_user_keeps_its_channel_and_cannot_renew_it() {
    if me() != 0 {
        println!("skipped: only root can change its user");
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let writer = place.writer("a");
    let mut kept = place.register(&writer).unwrap();
    let path = kept.path();
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: takes numbers alone.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
            assert_eq!((changed, kept.path()), (0, path.clone()));
            assert!(!kept.renew().unwrap() && path.exists());
            fs::remove_file(&path).unwrap_err();
        });
    });
    fs::remove_file(kept.path()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: takes numbers alone.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) }, 0);
            let why = kept.renew().unwrap_err();
            assert!(matches!(why, OfferError::NotKept { .. }), "{why}");
        });
    });
}

/// Whether sockets of this kernel can refuse descriptors: a new socket is asked.
fn has_passrights() -> bool {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let (socket, _other) = UnixStream::pair().unwrap();
    let (mut value, mut length) = (0_i32, 4);
    // SAFETY: the kernel writes at most `length` bytes to `value`.
    let found = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    found == 0
}

/// To close one could wait for who sent it.
#[test]
fn who_receives_can_send_no_descriptor() {
    let place = Place::new();
    let writer = place.writer("a");
    let kept = place.register(&writer).unwrap();
    let client = UnixStream::connect(kept.path()).unwrap();
    match send(&client, b"x", Some(&OwnedFd::from(File::open("/dev/null").unwrap()))) {
        Err(errno) => assert!(matches!(errno, Errno::PERM | Errno::PIPE), "{errno}"),
        Ok(_) if has_passrights() => panic!("it was sent"),
        Ok(_) => println!("skipped: SO_PASSRIGHTS is Linux 6.16's"),
    }
}

#[test]
fn who_registers_can_send_no_descriptor_before_it_may() {
    let place = Place::new();
    let most = if me() == 0 { MOST } else { MOST_OF_USER };
    let _all: Vec<_> = (0..most).map(|_| connected(&place, Reply::Ready)).collect();
    let null = OwnedFd::from(File::open("/dev/null").unwrap());
    let (mut came, mut refused) = (0, 0);
    for _ in 0..100 {
        let one_more = UnixStream::connect(place.channels().join(REGISTER)).unwrap();
        match send(&one_more, b"x", Some(&null)) {
            Ok(_) => came += 1,
            Err(errno) => {
                assert!(matches!(errno, Errno::PERM | Errno::PIPE), "{errno}");
                refused += usize::from(errno == Errno::PERM);
            }
        }
    }
    match refused {
        0 if has_passrights() => panic!("all were sent"),
        0 => println!("skipped: SO_PASSRIGHTS is Linux 6.16's"),
        _ => assert_eq!(came, 0),
    }
}

/// fcntl(2), F_SETLEASE: to open it then waits up to 45 s.
#[test]
fn a_lease_on_the_memory_makes_nobody_wait() {
    let place = Place::new();
    let writer = place.writer("a");
    let path = format!("/proc/self/fd/{}", writer.fifo().shared().as_fd().as_raw_fd());
    let memory = opened(&path, OpenOptions::new().read(true));
    // A lease for writing is for who alone has it open.
    drop(writer);
    let program = connected(&place, Reply::Ready);
    send(&program, &registration("a", Access::Read), Some(&memory)).unwrap();
    place.wait_for_files(2);
    // Who has the lease is told by a signal that would end it.
    // SAFETY: no test waits for this signal.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let (lease, fd) = (libc::c_int::from(libc::F_WRLCK as i16), memory.as_raw_fd());
    // SAFETY: takes numbers.
    let leased = unsafe { libc::fcntl(fd, libc::F_SETLEASE, lease) };
    assert_eq!(leased, 0, "{}", io::Error::last_os_error());
    let begun = Instant::now();
    let busy = place.receive("a").unwrap_err();
    assert!(matches!(busy, OfferError::Busy { .. }), "{busy}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// Sends these bytes, with a descriptor.
fn send(to: &UnixStream, bytes: &[u8], descriptor: Option<&OwnedFd>) -> Result<usize, Errno> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let fds = descriptor.map(AsFd::as_fd);
    let fds = fds.as_slice();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    sendmsg(to, &[io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}

/// A connection on which asmpd says this first.
fn connected(place: &Place, first: Reply) -> UnixStream {
    let mut stream = UnixStream::connect(place.channels().join(REGISTER)).unwrap();
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[8], first as u8, "{bytes:?}");
    stream
}

/// What comes back.
fn sent(place: &Place, bytes: &[u8], descriptor: Option<&OwnedFd>) -> Vec<u8> {
    let mut stream = connected(place, Reply::Ready);
    send(&stream, bytes, descriptor).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    // It may be closed with bytes that were not read.
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn registration(name: &str, access: Access) -> Vec<u8> {
    let registration =
        Registration { name: name.into(), access, users: Vec::new(), groups: Vec::new() };
    registration.to_bytes().unwrap().to_vec()
}

/// A registration with a name that may be wrong.
fn named(name: &str) -> Vec<u8> {
    let mut bytes = registration("a", Access::Write);
    bytes[16..16 + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

fn opened(path: &str, how: &mut OpenOptions) -> OwnedFd {
    how.open(path).unwrap().into()
}

#[test]
fn nothing_is_given_for_more_than_its_descriptor_was_open_for() {
    let place = Place::new();
    let fifo = place.writer("a");
    let shared = fifo.fifo().shared();
    let path = format!("/proc/self/fd/{}", shared.as_fd().as_raw_fd());
    let reads = opened(&path, OpenOptions::new().read(true));
    let writes = opened(&path, OpenOptions::new().write(true));
    let path_alone =
        opened(&path, OpenOptions::new().read(true).custom_flags(OFlags::PATH.bits() as i32));
    let both = opened(&path, OpenOptions::new().read(true).write(true));
    let file = opened("/proc/self/exe", OpenOptions::new().read(true));
    let null = opened("/dev/null", OpenOptions::new().read(true).write(true));
    let (pipe, _end) = io::pipe().unwrap();
    for (what, access, fd, reply) in [
        ("open for reading", Access::Write, &reads, Reply::NoChannel),
        ("open for writing", Access::Write, &writes, Reply::NoChannel),
        ("open for writing", Access::Read, &writes, Reply::NoChannel),
        ("a path", Access::Read, &path_alone, Reply::NoChannel),
        ("a path", Access::Write, &path_alone, Reply::NoChannel),
        ("a file", Access::Read, &file, Reply::NoChannel),
        ("a device", Access::Write, &null, Reply::NoChannel),
        ("a pipe", Access::Read, &OwnedFd::from(pipe), Reply::NoChannel),
        ("open for reading", Access::Read, &reads, Reply::Kept),
        ("open for both", Access::Write, &both, Reply::Kept),
    ] {
        let answer = sent(&place, &registration("a", access), Some(fd));
        assert_eq!(answer.get(8), Some(&(reply as u8)), "{what} for {access:?}");
        place.wait_for_files(1);
    }
    // Memory that its program can make shorter, or that none can write to.
    let sealed = |seals| {
        let memory = rustix::fs::memfd_create("asmp:a", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
        memory
    };
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for (what, access, seals, reply) in [
        ("none", Access::Write, SealFlags::empty(), Reply::NoChannel),
        ("not its end", Access::Read, SealFlags::GROW | SealFlags::SEAL, Reply::NoChannel),
        ("no last one", Access::Read, SealFlags::GROW | SealFlags::SHRINK, Reply::NoChannel),
        ("its size", Access::Write, size, Reply::Kept),
        ("its bytes", Access::Write, size | SealFlags::WRITE, Reply::NoChannel),
        ("from now on", Access::Write, size | SealFlags::FUTURE_WRITE, Reply::NoChannel),
        ("its bytes", Access::Read, size | SealFlags::WRITE, Reply::Kept),
    ] {
        let answer = sent(&place, &registration("a", access), Some(&sealed(seals)));
        assert_eq!(answer.get(8), Some(&(reply as u8)), "{what} for {access:?}");
    }
    // A name that is none, of memory that has it.
    for name in ["..", "a b", "ä"] {
        let memory = rustix::fs::memfd_create(format!("asmp:{name}"), MemfdFlags::ALLOW_SEALING);
        let answer = sent(&place, &named(name), Some(&memory.unwrap()));
        assert_eq!(answer.get(8), Some(&(Reply::NoChannel as u8)), "{name}");
    }
    // Another's name, and no descriptor at all.
    let answer = sent(&place, &registration("b", Access::Read), Some(&reads));
    assert_eq!(answer.get(8), Some(&(Reply::NoChannel as u8)));
    let answer = sent(&place, &registration("a", Access::Read), None);
    assert_eq!(answer.get(8), Some(&(Reply::NoChannel as u8)));
}

#[test]
fn messages_that_say_something_else_keep_nothing() {
    let place = Place::new();
    let fifo = place.writer("a");
    let path = format!("/proc/self/fd/{}", fifo.fifo().shared().as_fd().as_raw_fd());
    let fd = opened(&path, OpenOptions::new().read(true).write(true));
    let good = registration("a", Access::Write);
    let kept = |bytes: &[u8]| sent(&place, bytes, Some(&fd)).get(8) == Some(&(Reply::Kept as u8));
    assert!(kept(&good));
    place.wait_for_files(1);
    // Each byte that says something, wrong.
    for at in 0..80 {
        let mut bytes = good.clone();
        bytes[at] ^= 0x80;
        assert!(!kept(&bytes), "byte {at}");
    }
    for (what, name) in [("a slash", "../../a"), ("a dot", "."), ("nothing", ""), ("a space", " ")]
    {
        let mut bytes = good.clone();
        bytes[16..16 + 8].fill(0);
        bytes[16..16 + name.len()].copy_from_slice(name.as_bytes());
        assert!(!kept(&bytes), "{what}");
    }
    for count in [0, 1, 79, good.len() - 1] {
        assert!(!kept(&good[..count.max(1)]), "{count} bytes");
    }
    assert!(!kept(&[good.clone(), vec![0; 100]].concat().split_off(100)));
    let mut stream = connected(&place, Reply::Ready);
    stream.write_all(b"{\"method\":\"org.varlink.service.GetInfo\"}\0").unwrap();
    place.wait_for_files(1);
    place.register(&fifo).unwrap();
}

#[test]
fn each_user_has_so_many_places_and_root_has_some_of_its_own() {
    let mut places = Places::default();
    let mut entered = |uid| (0..).take_while(|_| places.enter(uid)).take(1000).count();
    assert_eq!(entered(1000), MOST_OF_USER);
    let others: usize = (1001..1100).map(&mut entered).sum();
    assert_eq!(MOST_OF_USER + others, MOST_OF_USERS);
    assert_eq!(entered(0), MOST - MOST_OF_USERS);
    places.leave(1003);
    assert!(places.enter(1000 + 500) && !places.enter(1000 + 500));
    for _ in 0..1000 {
        places.leave(1000);
    }
    assert!(!places.connections.contains_key(&1000));
}

#[test]
fn a_channel_is_for_its_user_root_whom_it_names_and_whom_the_policy_names() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        path
    };
    let text = "[[channel]]\nname = 'a'\nowner = 'alice'\nusers = [20]\ngroups = ['audio']\n\
                [[channel]]\nname = 'b'\nowner = 1000\nusers = [21]\n";
    let files = Files {
        policy: file("policy.toml", text),
        users: file("passwd", "alice:x:1000:100::/:\n"),
        groups: file("group", "audio:x:29:\n"),
        owner: me(),
    };
    let seen = Mutex::new(Seen::new(files.clone(), |_| {}));
    let (users, groups) = (vec![7, 8], vec![9]);
    let registration = Registration { name: "a".into(), access: Access::Read, users, groups };
    let memory = File::open("/dev/null").unwrap();
    let kept = Kept { registration, memory, owner: 1000 };
    let may = |uid, group| {
        let peer = Peer { pid: 1, uid, groups: [group].into() };
        kept.is_for(&peer) || kept.is_granted(&peer, &seen)
    };
    for (uid, group) in [(0, 50), (1000, 50), (7, 50), (8, 50), (40, 9), (20, 50), (40, 29)] {
        assert!(may(uid, group), "user {uid}, group {group}");
    }
    for (uid, group) in [(40, 50), (9, 7), (21, 50), (29, 20), (100, 100)] {
        assert!(!may(uid, group), "user {uid}, group {group}");
    }
    // Of the same name, another user's.
    let peer = Peer { pid: 1, uid: 20, groups: [50].into() };
    let policy = files.read().unwrap();
    assert!(policy.gives_channel(1000, "a", &peer) && !policy.gives_channel(1001, "a", &peer));
    assert!(!policy.gives_channel(1000, "b", &peer));
    // A file with an error gives nothing more.
    file("policy.toml", &format!("{text}[[channel]]\nname = 'a'\n"));
    assert!(!may(20, 50) && may(7, 50));
}
