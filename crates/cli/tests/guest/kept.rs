// SPDX-License-Identifier: Apache-2.0 OR MIT
//! kept: asmpd keeps channels of a real-time program under their names, and users get those that
//! are for them, and no more of them.

use super::guests::{Boot, On};
use super::held::{Daemon, Unit};
use super::lab::{Process, Test, test, until};
use super::others::sh;
use asmp_channel::{
    Access, Fifo, Kept, Mbuff, OfferError, Options, Overflow, Pages, Readers, Wake,
};
use asmp_channel::{Kind, receive};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, ReplyAttr, ReplyEmpty, ReplyEntry, Request, Session,
};
use rustix::net::sockopt::socket_peercred;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

pub fn all() -> Vec<Test> {
    let bare = |name, run: fn()| test(name, run).on(On::OnePerSeries).booted(&[Boot::Bare]);
    vec![
        bare("kept: users get the channels that are for them, and can do no more", for_whom),
        bare("kept: a channel outlives asmpd, and its name ends with its program", ends),
        bare("kept: descriptors of any kind from users end nothing and keep nothing", any),
        bare("kept: a file whose close is never answered keeps asmpd from nothing", silent)
            .lacks(super::files::no_fuse),
        test("kept: the service starts again beside such a file", silent_service)
            .on(On::One)
            .booted(&[Boot::Systemd])
            .lacks(super::files::no_fuse),
    ]
}

const NAMES: &str = "/tmp/asmp-names";
const DIR: &str = "/run/asmpd/channels";

fn fifo(name: &str) -> asmp_channel::FifoWriter {
    let options = Options { capacity_bytes: 1000, overflow: Overflow::Refuse };
    let fifo = Fifo::create(Path::new(NAMES), name, &options).expect("a FIFO");
    fifo.into_writer(Wake::Never).expect("the writer's role")
}

fn keep(fifo: &asmp_channel::FifoWriter, readers: Readers) -> Kept {
    Kept::new(fifo.fifo().shared(), Access::Write, readers).expect("asmpd keeps it")
}

/// A client in another language, as this user with this group: what it is told (0: here it is), and
/// what it may do with what it got.
fn tells(user: u32, group: u32, path: &str) -> String {
    let script = "
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
fds = array.array('i')
data, control, flags, _ = s.recvmsg(80, socket.CMSG_SPACE(16))
for level, kind, bytes in control:
    fds.frombytes(bytes[:len(bytes) - len(bytes) % fds.itemsize])
print(data[8], len(fds), end='')
for fd in fds:
    for mode in (os.O_RDWR, os.O_RDONLY):
        try:
            os.open(f'/proc/self/fd/{fd}', mode)
            print(' opens', end='')
        except OSError as error:
            print('', error.strerror, end='')
    try:
        os.write(fd, b'x')
        print(' writes', end='')
    except OSError as error:
        print('', error.strerror, end='')
";
    let file = "/tmp/asmp-kept-client.py";
    fs::write(file, script).expect("a script");
    let run =
        format!("setpriv --reuid {user} --regid {group} --clear-groups python3 {file} {path}");
    sh(&run).done().out
}

fn for_whom() {
    let policy = "[[channel]]\nname = 'state'\nowner = 0\nusers = [1005]\n";
    fs::create_dir_all("/etc/asmp").expect("/etc/asmp");
    fs::write("/etc/asmp/policy.toml", policy).expect("a policy");
    let daemon = Daemon::start();
    let log = fifo("log");
    let _log = keep(&log, Readers { users: &[1001], groups: &[2001] });
    let state = Mbuff::alloc(Path::new(NAMES), "state", 4096, Pages::Normal).expect("memory");
    let readers = Readers { users: &[1001], groups: &[] };
    let _state = Kept::new(state.shared(), Access::Read, readers).expect("asmpd keeps it");
    let (log, state) = (format!("{DIR}/0/log"), format!("{DIR}/0/state"));
    receive(Path::new(&log), None, Kind::Fifo, None).expect("root has it");
    // Both ends of a FIFO write: its memory, and no other way to it.
    assert_eq!(tells(1001, 9, &log), "0 1 Permission denied Permission denied writes");
    assert_eq!(tells(1002, 2001, &log), "0 1 Permission denied Permission denied writes");
    assert_eq!(
        tells(1001, 9, &state),
        "0 1 Permission denied Permission denied Bad file descriptor"
    );
    assert_eq!(
        tells(1005, 9, &state),
        "0 1 Permission denied Permission denied Bad file descriptor"
    );
    for (user, group, path) in [(1002, 9, &log), (1005, 9, &log), (1002, 2001, &state)] {
        assert_eq!(tells(user, group, path), "1 0", "user {user}, group {group}: {path}");
    }
    // The socket's directory is root's.
    let nobody = "setpriv --reuid 1001 --regid 9 --clear-groups";
    for attempt in ["rm", "ls >", "mv -t /tmp", "chmod 777"] {
        let tried = sh(&format!("{nobody} sh -c '{attempt} {log}'"));
        assert_ne!(tried.code, 0, "{attempt}");
    }
    daemon.ends();
    assert!(!Path::new(DIR).exists(), "nothing is kept without asmpd");
    fs::remove_file("/etc/asmp/policy.toml").expect("the policy");
    fs::remove_dir_all(NAMES).expect("the names");
}

fn ends() {
    let mut daemon = Daemon::start();
    let log = fifo("log");
    let mut kept = keep(&log, Readers::default());
    assert!(!kept.renew().expect("asmpd runs"));
    daemon.process.0.kill().expect("kill -9");
    daemon.process.0.wait().expect("it ends");
    // Its other process ends a moment later.
    until("asmpd is gone", || matches!(kept.renew(), Err(OfferError::NoKeeper { .. })));
    let path = kept.path();
    let daemon = Daemon::start();
    let early = receive(&path, None, Kind::Fifo, None).expect_err("it does not know it");
    assert!(matches!(early, OfferError::NotFound { .. }), "{early}");
    assert!(kept.renew().expect("asmpd runs again"));
    receive(&path, None, Kind::Fifo, None).expect("root has it");
    drop(kept);
    until("its name is gone", || !path.exists());
    daemon.ends();
    fs::remove_dir_all(NAMES).expect("the names");
}

/// Users register descriptors of files that answer never, or that are not theirs to write.
const ANY: &str = "
import array, fcntl, os, socket, sys, time, traceback
# At once: the test waits for any text.
sys.excepthook = lambda *what: os.write(2, ''.join(traceback.format_exception(*what)).encode())
def register(fd, name, access):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect('/run/asmpd/channels/register')
    ready = s.recv(16)[8]
    if ready != 6:
        return ready, s
    head = b'ASMPKEP\\x01' + bytes([access, 0, 0]) + bytes(5) + name.ljust(64, b'\\0') + bytes(256)
    s.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fd))])
    answer = s.recv(16)
    return answer[8] if answer else None, s
read, write = os.pipe()
unread = socket.socket(socket.AF_UNIX)
files = [os.open(path, os.O_RDONLY) for path in ('/proc/self/status', '/dev/null', '/etc/passwd',
    '/run/asmp/fs/events', '/sys/fs/cgroup/cgroup.procs')] + [read, write, unread.fileno()]
files.append(os.open('/etc/shadow', os.O_PATH))
memory = os.memfd_create('asmp:a', os.MFD_ALLOW_SEALING)
assert register([memory], b'a', 1)[0] == 3
size = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
fcntl.fcntl(memory, fcntl.F_ADD_SEALS, size)
for fd in files:
    for access in (0, 1):
        assert register([fd], b'a', access)[0] == 3, fd
reads = os.open(f'/proc/self/fd/{memory}', os.O_RDONLY)
assert register([reads], b'a', 1)[0] == 3
for name in (b'b', b'../a', b'', b'a/b', b'.'):
    assert register([memory], name, 1)[0] == 3, name
for many in (2, 3, 4, 5, 60):
    assert register([memory] * many, b'a', 1)[0] == 3, many
code, kept = register([memory], b'a', 1)
assert code == 0
assert register([memory], b'a', 1)[0] == 1
# So many places has a user, and one that says nothing has one for 10 s.
silent = []
for _ in range(30):
    s = socket.socket(socket.AF_UNIX)
    s.connect('/run/asmpd/channels/register')
    silent.append(s)
assert register([memory], b'c', 1)[0] == 2
print('done', flush=True)
time.sleep(1000)
";

fn any() {
    let daemon = Daemon::start();
    let script = "/tmp/asmp-kept-any.py";
    fs::write(script, ANY).expect("a script");
    let out = "/tmp/asmp-kept-any.out";
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let run = format!("exec {user} python3 {script} >{out} 2>&1");
    let process = Process::start("sh", &["-c", &run]);
    until("the user has tried all", || fs::read_to_string(out).is_ok_and(|text| !text.is_empty()));
    assert_eq!(fs::read_to_string(out).expect("its output"), "done\n");
    // Others have their places, and the rest of asmpd does not wait.
    let log = fifo("log");
    let kept = keep(&log, Readers::default());
    receive(&kept.path(), None, Kind::Fifo, None).expect("root has it");
    // By a link root gets nothing of the user's; by its own path it gets what is no channel.
    std::os::unix::fs::symlink(format!("{DIR}/65534"), "/tmp/asmp-link").expect("a link");
    let by_link = receive(Path::new("/tmp/asmp-link/a"), None, Kind::Fifo, None);
    assert!(matches!(by_link, Err(OfferError::WrongOwner { found: 65534, .. })), "{by_link:?}");
    let itself = receive(&Path::new(DIR).join("65534/a"), None, Kind::Fifo, None);
    assert!(matches!(itself, Err(OfferError::Shm(_))), "{itself:?}");
    fs::remove_file("/tmp/asmp-link").expect("the link");
    let names = || fs::read_dir(DIR).map_or(0, Iterator::count);
    assert_eq!(names(), 3, "register, the user, root");
    drop(process);
    until("the user's channel is gone", || names() == 2);
    drop(kept);
    daemon.ends();
    fs::remove_dir_all(NAMES).expect("the names");
}

/// A file system with one file. A program that closes the file waits until `answer_all`.
#[derive(Clone, Default)]
struct Silent(Arc<Mutex<Closes>>);

#[derive(Default)]
struct Closes {
    /// Threads that wait, and what answers them.
    wait: Vec<(u32, ReplyEmpty)>,
    /// All are answered from now on.
    is_over: bool,
}

impl Silent {
    fn attributes(number: INodeNo) -> FileAttr {
        let (time, is_dir) = (SystemTime::UNIX_EPOCH, number == INodeNo::ROOT);
        let kind = if is_dir { FileType::Directory } else { FileType::RegularFile };
        FileAttr {
            ino: number,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Does a thread of this process wait in close(2)?
    fn holds(&self, process: i32) -> bool {
        let closes = self.0.lock().expect("no panic");
        let of = |tid: u32| Path::new(&format!("/proc/{process}/task/{tid}")).exists();
        closes.wait.iter().any(|(tid, _)| of(*tid))
    }

    fn answer_all(&self) {
        let mut closes = self.0.lock().expect("no panic");
        closes.is_over = true;
        closes.wait.drain(..).for_each(|(_, reply)| reply.ok());
    }
}

/// Answers when it is dropped: a process that waits cannot be killed.
struct Answers(Silent);

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.answer_all();
    }
}

impl Filesystem for Silent {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "file" {
            true => reply.entry(&Duration::ZERO, &Self::attributes(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &Self::attributes(number));
    }

    fn flush(&self, request: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let mut closes = self.0.lock().expect("no panic");
        match closes.is_over {
            true => reply.ok(),
            false => closes.wait.push((request.pid(), reply)),
        }
    }
}

/// Registers a file, and does not close it before it is answered.
const REGISTERS: &str = "
import array, os, socket, time
file = os.open('/tmp/asmp-silent/file', os.O_RDONLY)
s = socket.socket(socket.AF_UNIX)
s.connect('/run/asmpd/channels/register')
assert s.recv(16)[8] == 6
head = b'ASMPKEP\\x01' + bytes(8) + b'a'.ljust(64, b'\\0') + bytes(256)
s.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [file]))])
time.sleep(100000)
";

/// The process that listens to programs.
fn keeper() -> i32 {
    let stream = UnixStream::connect(format!("{DIR}/register")).expect("it listens");
    socket_peercred(&stream).expect("its number").pid.as_raw_pid()
}

const MOUNT: &str = "/tmp/asmp-silent";

fn mounted(server: &Silent) -> BackgroundSession {
    fs::create_dir_all(MOUNT).expect("a directory");
    let session = Session::new(server.clone(), Path::new(MOUNT), &Config::default());
    session.and_then(Session::spawn).expect("a file system")
}

/// Without the file system, whose closes are answered.
fn unmounted(session: BackgroundSession) {
    session.umount_and_join().expect("it ends");
    fs::remove_dir(MOUNT).expect("the directory");
}

fn silent() {
    let server = Silent::default();
    let session = mounted(&server);
    let daemon = Daemon::start();
    let hangs = keeper();
    assert_ne!(hangs, daemon.process.id() as i32);
    let fds = fs::read_dir(format!("/proc/{hangs}/fd")).expect("its files").flatten();
    let files: Vec<_> = fds.filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
    let is_asmpds =
        |file: &&Path| file.ends_with("lock") || file.ends_with("fuse") || file.starts_with("/sys");
    assert_eq!(files.iter().map(AsRef::as_ref).find(is_asmpds), None, "{files:?}");
    let program = Process::start("python3", &["-c", REGISTERS]);
    let answers = Answers(server.clone());
    until("the keeper waits in close(2)", || server.holds(hangs));
    // Others are served.
    let log = fifo("log");
    let mut kept = keep(&log, Readers::default());
    let (_, told) = daemon.ends();
    assert!(server.holds(hangs) && told.contains("does not end: see asmpd(8)"), "{told}");
    let next = Daemon::start();
    assert_ne!(keeper(), hangs);
    assert!(kept.renew().expect("asmpd keeps it again"));
    let path = Path::new(DIR).join("0/log");
    receive(&path, None, Kind::Fifo, None).expect("root has it");
    drop(answers);
    // Its first thread may wait to be reaped.
    let threads = || fs::read_dir(format!("/proc/{hangs}/task")).map_or(0, Iterator::count);
    until("the old keeper ends", || threads() <= 1);
    receive(&path, None, Kind::Fifo, None).expect("it took nothing of the new one");
    next.ends();
    drop(program);
    unmounted(session);
    fs::remove_dir_all(NAMES).expect("the names");
}

fn silent_service() {
    let server = Silent::default();
    let session = mounted(&server);
    let unit = Unit::install();
    sh("systemctl start asmpd").done();
    let hangs = keeper();
    let program = Process::start("python3", &["-c", REGISTERS]);
    let answers = Answers(server.clone());
    until("the keeper waits in close(2)", || server.holds(hangs));
    let began = Instant::now();
    sh("systemctl restart asmpd").done();
    println!("  restarted after {:.1} s", began.elapsed().as_secs_f64());
    assert!(server.holds(hangs) && keeper() != hangs);
    drop((answers, program, unit));
    unmounted(session);
}
