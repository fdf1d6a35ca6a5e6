// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection to asmpd: Varlink over its socket.

use crate::exit::{NO_ASMPD, UNEXPECTED, failure};
use crate::print;
use anyhow::Result;
use asmp_daemon::interface::{DIR, NAME, ROOTS};
use asmp_daemon::work::Refused;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use varlink::sansio::protocol::serialize_request;
use varlink::{Reply, Request};

/// An asmpd that hangs, or is stopped, answers no sooner.
const MOST: Duration = Duration::from_secs(5);
/// A change waits up to 10 s for another one, and as long for ticks and kernel threads.
pub const LONG: Duration = Duration::from_secs(120);

/// A connection to the running asmpd.
pub struct Asmpd {
    stream: BufReader<UnixStream>,
    /// How long it is waited for.
    most: Duration,
}

impl Asmpd {
    /// `None`: it does not run. Errors: exit code 49.
    pub fn connect() -> Result<Option<Self>> {
        // Users cannot fill the queue of root's. An older asmpd has none, and a container's root
        // may not use it.
        let names: &[&str] =
            if rustix::process::geteuid().is_root() { &[ROOTS, NAME] } else { &[NAME] };
        let mut socket = None;
        for path in names.iter().map(|name| Path::new(DIR).join(name)) {
            let failed = |error: Errno| unanswered(&format!("{}: {error}", path.display()));
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
            let made = made.map_err(failed)?;
            match connect(&made, &SocketAddrUnix::new(&path).map_err(failed)?) {
                Ok(()) => {
                    socket = Some(made);
                    break;
                }
                Err(Errno::NOENT | Errno::CONNREFUSED) => {}
                Err(Errno::ACCESS) if path.ends_with(ROOTS) => {}
                // Its queue is full: it hangs.
                Err(Errno::AGAIN) => return Err(unanswered("it takes no connection")),
                Err(errno) => return Err(failed(errno)),
            }
        }
        let Some(socket) = socket else { return Ok(None) };
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(MOST))?;
        stream.set_write_timeout(Some(MOST))?;
        Ok(Some(Self { stream: BufReader::new(stream), most: MOST }))
    }

    /// It may take long to answer: it changes partitions.
    pub fn is_to_work(&mut self) -> Result<()> {
        self.most = LONG;
        Ok(self.stream.get_ref().set_read_timeout(Some(LONG))?)
    }

    /// Waits for a reply, however long. `false`: standard output is read no more.
    pub fn has_more(&mut self) -> Result<bool> {
        if !self.stream.buffer().is_empty() {
            return Ok(print::is_read());
        }
        let out = std::io::stdout();
        // Of the latter only the end is told, which needs no asking.
        let mut ready = [
            PollFd::new(self.stream.get_ref(), PollFlags::IN),
            PollFd::new(&out, PollFlags::empty()),
        ];
        loop {
            match poll(&mut ready, None) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(std::io::Error::from(errno).into()),
                Ok(_) => return Ok(print::is_read() && ready[1].revents().is_empty()),
            }
        }
    }

    /// Sends a request. Errors: exit code 49.
    pub fn ask(&mut self, method: &str, parameters: Option<Value>, more: bool) -> Result<()> {
        let more = more.then_some(true);
        let request = Request { more, ..Request::create(method.to_owned(), parameters) };
        let bytes =
            serialize_request(&request).map_err(|error| failure(UNEXPECTED, error.to_string()))?;
        self.stream.get_mut().write_all(&bytes).map_err(|error| self.late(&error))
    }

    /// The next reply. `None`: asmpd has ended.
    pub fn reply<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut bytes = Vec::new();
        self.stream.read_until(0, &mut bytes).map_err(|error| self.late(&error))?;
        if bytes.pop() != Some(0) {
            return Ok(None);
        }
        let unlike = |why: String| failure(NO_ASMPD, format!("asmpd is of another version: {why}"));
        let reply: Reply =
            serde_json::from_slice(&bytes).map_err(|error| unlike(error.to_string()))?;
        match reply.error.as_deref().map(|error| error.rsplit('.').next().unwrap_or(error)) {
            None => {}
            Some("TooManyClients") => {
                return Err(unanswered("too many programs are connected to it"));
            }
            Some("EventsLost") => {
                return Err(failure(
                    NO_ASMPD,
                    "events were lost: they came faster than they were read",
                ));
            }
            Some("Refused") => {
                let refused = serde_json::from_value(reply.parameters.unwrap_or_default());
                let Refused { code, why } = refused.map_err(|error| unlike(error.to_string()))?;
                return Err(failure(code, why));
            }
            Some(error) => return Err(unlike(error.to_owned())),
        }
        let parameters = reply.parameters.unwrap_or_default();
        serde_json::from_value(parameters).map(Some).map_err(|error| unlike(error.to_string()))
    }

    fn late(&self, error: &std::io::Error) -> anyhow::Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let most_s = self.most.as_secs();
                failure(NO_ASMPD, format!("asmpd runs, but has not answered for {most_s} s"))
            }
            _ => unanswered(&error.to_string()),
        }
    }
}

pub fn absent() -> anyhow::Error {
    failure(NO_ASMPD, "asmpd does not run: start it with `sudo systemctl start asmpd`")
}

pub fn ended() -> anyhow::Error {
    failure(NO_ASMPD, "asmpd ended before it answered")
}

fn unanswered(why: &str) -> anyhow::Error {
    failure(NO_ASMPD, format!("asmpd does not answer: {why}"))
}
