// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conversation with the kernel over /dev/cuse, and the link to the device.

use crate::LOOK;
use crate::cuse::{REQUEST, Request};
use crate::device::Device;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Interval of checks of the channel while a process waits for it. The real-time side wakes no
/// process.
const LOOK_SOON_MS: i32 = 1;

/// How long an ended device is still there for a process that has it open.
const GRACE: Duration = Duration::from_secs(5);

/// `None`: there is none, or it is not for us.
pub fn open_cuse() -> Option<File> {
    File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/cuse").ok()
}

/// What a server that was killed has left: a link to a device that went with it.
pub fn remove_dead_link(path: &Path) {
    let is_ours = path
        .read_link()
        .is_ok_and(|to| to.starts_with("/dev") && to.file_name() == path.file_name());
    if is_ours && !path.exists() {
        let _ = std::fs::remove_file(path);
    }
}

/// Removed when dropped.
struct Link(PathBuf);

impl Drop for Link {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves the device, and `path` as a link to it, until `ends`. A process that has it open is then
/// at the end of the file.
pub fn serve(
    mut cuse: File,
    path: PathBuf,
    mut device: Device,
    ends: &AtomicBool,
) -> Result<(), String> {
    let node = Path::new("/dev").join(&device.name);
    if node.exists() {
        return Err(format!("{}: another asmp-rtf serves it", node.display()));
    }
    let mut link = None;
    let mut request = vec![0; REQUEST];
    while !ends.load(Relaxed) {
        let wait_ms = if device.is_awaited() { LOOK_SOON_MS } else { LOOK.as_millis() as i32 };
        take_turn(&mut cuse, &mut device, &mut request, wait_ms)?;
        // With the first answer the kernel has made the device.
        if link.is_none() && node.exists() {
            std::os::unix::fs::symlink(&node, &path).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => {
                    format!("{}: already exists: remove it", path.display())
                }
                _ => format!("{}: {error}", path.display()),
            })?;
            link = Some(Link(path.clone()));
        }
    }
    drop(link);
    device.end();
    // The opener may be between two reads. If /dev/cuse were closed now, its next read would fail
    // with ENOTCONN.
    let deadline = Instant::now() + GRACE;
    take_turn(&mut cuse, &mut device, &mut request, 0)?;
    while device.is_open() && Instant::now() < deadline {
        take_turn(&mut cuse, &mut device, &mut request, LOOK.as_millis() as i32)?;
    }
    Ok(())
}

/// Waits for a request, takes all that are there, and sends what there is to send.
fn take_turn(
    cuse: &mut File,
    device: &mut Device,
    request: &mut [u8],
    wait_ms: i32,
) -> Result<(), String> {
    let says = |error: io::Error| format!("/dev/cuse: {error}");
    let mut poll = libc::pollfd { fd: cuse.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd of ours that outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, wait_ms) };
    while let Some(length) = next(cuse, request).map_err(says)? {
        let request = Request::parse(&request[..length]).ok_or("/dev/cuse: a request cut short")?;
        device.take(&request)?;
    }
    device.go_on()?;
    send(cuse, device).map_err(says)
}

/// The length of the next request; `None`: there is none now.
fn next(cuse: &mut File, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match cuse.read(into) {
            Ok(length) => return Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            // A signal, or who asked is gone.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
            Err(error) => return Err(error),
        }
    }
}

fn send(cuse: &mut File, device: &mut Device) -> io::Result<()> {
    for message in device.out.drain(..) {
        match cuse.write(&message) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            // ENOENT: who asked is gone.
            _ => {}
        }
    }
    Ok(())
}
