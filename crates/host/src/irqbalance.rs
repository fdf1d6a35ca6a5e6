// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket on which irqbalance takes its settings: which CPUs and lines it leaves alone. What is
//! set ends with the process.
//!
//! Source: irqbalance 1.9.4, `sock_handle()` and `setup_banned_cpus()`. It answers root alone, and
//! serves one connection after the other between its scans.

use crate::cpuset::CpuSet;
use crate::kernel::Kernel;
use crate::task::{self, TaskId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where it makes its socket.
pub const DIR: &str = "/run/irqbalance";

/// How long it may take to answer: it may be in a scan.
const MOST: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// The irqbalance that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Irqbalance {
    pub task: TaskId,
    socket: PathBuf,
}

/// What it leaves alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Banned {
    /// CPUs that get no line.
    pub cpus: CpuSet,
    /// Lines that it does not move.
    pub irqs: BTreeSet<u32>,
}

impl Irqbalance {
    /// The process of that name with a socket of ours in this directory. A killed one leaves its
    /// socket, and its number may be another program's by now.
    pub fn running(kernel: &dyn Kernel, dir: &Path) -> Option<Self> {
        let mut entries = fs::read_dir(dir).ok()?.flatten();
        entries.find_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?.strip_prefix("irqbalance")?.strip_suffix(".sock")?;
            let socket = entry.path();
            let is_own =
                fs::symlink_metadata(&socket).ok()?.uid() == rustix::process::geteuid().as_raw();
            let task = task::read(kernel, pid.parse().ok()?).ok()?;
            (is_own && task.command == "irqbalance").then_some(Self { task: task.id, socket })
        })
    }

    /// What it leaves alone since its last scan. Errors: it does not answer, or in other words.
    pub fn banned(&self) -> io::Result<Banned> {
        let mut stream = self.ask("setup")?;
        let mut text = String::new();
        loop {
            let mut page = [0; 4 << 10];
            wait(&stream)?;
            match stream.read(&mut page)? {
                0 => break,
                count => text.push_str(&String::from_utf8_lossy(&page[..count])),
            }
        }
        read(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{text:?}")))
    }

    /// From its next scan on it gives these CPUs no line; `None`: those that it finds by itself.
    pub fn ban_cpus(&self, cpus: Option<&CpuSet>) -> io::Result<()> {
        let list = cpus.map_or_else(|| "NULL".to_owned(), ToString::to_string);
        self.ask(&format!("settings cpus {list}")).map(drop)
    }

    /// From its next scan on it moves none of these lines, but all others.
    pub fn ban_irqs(&self, irqs: &BTreeSet<u32>) -> io::Result<()> {
        let list: Vec<String> = irqs.iter().map(ToString::to_string).collect();
        let list = if list.is_empty() { "NONE".to_owned() } else { list.join(" ") };
        self.ask(&format!("settings ban irqs {list}")).map(drop)
    }

    /// Whether it finds by itself that it must leave these CPUs alone: from its environment, or
    /// from what the boot isolated.
    pub fn finds_by_itself(&self, kernel: &dyn Kernel, cpus: &CpuSet) -> bool {
        let environ = format!("/proc/{}/environ", self.task.tid);
        let environ = kernel.text(Path::new(&environ)).unwrap_or_default();
        if environ.split('\0').any(|one| one.starts_with("IRQBALANCE_BANNED_CPU")) {
            // Whatever they say, "NULL" brings it back.
            return true;
        }
        let list = |name: &str| -> CpuSet {
            let path = format!("/sys/devices/system/cpu/{name}");
            kernel
                .text(Path::new(&path))
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or_default()
        };
        list("isolated").union(&list("nohz_full")) == *cpus
    }

    fn ask(&self, words: &str) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // One that hangs has a full queue: then this does not wait, but fails.
        connect(&socket, &SocketAddrUnix::new(&self.socket)?)?;
        let mut stream = UnixStream::from(socket);
        stream.write_all(words.as_bytes())?;
        Ok(stream)
    }
}

fn wait(stream: &UnixStream) -> io::Result<()> {
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&MOST))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// `SLEEP 10 IRQ 24 LOAD 0 DIFF 0 CLASS 1 BANNED 00000000,0000000c`.
fn read(text: &str) -> Option<Banned> {
    let (head, mask) = text.trim_end_matches('\0').rsplit_once("BANNED ")?;
    let cpus = CpuSet::from_mask(mask.trim()).ok()?;
    let irqs = head.split("IRQ ").skip(1).map(|rest| rest.split(' ').next()?.parse().ok());
    Some(Banned { cpus, irqs: irqs.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_of_itself_is_read() {
        let cpus = |list: &str| -> CpuSet { list.parse().unwrap() };
        let of = |text: &str| read(text).map(|banned| (banned.cpus, banned.irqs));
        let none = BTreeSet::new();
        assert_eq!(of("SLEEP 10 BANNED 00000000,0000000c"), Some((cpus("2-3"), none.clone())));
        let lines = "SLEEP 10 IRQ 24 LOAD 7 DIFF 1 CLASS 5 IRQ 4 LOAD 0 DIFF 0 CLASS 0 BANNED 0";
        assert_eq!(of(lines), Some((CpuSet::new(), BTreeSet::from([4, 24]))));
        for other in ["", "SLEEP 10 ", "SLEEP 10 BANNED x", "IRQ x LOAD BANNED 1"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
