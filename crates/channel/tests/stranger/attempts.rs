// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the stranger tries, row by row of the list in `main.rs`. Each asserts the exact refusal.

use crate::{Attempt, Place, STRANGER, program};
use asmp_channel::{
    Access, Fifo, Kind, MbuffError, Offer, OfferError, Options, Overflow, RawRecord, Role,
    SharedMemory, ShmError, receive,
};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub const ALL: &[(&str, Attempt)] = &[
    ("attaches by name", attaches_by_name),
    ("looks into root's default directory", looks_into_the_default),
    ("makes, moves or removes links", changes_links),
    ("follows links", follows_links),
    ("lists the program's files", lists_files),
    ("opens the lock", opens_the_lock),
    ("keeps the directory locked", locks_the_directory),
    ("reads and writes the program's memory", touches_memory),
    ("widens what it may read", widens_what_it_reads),
    ("takes roles of what it may read", takes_roles_of_what_it_reads),
    ("widens what it may write", widens_what_it_writes),
    ("takes root's role", takes_roots_role),
    ("sets the environment of programs with more rights", sets_the_environment),
    ("changes limits", changes_limits),
    ("starts a program of root with few resources", starts_a_program_with_few_resources),
    ("fills directories", fills_directories),
    ("receives what is for others", receives_what_is_for_others),
    ("connects and says nothing", connects_and_says_nothing),
    ("changes sockets", changes_sockets),
    ("signals and schedules the program", signals_and_schedules),
    ("moves the program to another group", moves_to_another_group),
    // The last: nothing can be attached to that memory any more.
    ("scribbles and frees pages", scribbles),
];

/// The call must fail with one of these errors.
fn fails<T>(what: &str, result: io::Result<T>, with: &[i32]) -> Result<(), String> {
    match result {
        Ok(_) => Err(format!("{what}: it worked")),
        Err(error) if error.raw_os_error().is_some_and(|found| with.contains(&found)) => Ok(()),
        Err(error) => Err(format!("{what}: {error}, expected {with:?}")),
    }
}

/// What a system call returned, as a result.
fn result(returned: impl Into<i64>) -> io::Result<()> {
    if returned.into() >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn expect(what: &str, holds: bool, found: impl std::fmt::Debug) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}: {found:?}")) }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).unwrap()
}

/// Links of a name, as anybody may list them here.
fn links(place: &Place) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(&place.names).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.is_symlink()).collect()
}

fn attaches_by_name(place: &Place) -> Result<(), String> {
    for kind in [Kind::Fifo, Kind::Mbuff] {
        let refused = SharedMemory::attach(&place.names, "commands", kind).unwrap_err();
        let line = refused.to_string();
        expect("attach", line.contains("names belongs to another user: set ASMP_CHANNELS"), line)?;
    }
    let options = Options { capacity_bytes: 64, overflow: Overflow::Refuse };
    let refused = Fifo::create(&place.names, "mine", &options).unwrap_err();
    expect("create", matches!(refused, ShmError::ForeignDir { .. }), refused)
}

fn looks_into_the_default(place: &Place) -> Result<(), String> {
    let denied = &[libc::EACCES];
    fails("list", std::fs::read_dir(&place.default), denied)?;
    fails("lock", File::open(place.default.join(".lock")), denied)
}

fn changes_links(place: &Place) -> Result<(), String> {
    let denied = &[libc::EACCES];
    fails("link", symlink("/proc/self/fd/0", place.names.join("commands.1.2.3")), denied)?;
    let link = links(place).pop().ok_or("there is no link")?;
    fails("remove", std::fs::remove_file(&link), denied)?;
    fails("rename", std::fs::rename(&link, place.names.join("x")), denied)?;
    fails("rename away", std::fs::rename(&link, place.own.join("x")), denied)?;
    fails(
        "chmod",
        std::fs::set_permissions(&place.names, PermissionsExt::from_mode(0o777)),
        &[libc::EPERM],
    )
}

fn follows_links(place: &Place) -> Result<(), String> {
    let links = links(place);
    expect("links", links.len() >= 4, &links)?;
    for link in links {
        // The program makes one channel again and again.
        let denied = &[libc::EACCES, libc::ENOENT];
        fails("open", OpenOptions::new().read(true).write(true).open(&link), denied)?;
        fails("read", File::open(&link), denied)?;
    }
    Ok(())
}

fn lists_files(place: &Place) -> Result<(), String> {
    for name in ["fd", "map_files"] {
        let path = format!("/proc/{}/{name}", place.pid);
        fails(name, std::fs::read_dir(path), &[libc::EACCES, libc::EPERM])?;
    }
    for name in ["fd/3", "cwd", "exe", "root"] {
        let path = format!("/proc/{}/{name}", place.pid);
        fails(name, std::fs::read_link(&path), &[libc::EACCES])?;
        fails(name, File::open(&path), &[libc::EACCES])?;
    }
    Ok(())
}

fn opens_the_lock(place: &Place) -> Result<(), String> {
    fails("open", File::open(place.names.join(".lock")), &[libc::EACCES])
}

/// The test looks meanwhile whether root creates channels.
fn locks_the_directory(place: &Place) -> Result<(), String> {
    let directory = File::open(&place.names).unwrap();
    directory.lock().map_err(|error| format!("flock: {error}"))?;
    std::mem::forget(directory);
    Ok(())
}

fn touches_memory(place: &Place) -> Result<(), String> {
    let mut bytes = [0u8; 8];
    let path = format!("/proc/{}/mem", place.pid);
    fails("read /proc/PID/mem", File::open(&path), &[libc::EACCES])?;
    fails("write /proc/PID/mem", OpenOptions::new().write(true).open(&path), &[libc::EACCES])?;
    let null = std::ptr::null_mut::<libc::c_void>();
    for request in [libc::PTRACE_ATTACH, libc::PTRACE_SEIZE] {
        // SAFETY: takes numbers.
        let traced = unsafe { libc::ptrace(request, place.pid, null, null) };
        fails("ptrace", result(traced), &[libc::EPERM])?;
    }
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(4096), iov_len: 8 };
    // SAFETY: the local part is ours, the other one is of another process.
    let read =
        unsafe { libc::process_vm_readv(place.pid, &raw const local, 1, &raw const remote, 1, 0) };
    fails("process_vm_readv", result(read as i64), &[libc::EPERM])?;
    // SAFETY: as above.
    let written =
        unsafe { libc::process_vm_writev(place.pid, &raw const local, 1, &raw const remote, 1, 0) };
    fails("process_vm_writev", result(written as i64), &[libc::EPERM])?;
    // SAFETY: takes numbers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, place.pid, 0) };
    if process >= 0 {
        for fd in 0..16 {
            // SAFETY: takes numbers.
            let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, fd, 0) };
            fails("pidfd_getfd", result(taken), &[libc::EPERM])?;
        }
    }
    Ok(())
}

/// What may be done to a file that this user may not widen, and the errors.
fn cannot_widen(shared: &SharedMemory, can_write: bool) -> Result<(), String> {
    let fd = shared.as_fd().as_raw_fd();
    let file = File::from(shared.as_fd().try_clone_to_owned().unwrap());
    let size = file.metadata().unwrap().len();
    let resized = &[if can_write { libc::EPERM } else { libc::EINVAL }];
    fails("shorten", file.set_len(0), resized)?;
    fails("lengthen", file.set_len(size + 4096), resized)?;
    fails("write behind the end", file.write_at(b"x", size), &[libc::EPERM, libc::EBADF])?;
    // SAFETY: takes numbers.
    let grown = unsafe { libc::fallocate(fd, 0, 0, size as i64 + 4096) };
    fails("grow", result(grown), &[libc::EPERM, libc::EBADF])?;
    for seal in [libc::F_SEAL_WRITE, libc::F_SEAL_FUTURE_WRITE, libc::F_SEAL_GROW] {
        // SAFETY: takes numbers.
        let sealed = unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seal) };
        fails("seal", result(sealed), &[libc::EPERM])?;
    }
    fails("chmod", file.set_permissions(PermissionsExt::from_mode(0o777)), &[libc::EPERM])?;
    // SAFETY: takes numbers.
    fails("chown", result(unsafe { libc::fchown(fd, STRANGER, STRANGER) }), &[libc::EPERM])?;
    for lease in [libc::F_WRLCK, libc::F_RDLCK] {
        // SAFETY: takes numbers.
        let leased = unsafe { libc::fcntl(fd, libc::F_SETLEASE, lease) };
        fails("lease", result(leased), &[libc::EACCES])?;
    }
    let path = format!("/proc/self/fd/{fd}");
    let again = OpenOptions::new().read(true).write(true).open(&path);
    fails("open anew for writing", again, &[libc::EACCES])?;
    fails("open anew", File::open(&path), &[libc::EACCES])
}

fn state(place: &Place) -> SharedMemory {
    receive(&place.sockets.join("state"), Some(0), Kind::Mbuff, None).unwrap()
}

fn log(place: &Place) -> SharedMemory {
    receive(&place.sockets.join("log"), Some(0), Kind::Fifo, None).unwrap()
}

fn widens_what_it_reads(place: &Place) -> Result<(), String> {
    let shared = state(place);
    let record = RawRecord::from_shared(state(place)).unwrap();
    let mut bytes = [0; 64];
    let number = record.read(&mut bytes).unwrap();
    expect("it reads", number.is_some() && bytes == [7; 64], number)?;
    let refused = record.writer().unwrap_err();
    expect("writer", matches!(refused, MbuffError::Shm(ShmError::ReadOnly { .. })), refused)?;
    let (fd, null) = (shared.as_fd().as_raw_fd(), std::ptr::null_mut());
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: asks for new memory, which is not used.
    let mapped = unsafe { libc::mmap(null, 4096, both, libc::MAP_SHARED, fd, 0) };
    fails("map", result(if mapped == libc::MAP_FAILED { -1 } else { 0 }), &[libc::EACCES])?;
    // SAFETY: asks for new memory, of which only the rights are changed.
    let mapped = unsafe { libc::mmap(null, 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    // SAFETY: our own mapping.
    let widened = unsafe { libc::mprotect(mapped, 4096, both) };
    fails("mprotect", result(widened), &[libc::EACCES])?;
    // SAFETY: as above; it would free the pages behind it.
    let freed = unsafe { libc::madvise(mapped, 4096, libc::MADV_REMOVE) };
    fails("free pages", result(freed), &[libc::EACCES])?;
    // SAFETY: takes numbers.
    let hole = unsafe {
        libc::fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4096)
    };
    fails("free pages by the file", result(hole), &[libc::EBADF])?;
    let file = File::from(shared.as_fd().try_clone_to_owned().unwrap());
    fails("write", file.write_at(b"x", 0), &[libc::EBADF])?;
    cannot_widen(&shared, false)
}

fn takes_roles_of_what_it_reads(place: &Place) -> Result<(), String> {
    let shared = state(place);
    expect("the writer", shared.is_held(Role::Writer), "is not seen")?;
    let refused = shared.acquire(Role::Reader);
    expect("a role", matches!(refused, Err(ShmError::ReadOnly { .. })), refused)?;
    // SAFETY: all zeros is a valid flock structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_len) = (libc::F_RDLCK as i16, 1);
    let fd = shared.as_fd().as_raw_fd();
    // SAFETY: one flock structure of ours.
    let shares = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw mut lock) };
    fails("share the writer's lock", result(shares), &[libc::EAGAIN])
}

fn widens_what_it_writes(place: &Place) -> Result<(), String> {
    cannot_widen(&log(place), true)
}

fn takes_roots_role(place: &Place) -> Result<(), String> {
    let shared = log(place);
    for _ in 0..2 {
        let refused = shared.acquire(Role::Writer);
        expect("its role", matches!(refused, Err(ShmError::RoleTaken { .. })), refused)?;
        shared.release(Role::Writer);
    }
    expect("root's role", shared.is_held(Role::Writer), "it is gone")?;
    // Its own is the other one; it keeps that.
    shared.acquire(Role::Reader).map_err(|error| error.to_string())?;
    std::mem::forget(shared);
    Ok(())
}

/// Any bytes anywhere in what it may write, and no pages under it.
fn scribbles(place: &Place) -> Result<(), String> {
    let shared = log(place);
    let words = shared.words(0, shared.body_bytes() / 8);
    let fd = shared.as_fd().as_raw_fd();
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..200_000u32 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        words[(state >> 40) as usize % words.len()].store(state, Relaxed);
        if round.is_multiple_of(1000) {
            // SAFETY: takes numbers. Nothing of ours depends on what was there.
            let freed = unsafe { libc::fallocate(fd, hole, 0, 1 << 20) };
            result(freed).map_err(|error| format!("free pages: {error}"))?;
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}

/// A part of this program, by a copy that has more rights than who starts it.
fn part(program: &Path, part: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", part, "--ignored", "--nocapture"]);
    command
}

fn sets_the_environment(place: &Place) -> Result<(), String> {
    // Made by root when it started, and the user whose directory each has by default.
    for (name, user) in [("setuid", 0), ("capable", STRANGER)] {
        let program = place.own.with_file_name(name);
        if !program.exists() {
            return Err("skipped: the file system takes no capabilities".to_owned());
        }
        let mut command = part(&program, "program::says_its_directory");
        let said = match command.env("ASMP_CHANNELS", &place.own).output() {
            // It would have a capability that this machine gives to no program.
            Err(error) if name == "capable" && error.raw_os_error() == Some(libc::EPERM) => {
                return Err(format!("skipped: no program may have CAP_SYS_NICE here: {error}"));
            }
            output => output.map_err(|error| format!("{}: {error}", program.display()))?,
        };
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        if said.contains("/own") && is_nosuid(&program) {
            return Err("skipped: the file system gives no rights".to_owned());
        }
        expect(name, said.trim_end().ends_with(&format!("/dev/shm/asmp-{user}")), said)?;
    }
    Ok(())
}

fn is_nosuid(path: &Path) -> bool {
    // SAFETY: all zeros is a valid statvfs structure.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a C string and a local that outlive the call.
    unsafe { libc::statvfs(c(path).as_ptr(), &raw mut found) };
    found.f_flag & libc::ST_NOSUID != 0
}

fn changes_limits(place: &Place) -> Result<(), String> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let null = std::ptr::null_mut();
    for limit in [libc::RLIMIT_NOFILE, libc::RLIMIT_MEMLOCK, libc::RLIMIT_RTPRIO, libc::RLIMIT_CPU]
    {
        // SAFETY: the kernel reads one rlimit of ours.
        let set = unsafe { libc::prlimit(place.pid, limit, &raw const none, null) };
        fails("prlimit", result(set), &[libc::EPERM])?;
    }
    let all = libc::rlimit { rlim_cur: 99, rlim_max: 99 };
    let mut own = none;
    // SAFETY: the kernel writes one rlimit into a local.
    unsafe { libc::getrlimit(libc::RLIMIT_RTPRIO, &raw mut own) };
    if own.rlim_max >= 99 {
        return Err("skipped: this machine gives all users real-time priorities".to_owned());
    }
    // SAFETY: the kernel reads one rlimit of ours.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const all) };
    fails("its own limit", result(raised), &[libc::EPERM])?;
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: one structure of ours.
    let real_time = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    fails("its own policy", result(real_time), &[libc::EPERM])
}

/// Limits stay across the start of a setuid program. With each it works, or says why not.
fn starts_a_program_with_few_resources(place: &Place) -> Result<(), String> {
    let program = place.own.with_file_name("setuid");
    let dir = place.own.parent().unwrap();
    let (mut made, mut refused) = (0, 0);
    let files = (3..=20).map(|files| (libc::RLIMIT_NOFILE, files));
    for (resource, value) in files.chain([(libc::RLIMIT_FSIZE, 0), (libc::RLIMIT_MEMLOCK, 0)]) {
        let mut command = part(&program, "program::makes_a_channel");
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        let lower = move || {
            // SAFETY: takes a number. It ends the program if that waits for something.
            unsafe { libc::alarm(60) };
            // SAFETY: the kernel reads one rlimit of ours.
            result(unsafe { libc::setrlimit(resource, &raw const limit) })
        };
        // SAFETY: between fork and exec only system calls.
        unsafe { command.pre_exec(lower) };
        let output = command.env(program::DIR, dir).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("belongs to another user") && is_nosuid(&program) {
            return Err("skipped: the file system has no setuid".to_owned());
        }
        // With the fewest it does not even come to its own code.
        made += u32::from(said.starts_with("made\n"));
        refused += u32::from(said.starts_with("refused: "));
        expect("the end", output.status.signal().is_none(), &output)?;
        let is_refused = said.starts_with("refused: ") && said.contains("RLIMIT_FSIZE is 0 bytes");
        expect("no files", resource != libc::RLIMIT_FSIZE || is_refused, &output)?;
    }
    expect("what became of them", made > 0 && refused > 1, (made, refused))?;
    let is_left = |link: &std::path::PathBuf| link.to_string_lossy().contains("/limited.");
    let left: Vec<_> = links(place).into_iter().filter(is_left).collect();
    expect("left", left.is_empty(), left)
}

fn fills_directories(place: &Place) -> Result<(), String> {
    for dir in [&place.names, &place.default, &place.sockets] {
        let denied = &[libc::EACCES];
        fails("file", File::create(dir.join("filler")), denied)?;
        fails("directory", std::fs::create_dir(dir.join("filler")), denied)?;
        fails(
            "hard link",
            std::fs::hard_link("/proc/self/exe", dir.join("filler")),
            &[libc::EACCES, libc::EXDEV, libc::EPERM],
        )?;
    }
    Ok(())
}

fn receives_what_is_for_others(place: &Place) -> Result<(), String> {
    for name in ["others", "one"] {
        let refused = receive(&place.sockets.join(name), Some(0), Kind::Fifo, None).unwrap_err();
        expect(name, matches!(refused, OfferError::NotForUs { user: STRANGER, .. }), refused)?;
    }
    // By hand, without the library: no descriptor comes.
    let socket = UnixStream::connect(place.sockets.join("others")).unwrap();
    let (mut bytes, mut control) = ([0u8; 200], [0u64; 16]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), 128);
    // SAFETY: all that `message` points to outlives the call, with the lengths it says.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    expect("by hand", count > 0 && message.msg_controllen == 0, message.msg_controllen)
}

/// The test looks meanwhile whether others are served.
fn connects_and_says_nothing(place: &Place) -> Result<(), String> {
    for name in ["others", "log", "state"] {
        let all: io::Result<Vec<_>> =
            (0..200).map(|_| UnixStream::connect(place.sockets.join(name))).collect();
        std::mem::forget(all.map_err(|error| format!("{name}: {error}"))?);
    }
    Ok(())
}

fn changes_sockets(place: &Place) -> Result<(), String> {
    let (socket, denied) = (place.sockets.join("others"), &[libc::EACCES]);
    fails("remove", std::fs::remove_file(&socket), denied)?;
    fails("rename", std::fs::rename(&socket, place.own.join("others")), denied)?;
    fails("another beside it", UnixListener::bind(place.sockets.join("mine")), denied)?;
    fails("the same again", UnixListener::bind(&socket), &[libc::EACCES, libc::EADDRINUSE])?;
    let closed = std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o0));
    fails("chmod", closed, &[libc::EPERM])?;
    let options = Options { capacity_bytes: 64, overflow: Overflow::Refuse };
    let mine = Fifo::create(&place.own.join("names"), "mine", &options).unwrap();
    mine.shared().acquire(Role::Writer).unwrap();
    let refused = Offer::new(&socket, mine.shared(), Access::Write, &[]).unwrap_err();
    expect("offer there", matches!(refused, OfferError::InUse { .. }), refused)
}

fn signals_and_schedules(place: &Place) -> Result<(), String> {
    let (pid, refused) = (place.pid, &[libc::EPERM]);
    for signal in [0, libc::SIGSTOP, libc::SIGKILL, libc::SIGXCPU] {
        // SAFETY: takes numbers.
        fails("kill", result(unsafe { libc::kill(pid, signal) }), refused)?;
    }
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: one structure of ours.
    let set = unsafe { libc::sched_setscheduler(pid, libc::SCHED_IDLE, &raw const ordinary) };
    fails("policy", result(set), refused)?;
    // SAFETY: all zeros is a valid set.
    let mut first: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a local of ours.
    unsafe { libc::CPU_SET(0, &mut first) };
    // SAFETY: one set of ours.
    let set = unsafe { libc::sched_setaffinity(pid, size_of_val(&first), &raw const first) };
    fails("affinity", result(set), refused)?;
    // SAFETY: takes numbers.
    let nice = unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as u32, 19) };
    fails("nice", result(nice), refused)
}

fn moves_to_another_group(_place: &Place) -> Result<(), String> {
    let procs = Path::new("/sys/fs/cgroup/cgroup.procs");
    if !procs.exists() {
        return Err("skipped: there is no cgroup v2 at /sys/fs/cgroup".to_owned());
    }
    fails("cgroup.procs", OpenOptions::new().write(true).open(procs), &[libc::EACCES, libc::EROFS])
}

/// A channel of its own, on a socket and behind a link.
pub fn offers_to_root(place: &Place) -> Result<(), String> {
    let options = Options { capacity_bytes: 64, overflow: Overflow::Refuse };
    let mine = Fifo::create(&place.own.join("names"), "commands", &options).unwrap();
    let writer = mine.into_writer(asmp_channel::Wake::Never).unwrap();
    let socket = place.own.join("socket");
    let offer = Offer::new(&socket, writer.fifo().shared(), Access::Write, &[0]).unwrap();
    symlink(place.sockets.join("others"), place.own.join("link")).unwrap();
    std::thread::spawn(move || offer.serve_one(None).map(drop));
    std::mem::forget(writer);
    Ok(())
}
