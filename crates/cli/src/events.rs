// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp events`: what asmpd found and repaired, asked over its socket.

use crate::exit::{NO_ASMPD, UNEXPECTED, failure};
use crate::print;
use anyhow::Result;
use asmp_daemon::interface::{DIR, INTERFACE, NAME, State};
use asmp_daemon::log::Entry;
use asmp_host::clock::utc;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use varlink::sansio::protocol::serialize_request;
use varlink::{Reply, Request};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Go on, and print each event as it comes
    ///
    /// Ends when asmpd does. Example: asmp events --follow
    #[arg(short, long)]
    follow: bool,
    /// Print each event as a JSON object in a line of its own
    ///
    /// The fields are those of the type Event in the Varlink interface org.asmp.Hold. Example: asmp
    /// events --json
    #[arg(long)]
    json: bool,
}

/// An asmpd that hangs, or is stopped, answers no sooner.
const MOST: Duration = Duration::from_secs(5);

/// Prints the events.
pub fn events(args: &Args) -> Result<u8> {
    let mut asmpd = Asmpd::connect()?.ok_or_else(absent)?;
    if args.follow {
        // Whether it answers at all: the next event may be days away.
        asmpd.ask("GetState", false)?;
        asmpd.reply::<State>()?.ok_or_else(ended)?;
        asmpd.ask("FollowEvents", true)?;
        while asmpd.has_more()? {
            let Some(Followed { event }) = asmpd.reply()? else { break };
            show(&event, args.json)?;
        }
        return Ok(0);
    }
    asmpd.ask("GetEvents", false)?;
    let Events { events } = asmpd.reply()?.ok_or_else(ended)?;
    if events.is_empty() {
        eprintln!("asmp: asmpd has found nothing since it started");
    }
    events.iter().try_for_each(|event| show(event, args.json))?;
    Ok(0)
}

/// What asmpd says of itself; `None`: it does not run. Errors: it does not answer.
pub fn state() -> Result<Option<State>> {
    let Some(mut asmpd) = Asmpd::connect()? else { return Ok(None) };
    asmpd.ask("GetState", false)?;
    asmpd.reply()?.map(Some).ok_or_else(ended)
}

#[derive(Deserialize)]
struct Events {
    events: Vec<Entry>,
}

#[derive(Deserialize)]
struct Followed {
    event: Entry,
}

fn show(event: &Entry, json: bool) -> Result<()> {
    match json {
        true => print::raw(&format!("{}\n", serde_json::to_string(event)?)),
        false => line!("{} UTC  {}", utc(event.time_us / 1_000_000), event.text),
    }
    Ok(())
}

/// A connection to the running asmpd.
struct Asmpd(BufReader<UnixStream>);

impl Asmpd {
    /// `None`: it does not run. Errors: exit code 49.
    fn connect() -> Result<Option<Self>> {
        let path = Path::new(DIR).join(NAME);
        let failed = |error: Errno| unanswered(&format!("{}: {error}", path.display()));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(failed)?;
        match connect(&socket, &SocketAddrUnix::new(&path).map_err(failed)?) {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
            // Its queue is full: it hangs.
            Err(Errno::AGAIN) => return Err(unanswered("it takes no connection")),
            Err(errno) => return Err(failed(errno)),
        }
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(MOST))?;
        stream.set_write_timeout(Some(MOST))?;
        Ok(Some(Self(BufReader::new(stream))))
    }

    /// Waits for a reply, however long. `false`: standard output is read no more.
    fn has_more(&mut self) -> Result<bool> {
        if !self.0.buffer().is_empty() {
            return Ok(print::is_read());
        }
        let out = std::io::stdout();
        // Of the latter only the end is told, which needs no asking.
        let mut ready =
            [PollFd::new(self.0.get_ref(), PollFlags::IN), PollFd::new(&out, PollFlags::empty())];
        loop {
            match poll(&mut ready, None) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(std::io::Error::from(errno).into()),
                Ok(_) => return Ok(print::is_read() && ready[1].revents().is_empty()),
            }
        }
    }

    fn ask(&mut self, method: &str, more: bool) -> Result<()> {
        let request = Request { more: more.then_some(true), ..Request::create(of(method), None) };
        let bytes =
            serialize_request(&request).map_err(|error| failure(UNEXPECTED, error.to_string()))?;
        self.0.get_mut().write_all(&bytes).map_err(|error| late(&error))
    }

    /// The next reply. `None`: asmpd has ended.
    fn reply<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut bytes = Vec::new();
        self.0.read_until(0, &mut bytes).map_err(|error| late(&error))?;
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
            Some(error) => return Err(unlike(error.to_owned())),
        }
        let parameters = reply.parameters.unwrap_or_default();
        serde_json::from_value(parameters).map(Some).map_err(|error| unlike(error.to_string()))
    }
}

fn of(method: &str) -> String {
    format!("{INTERFACE}.{method}")
}

fn absent() -> anyhow::Error {
    failure(NO_ASMPD, "asmpd does not run: start it with `sudo systemctl start asmpd`")
}

fn ended() -> anyhow::Error {
    failure(NO_ASMPD, "asmpd ended before it answered")
}

fn unanswered(why: &str) -> anyhow::Error {
    failure(NO_ASMPD, format!("asmpd does not answer: {why}"))
}

fn late(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            failure(NO_ASMPD, format!("asmpd runs, but has not answered for {} s", MOST.as_secs()))
        }
        _ => unanswered(&error.to_string()),
    }
}
