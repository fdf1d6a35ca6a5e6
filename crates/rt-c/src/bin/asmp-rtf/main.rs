// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real-time FIFO as a file, what /dev/rtfN was: a device of CUSE where the kernel has it and we
//! may, else a named pipe. The file serves one real-time side after the other.

mod cuse;
mod device;
mod device_file;
mod pump;

use asmp_channel::{Fifo, Role, ShmError, default_dir};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const USAGE: &str = "\
usage: asmp-rtf [--pipe] N from-rt|to-rt [DIRECTORY]
  Serves real-time FIFO N (0 to 63) as the file DIRECTORY/rtfN (default /run/asmp/rtfN), until
  SIGTERM or SIGINT; one that is ignored at start stays ignored. from-rt: the file is for reading.
  to-rt: the file is for writing.
  With /dev/cuse (modprobe cuse; root) the file is a link to the device /dev/rtfN. Without it, or
  with --pipe, the file is a named pipe. When asmp-rtf ends, a reader is at the end of the file;
  it ends at most 5 s later if a process keeps the device open.
  Exit status: 0 success; 1 failure; 2 wrong usage.";

/// How soon a signal or a new real-time side is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// One line on stderr. If it cannot be written (a log that ended, a full disk) the FIFO is still
/// served.
fn complain(what: std::fmt::Arguments) {
    let _ = writeln!(std::io::stderr(), "asmp-rtf: {what}");
}

/// The channel as one of its ends. `None`: there is none, or another process is that end.
fn attach<E>(
    channels: &Path,
    name: &str,
    end: impl FnOnce(Fifo) -> Result<E, ShmError>,
) -> Result<Option<E>, String> {
    match Fifo::attach(channels, name).and_then(end) {
        Ok(end) => Ok(Some(end)),
        Err(ShmError::NotFound { .. } | ShmError::RoleTaken { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Is the real-time side gone, and nothing left of what was put in?
fn is_over(channel: &Fifo, other: Role) -> bool {
    !channel.shared().is_held(Role::Server)
        && !channel.shared().is_held(other)
        && channel.is_empty()
}

/// Was a signal ignored at start (nohup, a shell's `&`)? Then it stays so.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks only; `now` has room for the answer.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: filled where the call succeeded.
    asked == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

fn serve(fifo: u32, from_rt: bool, directory: &Path, only_pipe: bool) -> Result<(), String> {
    let (name, channels) = (format!("rtf{fifo}"), default_dir());
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGTERM, libc::SIGINT].into_iter().filter(|signal| !is_ignored(*signal)) {
        signal_hook::flag::register(signal, ends.clone()).map_err(|error| error.to_string())?;
    }
    // Whatever the umask is, others may not write in it.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let path = directory.join(&name);
    device_file::remove_dead_link(&path);
    match device_file::open_cuse().filter(|_| !only_pipe) {
        Some(cuse) => {
            device_file::serve(cuse, path, device::Device::new(&channels, &name, from_rt), &ends)
        }
        None => pump::serve(path, &channels, &name, from_rt, ends),
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments == ["--help"] {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let only_pipe = arguments.first().is_some_and(|first| first == "--pipe");
    if only_pipe {
        arguments.remove(0);
    }
    let wrong = || {
        eprintln!("{USAGE}");
        ExitCode::from(2)
    };
    let (fifo, direction, directory) = match arguments.as_slice() {
        [fifo, direction] => (fifo, direction, Path::new("/run/asmp")),
        [fifo, direction, directory] => (fifo, direction, Path::new(directory)),
        _ => return wrong(),
    };
    let Some(fifo) = fifo.to_str().and_then(|fifo| fifo.parse().ok()).filter(|fifo| *fifo < 64)
    else {
        return wrong();
    };
    let from_rt = match direction.to_str() {
        Some("from-rt") => true,
        Some("to-rt") => false,
        _ => return wrong(),
    };
    match serve(fifo, from_rt, directory, only_pipe) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("{error}"));
            ExitCode::from(1)
        }
    }
}
