// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FIFO as a named pipe, where there is no CUSE: this program pumps between it and the channel.
//!
//! The pipe is always open here for both, so that `cat` waits when there is nothing, and ends when
//! this program does. When the real-time side is gone and all it left is delivered, the channel is
//! let go, and the next one waited for. A channel that still holds bytes for the real-time side is
//! kept for the next real-time side.

use crate::{LOOK, attach, complain, is_over};
use asmp_channel::{FifoReader, FifoWriter, RingError, Role, Wake};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes moved at once.
const PIECE: usize = 4096;

/// The named pipe; its lock says that a server has it. Removed when dropped.
struct Pipe {
    path: PathBuf,
    file: File,
}

impl Pipe {
    /// Makes it, or takes over one whose server died.
    fn open(path: PathBuf) -> Result<Self, String> {
        let says = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        loop {
            make_pipe(&path).map_err(|error| says(&error))?;
            let mut options = File::options();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
            let not_ours = "already exists and is no named pipe of this user: remove it";
            let file = options.open(&path).map_err(|error| match error.raw_os_error() {
                // A link, a directory, a socket.
                Some(libc::ELOOP | libc::EISDIR | libc::ENXIO) => says(&not_ours),
                _ => says(&error),
            })?;
            let here = file.metadata().map_err(|error| says(&error))?;
            // SAFETY: takes nothing, touches nothing, cannot fail.
            if !here.file_type().is_fifo() || here.uid() != unsafe { libc::geteuid() } {
                return Err(says(&not_ours));
            }
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(says(&"another asmp-rtf serves it")),
                Err(TryLockError::Error(error)) => return Err(says(&error)),
                // The last server may have removed it meanwhile.
                Ok(()) if is_at(&file, &path) => return Ok(Self { path, file }),
                Ok(()) => {}
            }
        }
    }

    /// Waits until it can be read from or written to, or 100 ms.
    fn wait(&self, events: libc::c_short) {
        let mut poll = libc::pollfd { fd: self.file.as_raw_fd(), events, revents: 0 };
        // SAFETY: one pollfd of ours that outlives the call.
        unsafe { libc::poll(&raw mut poll, 1, LOOK.as_millis() as libc::c_int) };
    }

    /// Bytes in it that no process has read.
    fn unread(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one int into a local.
        unsafe { libc::ioctl(self.file.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        usize::try_from(bytes).unwrap_or(0)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Not one that another server has made after ours was removed.
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Is it this file that has this name?
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(here), Ok(there)) => identity(here) == identity(there),
        _ => false,
    }
}

fn make_pipe(path: &Path) -> io::Result<()> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name is a C string that outlives the call.
    match unsafe { libc::mkfifo(name.as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            error => Err(error),
        },
    }
}

/// Bytes on their way between the two, which outlive a channel.
struct Pump {
    pipe: Pipe,
    bytes: [u8; PIECE],
    /// From where to where they are under way.
    under_way: std::ops::Range<usize>,
    ends: Arc<AtomicBool>,
}

impl Pump {
    fn goes_on(&self) -> bool {
        !self.ends.load(Relaxed)
    }

    /// Until the channel is over, or we are.
    fn drain(&mut self, mut reader: FifoReader) -> io::Result<()> {
        while self.goes_on() {
            if !self.under_way.is_empty() {
                match self.pipe.file.write(&self.bytes[self.under_way.clone()]) {
                    Ok(count) => self.under_way.start += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.pipe.wait(libc::POLLOUT)
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            self.under_way = 0..0;
            while self.under_way.end < PIECE {
                match reader.get(&mut self.bytes[self.under_way.end..]) {
                    Ok(0) => break,
                    Ok(count) => self.under_way.end += count,
                    Err(RingError::Overtaken) => {}
                    Err(error) => {
                        complain(format_args!("{}: {error}", self.pipe.path.display()));
                        break;
                    }
                }
            }
            if self.under_way.is_empty()
                && reader.wait(Some(LOOK)).is_err()
                && is_over(reader.fifo(), Role::Writer)
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Until the channel is over, or we are.
    fn feed(&mut self, mut writer: FifoWriter) -> io::Result<()> {
        let piece = PIECE.min(writer.fifo().capacity_bytes() - 8);
        while self.goes_on() {
            if !self.under_way.is_empty() {
                let end = self.under_way.end.min(self.under_way.start + piece);
                match writer.put(&self.bytes[self.under_way.start..end]) {
                    Ok(()) => self.under_way.start = end,
                    Err(_) => _ = writer.wait(end - self.under_way.start, Some(LOOK)),
                }
                continue;
            }
            match self.pipe.file.read(&mut self.bytes) {
                Ok(count) => self.under_way = 0..count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.pipe.wait(libc::POLLIN);
                    if is_over(writer.fifo(), Role::Reader) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !writer.fifo().is_empty() && !writer.fifo().shared().is_held(Role::Server) {
            complain(format_args!(
                "{}: bytes for the real-time side are lost",
                self.pipe.path.display()
            ));
        }
        Ok(())
    }
}

/// Serves FIFO `name` as the named pipe `path` until `ends`.
pub fn serve(
    path: PathBuf,
    channels: &Path,
    name: &str,
    from_rt: bool,
    ends: Arc<AtomicBool>,
) -> Result<(), String> {
    let pipe = Pipe::open(path)?;
    let mut pump = Pump { pipe, bytes: [0; PIECE], under_way: 0..0, ends };
    while pump.goes_on() {
        let served = match from_rt {
            true => attach(channels, name, |fifo| fifo.into_reader(Wake::IfAsleep))?
                .map(|end| pump.drain(end)),
            false => attach(channels, name, |fifo| fifo.into_writer(Wake::IfAsleep))?
                .map(|end| pump.feed(end)),
        };
        match served {
            Some(served) => {
                served.map_err(|error| format!("{}: {error}", pump.pipe.path.display()))?
            }
            None => std::thread::sleep(LOOK),
        }
    }
    match pump.under_way.len() + pump.pipe.unread() {
        0 => {}
        bytes => complain(format_args!("{}: {bytes} bytes are lost", pump.pipe.path.display())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_else_has_the_name_of_the_pipe_is_to_be_removed_by_hand() {
        let dir = tempfile::tempdir().unwrap();
        let [file, directory, link, socket] =
            ["file", "directory", "link", "socket"].map(|name| dir.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [file, directory, link, socket] {
            let said = Pipe::open(path.clone()).err().unwrap();
            let cure = "already exists and is no named pipe of this user: remove it";
            assert_eq!(said, format!("{}: {cure}", path.display()));
            assert!(path.symlink_metadata().is_ok());
        }
    }

    #[test]
    fn a_pipe_that_another_server_has_put_in_the_place_of_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rtf0");
        let first = Pipe::open(path.clone()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Pipe::open(path.clone()).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
