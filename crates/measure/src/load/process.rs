// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of a load: they end with this one, however it ends. And what the program that makes
//! loads says of itself.

use super::LoadError;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A stress-ng that has not told its version so long after it started does not work.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 20 });
/// The most that is kept of the line with the version.
const MOST_CHARS: usize = 200;

/// Starts a process of a load that ends with this one.
pub(super) fn launch(program: &Path, words: &[OsString], stdout: Stdio) -> io::Result<Child> {
    launch_below(std::process::id(), program, words, stdout)
}

/// The same, if the process that starts it has that number.
fn launch_below(
    parent: u32,
    program: &Path,
    words: &[OsString],
    stdout: Stdio,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    // SAFETY: between fork and exec only prctl(2) and getppid(2), which are async-signal-safe and
    // take numbers.
    unsafe { command.pre_exec(move || end_with(parent)) };
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::null())
        // A Ctrl-C at the terminal goes to this process only: the load ends after the probe.
        .process_group(0)
        .spawn()
}

/// The kernel ends the process when its parent is killed. Errors: ESRCH if that has happened since
/// the fork, for then no signal comes.
fn end_with(parent: u32) -> io::Result<()> {
    // SAFETY: prctl with this option takes one number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
        return Err(io::Error::last_os_error());
    }
    match std::os::unix::process::parent_id() == parent {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// The first line that `stress-ng --version` prints, for the record: another program of that name
/// makes another load. `Ok(None)`: `goes_on`, asked every 10 ms, said no.
pub(crate) fn version(goes_on: impl Fn() -> bool) -> Result<Option<String>, LoadError> {
    told_by(Path::new("stress-ng"), &["--version".into()], goes_on)
}

fn told_by(
    program: &Path,
    words: &[OsString],
    goes_on: impl Fn() -> bool,
) -> Result<Option<String>, LoadError> {
    let bad = |error: io::Error| LoadError::BadTool { cause: error.to_string() };
    let mut child = launch(program, words, Stdio::piped()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LoadError::NoTool,
        _ => bad(error),
    })?;
    let told = child.stdout.take();
    let ended = wait(&mut child, goes_on);
    if !matches!(ended, Ok(Some(_))) {
        // SAFETY: kill takes two numbers; the child was not waited for, so its number is its own,
        // and that of its process group.
        unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
        let _ = child.wait();
    }
    let Some(status) = ended.map_err(bad)? else { return Ok(None) };
    if !status.success() {
        return Err(LoadError::BadTool { cause: status.to_string() });
    }
    told.map(first_line).transpose().map_err(bad)
}

/// `Ok(None)`: it is not to be waited for. Errors: also `TimedOut`.
fn wait(child: &mut Child, goes_on: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if !goes_on() => return Ok(None),
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            None => {
                let words = format!("no answer in {} s", PATIENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
        }
    }
}

/// What a program that has ended wrote, up to the first end of a line. A child of it may have the
/// pipe open still, so that its end never comes: what is there is taken, and nothing waited for.
fn first_line(mut from: ChildStdout) -> io::Result<String> {
    // SAFETY: an open descriptor; the call takes numbers.
    if unsafe { libc::fcntl(from.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut bytes = [0; 1024];
    let length = match from.read(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        read => read?,
    };
    let text = String::from_utf8_lossy(&bytes[..length]);
    let line = text.lines().next().unwrap_or_default().trim();
    Ok(line.chars().filter(|one| !one.is_control()).take(MOST_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn told(script: &str, goes_on: impl Fn() -> bool) -> Result<Option<String>, LoadError> {
        told_by(Path::new("sh"), &["-c".into(), script.into()], goes_on)
    }

    #[test]
    fn a_process_whose_parent_has_ended_since_the_fork_does_not_begin() {
        let other = std::process::id() + 1;
        let refused = launch_below(other, Path::new("true"), &[], Stdio::null()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ESRCH));
        assert!(launch(Path::new("true"), &[], Stdio::null()).unwrap().wait().unwrap().success());
    }

    #[test]
    fn a_program_that_makes_loads_tells_its_version_in_its_first_line() {
        let of = |script| told(script, || true).unwrap().unwrap();
        assert_eq!(of("echo stress-ng, version 0.19; echo more"), "stress-ng, version 0.19");
        assert_eq!(of("printf 'a\\033[2Jb'"), "a[2Jb", "nothing that a terminal obeys");
        assert_eq!(of("printf %01000d 0").len(), MOST_CHARS);
        assert_eq!(of(":"), "");
        // What it leaves behind has its end of the pipe open, and is not waited for.
        assert_eq!(of("sleep 60 2>&1 & echo early"), "early");
        let none = told_by(Path::new("/no/stress-ng"), &[], || true);
        assert!(matches!(none, Err(LoadError::NoTool)), "{none:?}");
        let failed = told("exit 7", || true).unwrap_err().to_string();
        assert!(failed.contains("exit status: 7") && failed.contains("command -v"), "{failed}");
    }

    #[test]
    fn a_program_that_never_tells_its_version_is_given_up_and_can_be_ended_before() {
        let late = told("sleep 600", || true).unwrap_err().to_string();
        assert!(late.contains("no answer in 1 s"), "{late}");
        let looks = Cell::new(0);
        let ended = told("exec sleep 600", || {
            looks.set(looks.get() + 1);
            looks.get() < 3
        });
        assert!(matches!(ended, Ok(None)), "{ended:?}");
    }
}
