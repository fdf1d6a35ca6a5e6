// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs and their channels, in a directory of a test's own.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Channels and programs of one test.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The links of channels: all in the directory but its lock.
    pub fn links(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("channels")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".lock").collect()
    }

    pub fn start(&self, program: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).env("ASMP_CHANNELS", self.path("channels"));
        Running::started(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap()
    }

    /// A program that tries every call and says what failed first.
    pub fn tries_all_calls(&self, program: &Path, arguments: &[&str]) {
        let mut running = self.start(program, arguments);
        let (line, said) = (running.line(), running.complaint());
        eprint!("{said}");
        assert!(
            running.child.wait().unwrap().success() && line == "all calls",
            "{}: {said}",
            program.display()
        );
    }
}

/// A program; killed when dropped.
pub struct Running {
    pub child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Its output and errors are pipes.
    pub fn started(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.spawn()?;
        let said = BufReader::new(child.stdout.take().unwrap());
        Ok(Self { child, said })
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn complaint(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end; what it said on stderr.
    pub fn end(mut self) -> String {
        // SAFETY: the child is not yet waited for, so its number is its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let said = self.complaint();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What another process does sooner or later; the time only ends a test that fails.
pub fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(180);
    while !done() {
        assert!(Instant::now() < end, "it never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}
