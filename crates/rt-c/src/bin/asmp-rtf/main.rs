// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real-time FIFO as a file, what /dev/rtfN was: a device of CUSE where the kernel has it and we
//! may, else a named pipe. The file serves one real-time side after the other.

mod cuse;
mod device;
mod device_file;
mod pump;

use asmp_channel::{Fifo, Role, ShmError, default_dir};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const USAGE: &str = "\
usage: asmp-rtf [--pipe] N from-rt|to-rt [DIRECTORY]
       asmp-rtf --help | --version
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
    // Whatever the umask is, others read it and may not write in it.
    let is_new = !directory.exists();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
    let open = Permissions::from_mode(0o755);
    made.and_then(|()| if is_new { std::fs::set_permissions(directory, open) } else { Ok(()) })
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

/// What the command line asks for.
struct Wish<'a> {
    fifo: u32,
    from_rt: bool,
    directory: &'a Path,
    only_pipe: bool,
}

/// Errors: what is wrong, in words.
fn wish(arguments: &[OsString]) -> Result<Wish<'_>, String> {
    let (only_pipe, arguments) = match arguments {
        [first, rest @ ..] if first == "--pipe" => (true, rest),
        arguments => (false, arguments),
    };
    let is_option = |word: &&OsString| word.as_bytes().starts_with(b"-");
    if let Some(option) = arguments.iter().find(is_option) {
        return Err(match option.to_str() {
            Some("--pipe") => "--pipe comes once, before N".to_owned(),
            Some("--help" | "--version") => format!("{} stands alone", option.display()),
            _ => format!("no option {option:?}; a directory may be written as ./-NAME"),
        });
    }
    let (fifo, direction, directory) = match arguments {
        [fifo, direction] => (fifo, direction, Path::new("/run/asmp")),
        [fifo, direction, directory] => (fifo, direction, Path::new(directory)),
        [] => return Err("N and from-rt or to-rt are missing".to_owned()),
        [_] => return Err("from-rt or to-rt is missing".to_owned()),
        [_, _, _, more, ..] => return Err(format!("{more:?} is one argument too many")),
    };
    let number = fifo.to_str().and_then(|fifo| fifo.parse().ok()).filter(|fifo| *fifo < 64);
    let Some(fifo) = number else { return Err(format!("{fifo:?} is no number from 0 to 63")) };
    let from_rt = match direction.to_str() {
        Some("from-rt") => true,
        Some("to-rt") => false,
        _ => return Err(format!("{direction:?} is neither from-rt nor to-rt")),
    };
    Ok(Wish { fifo, from_rt, directory, only_pipe })
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments == ["--help"] {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if arguments == ["--version"] {
        println!("asmp-rtf {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let Wish { fifo, from_rt, directory, only_pipe } = match wish(&arguments) {
        Ok(wish) => wish,
        Err(what) => {
            complain(format_args!("{what}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match serve(fifo, from_rt, directory, only_pipe) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("{error}"));
            ExitCode::from(1)
        }
    }
}
