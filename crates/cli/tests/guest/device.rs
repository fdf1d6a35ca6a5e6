// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp-rtf` as a device of CUSE: other people's programs read and write /dev/rtfN of a real
//! kernel.

use super::guests::{Boot, On};
use super::lab::{Process, Test, test, until};
use asmp_channel::{Fifo, Options, Overflow, Wake};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let device =
        |name, run: fn()| test(name, run).on(On::OnePerSeries).booted(&[Boot::Bare]).lacks(no_cuse);
    vec![
        device("device: cat reads what the real-time side puts, until the server ends", cat_reads),
        device("device: a read after the end of the server is at the end of the file", late_read),
        device("device: poll wakes, FIONREAD counts, O_NONBLOCK refuses", poll_and_count),
        device("device: dd writes more than the channel holds, and nothing is lost", dd_writes),
        device("device: one opener, one server, and no device after a kill", one_of_each),
    ]
}

pub fn no_cuse() -> Option<&'static str> {
    let loaded = Command::new("modprobe").arg("cuse").status().is_ok_and(|status| status.success());
    (!loaded || !Path::new("/dev/cuse").exists()).then_some("this kernel has no CUSE")
}

/// A directory of channels, and what serves one of them.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        Self { dir }
    }

    /// A new one, as soon as the device has let go of an older one.
    fn channel(&self, name: &str) -> Fifo {
        let options = Options { capacity_bytes: 4096, overflow: Overflow::Refuse };
        let mut made = None;
        until("the name is free", || {
            made = Fifo::create(self.dir.path(), name, &options).ok();
            made.is_some()
        });
        made.expect("until it is there")
    }

    fn server(&self, arguments: [&str; 2]) -> Command {
        let mut server =
            Command::new(std::env::var_os("ASMP_RTF").expect("set by tests/vm/test.sh"));
        server.args(arguments).arg(self.served("")).env("ASMP_CHANNELS", self.dir.path());
        server
    }

    pub fn serve(&self, fifo: &str, direction: &str) -> (Process, PathBuf) {
        let server = Process(self.server([fifo, direction]).spawn().unwrap());
        let link = self.served(&format!("rtf{fifo}"));
        until("the device is there", || link.exists());
        assert_eq!(
            fs::read_link(&link).unwrap(),
            Path::new("/dev").join(link.file_name().unwrap())
        );
        (server, link)
    }

    fn served(&self, name: &str) -> PathBuf {
        self.dir.path().join("served").join(name)
    }
}

fn end(mut server: Process) {
    // SAFETY: a signal to our own child, which is not yet waited for.
    unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    assert!(server.0.wait().unwrap().success());
}

fn cat_reads() {
    let place = Place::new();
    let (server, link) = place.serve("5", "from-rt");
    let mut cat = Command::new("cat").arg(&link).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = cat.stdout.take().unwrap();
    // Two real-time sides, one after the other; cat has waited for the first one.
    for text in ["from the first\n", "from the second\n"] {
        let mut writer = place.channel("rtf5").into_writer(Wake::Never).unwrap();
        writer.put(text.as_bytes()).unwrap();
        let mut heard = vec![0; text.len()];
        said.read_exact(&mut heard).unwrap();
        assert_eq!(heard, text.as_bytes());
    }
    end(server);
    assert!(cat.wait().unwrap().success(), "the end of the server is the end of the file");
    until("the device is gone", || {
        !Path::new("/dev/rtf5").exists() && link.symlink_metadata().is_err()
    });
}

fn late_read() {
    let place = Place::new();
    let terminate = |server: &Process, link: &Path| {
        // SAFETY: a signal to our own child, which is not yet waited for.
        unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
        until("the server has its signal", || link.symlink_metadata().is_err());
    };
    let (mut server, link) = place.serve("5", "from-rt");
    let mut file = File::open(&link).unwrap();
    terminate(&server, &link);
    assert_eq!(file.read(&mut [0; 4]).unwrap(), 0);
    assert_eq!(file.read(&mut [0; 4]).unwrap(), 0);
    drop(file);
    let closed = Instant::now();
    assert!(server.0.wait().unwrap().success());
    let closed_for = closed.elapsed();
    // One that keeps it open is waited for, but not for ever.
    let (mut server, link) = place.serve("5", "from-rt");
    let _file = File::open(&link).unwrap();
    terminate(&server, &link);
    let ended = Instant::now();
    assert!(server.0.wait().unwrap().success());
    let ended_for = ended.elapsed();
    assert!(closed_for < ended_for, "{closed_for:?} after the close, {ended_for:?} without");
}

fn poll(file: &File, timeout: Duration) -> i16 {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd of ours that outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as i32) };
    poll.revents
}

fn poll_and_count() {
    let place = Place::new();
    let (server, link) = place.serve("6", "from-rt");
    let mut writer = place.channel("rtf6").into_writer(Wake::Never).unwrap();
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&link).unwrap();
    assert_eq!(file.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(poll(&file, Duration::from_millis(50)), 0);
    let woken = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| poll(&file, Duration::from_secs(180)));
        // It is asleep, or about to be; either way the answer is the same.
        std::thread::sleep(Duration::from_millis(300));
        writer.put(b"abcde").unwrap();
        sleeper.join().unwrap()
    });
    assert_eq!(woken, libc::POLLIN);
    let mut held: libc::c_int = 0;
    // SAFETY: the kernel writes one int into a local.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONREAD, &raw mut held) };
    assert_eq!((asked, held), (0, 5));
    let mut into = [0; 3];
    file.read_exact(&mut into).unwrap();
    assert_eq!(&into, b"abc");
    drop(file);
    // What was not read is there for the next one.
    let mut file = File::open(&link).unwrap();
    let mut into = [0; 9];
    let count = file.read(&mut into).unwrap();
    assert_eq!(&into[..count], b"de");
    drop(file);
    end(server);
}

fn dd_writes() {
    let place = Place::new();
    let (server, link) = place.serve("7", "to-rt");
    let mut reader = place.channel("rtf7").into_reader(Wake::Never).unwrap();
    let sent: Vec<u8> = (0..200_000u32).map(|n| (n / 7) as u8).collect();
    let file = place.dir.path().join("sent");
    File::create(&file).unwrap().write_all(&sent).unwrap();
    let of = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut dd = Command::new("dd")
        .args([of("if", &file), of("of", &link), "bs=30000".to_owned(), "status=none".to_owned()])
        .spawn()
        .unwrap();
    let mut got: Vec<u8> = Vec::new();
    let mut into = [0; 4096];
    until("all has come", || {
        // As long as more comes it is not given up, however slow the guest.
        while reader.wait(Some(Duration::from_secs(1))).is_ok() {
            let count = reader.get(&mut into).unwrap();
            got.extend(&into[..count]);
        }
        got.len() == sent.len()
    });
    assert!(got == sent);
    assert!(dd.wait().unwrap().success());
    end(server);
}

fn one_of_each() {
    let place = Place::new();
    let (mut server, link) = place.serve("8", "from-rt");
    let first = File::open(&link).unwrap();
    assert_eq!(File::open(&link).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    assert_eq!(
        File::options().write(true).open(&link).unwrap_err().raw_os_error(),
        Some(libc::EACCES)
    );
    let second = place.server(["8", "from-rt"]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        second.status.code() == Some(1) && said.contains("another asmp-rtf serves it"),
        "{said}"
    );
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    until("the kernel takes the device away", || !Path::new("/dev/rtf8").exists());
    assert!((&first).read(&mut [0; 4]).is_err(), "a device without a server gives nothing");
    drop(first);
    // The dead one's link is no obstacle.
    assert!(link.symlink_metadata().is_ok());
    let (server, _) = place.serve("8", "from-rt");
    end(server);
}
