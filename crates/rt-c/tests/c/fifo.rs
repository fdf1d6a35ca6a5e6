// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFOs: the calls, the classic echo, peers that die, and the file that `asmp-rtf` serves.

use asmp_channel::{Fifo, Options, Overflow, Role, Wake};

use crate::place::{Place, Running, until};
use crate::{compile, library, permitted, root, rtlinux, shims};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

impl Place {
    /// The echo of the examples; its FIFOs are there.
    fn echo(&self) -> Running {
        let program = self.path("fifo_echo");
        if !program.exists() {
            rtlinux("fifo_echo.c", &program, &[]);
        }
        let arguments: &[&str] = if permitted() { &[] } else { &["-n"] };
        let mut echo = self.start(&program, arguments);
        // It says nothing when it is ready: its second FIFO is there.
        until(|| {
            assert!(echo.child.try_wait().unwrap().is_none(), "{}", echo.complaint());
            let entries = std::fs::read_dir(self.path("channels"));
            entries.is_ok_and(|mut names| {
                let mine = format!("rtf2.{}.", echo.child.id());
                names.any(|name| {
                    name.is_ok_and(|name| name.file_name().to_string_lossy().starts_with(&mine))
                })
            })
        });
        echo
    }

    fn peer(&self, argument: &str) -> Running {
        let program = self.path("fifo_peer");
        if !program.exists() {
            compile(&[root().join("tests/fifo_peer.c")], &[], library("so"), &program);
        }
        let mut peer = self.start(&program, &[argument]);
        assert_eq!(peer.line(), "open");
        peer
    }

    fn pump(&self, fifo: &str, direction: &str) -> Running {
        let served = self.path("run");
        let pump = Path::new(env!("CARGO_BIN_EXE_asmp-rtf"));
        let running = self.start(pump, &["--pipe", fifo, direction, served.to_str().unwrap()]);
        let file = served.join(format!("rtf{fifo}"));
        until(|| file.symlink_metadata().is_ok_and(|file| file.file_type().is_fifo()));
        running
    }
}

#[test]
fn each_fifo_call_answers_as_documented_from_the_shared_and_from_the_static_library() {
    for extension in ["so", "a"] {
        let place = Place::new();
        let program = place.path("fifo_calls");
        compile(&[root().join("tests/fifo_calls.c")], &[&shims()], library(extension), &program);
        place.tries_all_calls(&program, if permitted() { &[] } else { &["-n"] });
        assert_eq!(place.links(), [""; 0], "nothing is left");
    }
}

#[test]
fn an_rtlinux_echo_rebuilds_and_goes_on_while_its_peers_are_killed() {
    let place = Place::new();
    let mut echo = place.echo();
    for round in 0..10 {
        let mut killed = place.peer("0");
        // Killed at another moment each round, from its first access on.
        std::thread::sleep(Duration::from_millis(7 * round));
        assert!(killed.child.try_wait().unwrap().is_none(), "round {round}: it ended by itself");
        killed.kill();
        let mut whole = place.peer("20");
        assert_eq!(whole.line(), "echoed", "round {round}: {:?}", whole.child.wait());
    }
    assert!(echo.child.try_wait().unwrap().is_none());
    assert_eq!(echo.end(), "", "no byte was lost on its way out");
}

#[test]
fn a_peer_hears_that_its_real_time_side_is_gone_and_the_next_one_takes_the_fifos_up() {
    let place = Place::new();
    let mut echo = place.echo();
    let mut peer = place.peer("read");
    echo.kill();
    // It reads to the end, then fills FIFO 1 until that is refused.
    assert_eq!(peer.line(), format!("0 -{}", libc::EPIPE));
    // The FIFOs have gone with the last who had them.
    peer.child.wait().unwrap();
    let mut echo = place.echo();
    let mut kept = place.peer("0");
    echo.kill();
    let code = kept.child.wait().unwrap().code().unwrap();
    assert!((3..=6).contains(&code), "{code}: what it waits for does not come");
    let _echo = place.echo();
    assert_eq!(place.peer("20").line(), "echoed");
}

fn bytes_to_read(file: &File) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int into a local.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
    bytes as usize
}

fn is_readable(file: &File, timeout_ms: libc::c_int) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd of ours that outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 && poll.revents == libc::POLLIN }
}

#[test]
fn a_file_stands_for_a_fifo_to_cat_dd_poll_and_fionread() {
    let place = Place::new();
    let (to, from) = (place.pump("1", "to-rt"), place.pump("2", "from-rt"));
    let (written, read) = (place.path("run/rtf1"), place.path("run/rtf2"));
    // The pumps wait for the real-time side, however late it comes.
    let echo = place.echo();
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&read).unwrap();
    assert!(!is_readable(&file, 0) && bytes_to_read(&file) == 0);
    std::fs::write(&written, "12345").unwrap();
    assert!(is_readable(&file, 30_000));
    until(|| bytes_to_read(&file) == 5);
    let mut bytes = [0; 9];
    assert_eq!((&file).read(&mut bytes).unwrap(), 5);
    assert_eq!(&bytes[..5], b"12345");
    drop(file);

    let text: Vec<u8> = (0..20_000u32).flat_map(u32::to_ne_bytes).collect();
    let source = place.path("source");
    std::fs::write(&source, &text).unwrap();
    let mut cat = Command::new("cat").arg(&read).stdout(Stdio::piped()).spawn().unwrap();
    let mut dd = Command::new("dd")
        .args([format!("if={}", source.display()), format!("of={}", written.display())])
        .args(["bs=100", "conv=notrunc", "status=none"])
        .spawn()
        .unwrap();
    let mut came = vec![0; text.len()];
    cat.stdout.as_mut().unwrap().read_exact(&mut came).unwrap();
    assert!(came == text, "every byte, in order");
    assert!(dd.wait().unwrap().success());
    // A pump that ends takes its file along, and whoever reads it comes to the end.
    assert_eq!((from.end(), to.end()), (String::new(), String::new()));
    assert!(cat.wait().unwrap().success());
    assert!(!written.exists() && !read.exists());
    assert_eq!(echo.end(), "");
}

#[test]
fn a_file_outlives_its_real_time_side_and_a_killed_pump_is_replaced() {
    let place = Place::new();
    let (mut to, from) = (place.pump("1", "to-rt"), place.pump("2", "from-rt"));
    let (written, read) = (place.path("run/rtf1"), place.path("run/rtf2"));
    let mut reads = File::options().read(true).write(true).open(&read).unwrap();
    let mut bytes = [0; 5];
    for round in 0..3 {
        let mut echo = place.echo();
        let text = format!("abc{round}\n");
        std::fs::write(&written, &text).unwrap();
        reads.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, text.as_bytes());
        echo.kill();
        // Written while there is no real-time side: it comes to the next one.
        std::fs::write(&written, "later").unwrap();
        to.kill();
        to = place.pump("1", "to-rt");
        let echo = place.echo();
        let mut writes = File::options().write(true).open(&written).unwrap();
        writes.write_all(b"x").unwrap();
        until(|| bytes_to_read(&reads) > 0);
        reads.read_exact(&mut bytes[..1]).unwrap();
        if bytes[0] == b'l' {
            reads.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"aterx");
        }
        drop(echo);
    }
    drop((to, from));
}

#[test]
fn a_pump_lets_a_channel_go_when_its_last_byte_is_delivered_and_not_before() {
    let place = Place::new();
    let channels = place.path("channels");
    let _from = place.pump("5", "from-rt");
    let mut reads = File::options().read(true).write(true).open(place.path("run/rtf5")).unwrap();
    let create = |capacity_bytes| {
        let made = Fifo::create(
            &channels,
            "rtf5",
            &Options { capacity_bytes, overflow: Overflow::Refuse },
        )
        .ok()?;
        made.shared().acquire(Role::Server).unwrap();
        Some(made)
    };
    let mut writer = create(200_000).unwrap().into_writer(Wake::Never).unwrap();
    // More than the pipe holds: at the end of this side some of it is still in the channel.
    let text = vec![7; 99_000];
    for piece in text.chunks(1000) {
        writer.put(piece).unwrap();
    }
    until(|| writer.has_reader());
    drop(writer);
    assert!(create(400_000).is_none(), "the name is the old channel's");
    let mut came = vec![0; text.len()];
    reads.read_exact(&mut came).unwrap();
    assert!(came == text);
    // A larger one can have the name only when the old one is gone.
    let mut larger = None;
    until(|| {
        larger = create(400_000);
        larger.is_some()
    });
    larger.unwrap().into_writer(Wake::Never).unwrap().put(b"next").unwrap();
}

#[test]
fn a_signal_that_is_ignored_at_start_does_not_end_a_pump() {
    let place = Place::new();
    let served = place.path("run");
    let ignoring = "trap '' INT; exec \"$0\" \"$@\"";
    let pump = env!("CARGO_BIN_EXE_asmp-rtf");
    let arguments = ["-c", ignoring, pump, "--pipe", "1", "from-rt", served.to_str().unwrap()];
    let mut running = place.start(Path::new("/bin/sh"), &arguments);
    until(|| served.join("rtf1").exists());
    let pid = running.child.id() as i32;
    // The kernel's word, since no wait proves that a signal does nothing.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_eq!(ignored >> (libc::SIGINT - 1) & 1, 1, "SigIgn {ignored:x}");
    // SAFETY: signals a child that was not waited for.
    unsafe { libc::kill(pid, libc::SIGINT) };
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn another_user_gets_nothing_of_a_pipe_that_root_serves_and_does_not_stop_it() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: another user's process needs root");
    }
    let place = Place::new();
    let mut pump = place.pump("1", "from-rt");
    // Only the pipe itself keeps him out.
    for open in [place.path("."), place.path("run")] {
        std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let pipe = place.path("run/rtf1");
    let before = pipe.symlink_metadata().unwrap();
    assert_eq!((before.mode() & 0o777, before.uid()), (0o600, 0));
    for attempt in [
        "dd if=$0 of=/dev/null",
        "dd if=/dev/zero of=$0 count=1 conv=nocreat,notrunc",
        "flock --nonblock $0 true",
        "chmod 666 $0",
        "chown 65534 $0",
        "rm -f $0",
        "mv $0 ${0%/*}/other",
        "ln -s /dev/null ${0%/*}/rtf2",
    ] {
        // One that was let in would wait.
        let script = format!("exec timeout 20 {attempt}");
        let mut stranger = Command::new("/bin/sh");
        stranger.arg("-c").arg(script).arg(&pipe).uid(65534).gid(65534).current_dir("/");
        let output = stranger.env("LC_ALL", "C").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = ["Permission denied", "not permitted"].iter().any(|no| said.contains(no));
        assert!(!output.status.success() && is_refused, "{attempt}: {said}");
    }
    let after = pipe.symlink_metadata().unwrap();
    assert_eq!((after.mode(), after.ino(), after.uid()), (before.mode(), before.ino(), 0));
    let mut reads = File::options().read(true).write(true).open(&pipe).unwrap();
    let options = Options { capacity_bytes: 64, overflow: Overflow::Refuse };
    let fifo = Fifo::create(&place.path("channels"), "rtf1", &options).unwrap();
    let mut writer = fifo.into_writer(Wake::IfAsleep).unwrap();
    writer.put(b"on").unwrap();
    let mut bytes = [0; 2];
    reads.read_exact(&mut bytes).unwrap();
    assert!(&bytes == b"on" && pump.child.try_wait().unwrap().is_none());
}

#[test]
fn a_pump_refuses_what_it_cannot_serve() {
    let place = Place::new();
    let refused = |arguments: &[&str]| {
        let mut running = place.start(Path::new(env!("CARGO_BIN_EXE_asmp-rtf")), arguments);
        let said = running.complaint();
        (running.child.wait().unwrap().code(), said)
    };
    for (arguments, why) in [
        (&["64", "to-rt"][..], "\"64\" is no number from 0 to 63"),
        (&["1"], "from-rt or to-rt is missing"),
        (&["x", "to-rt"], "\"x\" is no number from 0 to 63"),
        (&["1", "both"], "\"both\" is neither from-rt nor to-rt"),
        (&["1", "to-rt", "run", "more"], "\"more\" is one argument too many"),
        (&["1", "from-rt", "--pipe"], "--pipe comes once, before N"),
        (&["1", "from-rt", "--help"], "--help stands alone"),
        (&["-x", "1", "from-rt"], "no option \"-x\"; a directory may be written as ./-NAME"),
        (&["--pipe"], "N and from-rt or to-rt are missing"),
        (&[], "N and from-rt or to-rt are missing"),
    ] {
        let (code, said) = refused(arguments);
        let begins = format!("asmp-rtf: {why}\nusage: ");
        assert!(code == Some(2) && said.starts_with(&begins), "{arguments:?}: {said}");
    }
    let version = Command::new(env!("CARGO_BIN_EXE_asmp-rtf")).arg("--version").output().unwrap();
    let version = (version.status.code(), String::from_utf8(version.stdout).unwrap());
    assert_eq!(version, (Some(0), concat!("asmp-rtf ", env!("CARGO_PKG_VERSION"), "\n").into()));
    let run = place.path("run");
    let _first = place.pump("1", "to-rt");
    let (code, said) = refused(&["--pipe", "1", "from-rt", run.to_str().unwrap()]);
    assert!(code == Some(1) && said.ends_with("another asmp-rtf serves it\n"), "{said}");
    // Also where nobody takes what it says.
    let mut unheard = Command::new(env!("CARGO_BIN_EXE_asmp-rtf"));
    unheard.args(["--pipe", "1", "from-rt", run.to_str().unwrap()]);
    let unheard = unheard.stderr(File::options().write(true).open("/dev/full").unwrap());
    assert_eq!(unheard.status().unwrap().code(), Some(1));
    std::fs::write(run.join("rtf2"), "a file").unwrap();
    let (code, said) = refused(&["--pipe", "2", "to-rt", run.to_str().unwrap()]);
    assert!(code == Some(1) && said.ends_with("no named pipe of this user: remove it\n"), "{said}");
    assert_eq!(std::fs::read(run.join("rtf2")).unwrap(), b"a file");
}
