// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp run` of a user who is not root: asmpd makes the partition, if /etc/asmp/policy.toml grants
//! it.
//!
//! The child asks asmpd to be moved in, before it becomes the command: asmpd takes no process
//! number from a user, and moves who asks. The partition ends with this process, however that ends.

use crate::args::Run;
use crate::asmpd::{Asmpd, LONG};
use crate::exit::{NO_ASMPD, NOT_ROOT, code_of, failure};
use crate::print;
use crate::run::{base_name, cannot_execute, not_started};
use crate::signals::Signals;
use crate::supervise::{self, Stage};
use anyhow::Result;
use asmp_daemon::granted::{self, End, Ended, Enter, Grants, INTERFACE, Ran, Shown};
use asmp_daemon::interface::{DIR, NAME};
use asmp_daemon::work::Refused;
use asmp_shield::Refusal;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use varlink::Reply;

/// The number of the refusal that there is no such partition.
const NO_PARTITION: u8 = 32;

/// Partition, command, wait, end. Returns the command's status: its code, or 128 + signal.
pub fn run(run: &Run, name: &str, signals: &Signals) -> Result<u8> {
    let wanted = wanted(run, name)?;
    let mut asmpd = Asmpd::connect()?.ok_or_else(|| {
        failure(
            NOT_ROOT,
            "only root may change partitions: use sudo, or start asmpd, which lets users do what \
             /etc/asmp/policy.toml grants",
        )
    })?;
    asmpd.is_to_work()?;
    let Ran { notes, .. } = call(&mut asmpd, "Run", &wanted)?;
    notes.iter().for_each(|note| eprintln!("asmp: {note}"));
    let ended = attend(run, name, signals);
    match end(&mut asmpd, name) {
        Ok(Ended { notes, code }) => {
            notes.iter().for_each(|note| eprintln!("asmp: {note}"));
            if code != 0 {
                return Ok(code);
            }
        }
        Err(error) if code_of(&error) == NO_PARTITION => {
            eprintln!("asmp: partition {name} ended while the command ran: `asmp events` says why");
        }
        Err(error) => {
            eprintln!("asmp: partition {name} may not have ended: {}", print::chain(&error));
            return Ok(code_of(&error));
        }
    }
    ended
}

/// Prints what this user may do, or why that is not known.
pub fn show() {
    match grants() {
        Ok(grants) => grants.iter().for_each(print::granted),
        Err(why) => line!("{}", print::chain(&why)),
    }
}

fn grants() -> Result<Vec<Shown>> {
    let Some(mut asmpd) = Asmpd::connect()? else { return Ok(Vec::new()) };
    let Grants { grants } = call(&mut asmpd, "GetGrants", &json!({}))?;
    Ok(grants)
}

/// What asmpd is asked for. Errors: what no user is granted.
fn wanted(run: &Run, name: &str) -> Result<granted::Run> {
    let shape = &run.shape;
    if shape.share.is_some() {
        let (what, granted) = ("--share".to_owned(), "only root may share CPUs".to_owned());
        return Err(Refusal::NotGranted { what, granted }.into());
    }
    if !shape.irqs.is_empty() || shape.irq_priority.is_some() {
        let (what, granted) =
            ("an IRQ line".to_owned(), "only root may give lines away".to_owned());
        return Err(Refusal::NotGranted { what, granted }.into());
    }
    let words = run.command.iter().map(|word| word.to_string_lossy());
    Ok(granted::Run {
        name: name.to_owned(),
        cpus: shape.cpus.as_ref().map(ToString::to_string),
        count: shape.count,
        near: shape.near.clone(),
        whole_cores: shape.whole_cores.then_some(true),
        tick: Some(shape.tick),
        smt: Some(shape.smt),
        strict: shape.strict.then_some(true),
        without: (!shape.without.is_empty()).then(|| shape.without.clone()),
        policy: run.policy.to_string(),
        command: format!("asmp run -- {}", words.collect::<Vec<_>>().join(" ")),
    })
}

/// The command inside the partition, from its start to its end.
fn attend(run: &Run, name: &str, signals: &Signals) -> Result<u8> {
    if let Some(signal) = signals.ending()? {
        return Ok(not_started(signal));
    }
    let (mut door, words) = Door::new(run, name)?;
    let started = supervise::start(&run.command, move || door.enter(), None, signals);
    let child = started.map_err(|(stage, error)| match stage {
        Stage::Door => why_not(words, &error),
        _ => cannot_execute(&run.command[0], &error),
    })?;
    let mut say = |line: &str| eprintln!("asmp: {line}");
    let status = supervise::wait(child, signals, run.kill_after, &mut say)?;
    Ok(supervise::code(&status))
}

/// Ends the partition, also of an asmpd that was started again meanwhile.
fn end(asmpd: &mut Asmpd, name: &str) -> Result<Ended> {
    let asked = End { name: name.to_owned() };
    match call(asmpd, "End", &asked) {
        Err(error) if code_of(&error) == NO_ASMPD => {
            let mut again = Asmpd::connect()?.ok_or(error)?;
            again.is_to_work()?;
            call(&mut again, "End", &asked)
        }
        came => came,
    }
}

fn call<T: DeserializeOwned>(
    asmpd: &mut Asmpd,
    method: &str,
    parameters: &impl Serialize,
) -> Result<T> {
    asmpd.ask(&format!("{INTERFACE}.{method}"), Some(json!(parameters)), false)?;
    asmpd.reply()?.ok_or_else(|| failure(NO_ASMPD, "asmpd ended before it answered"))
}

/// What the child does between fork(2) and execve(2), all prepared before.
struct Door {
    address: SocketAddrUnix,
    request: Vec<u8>,
    /// To the parent: why not, as asmpd says it.
    words: PipeWriter,
}

impl Door {
    fn new(run: &Run, name: &str) -> Result<(Self, PipeReader)> {
        let (name, policy) = (name.to_owned(), run.policy.to_string());
        let asked = Enter { name, policy, command: base_name(&run.command[0]) };
        let method = format!("{INTERFACE}.Enter");
        let mut request = serde_json::to_vec(&json!({ "method": method, "parameters": asked }))?;
        request.push(0);
        let address = SocketAddrUnix::new(Path::new(DIR).join(NAME))?;
        let (reader, words) = io::pipe()?;
        Ok((Self { address, request, words }, reader))
    }

    /// Asks asmpd to be moved in. Async-signal-safe: system calls and memory of its own.
    fn enter(&mut self) -> io::Result<()> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(LONG))?;
        connect(&socket, &self.address)?;
        let mut left = &self.request[..];
        while !left.is_empty() {
            left = &left[rustix::io::write(&socket, left)?..];
        }
        let mut room = [0; 4 << 10];
        let mut length = 0;
        while !room[..length].contains(&0) {
            match rustix::io::read(&socket, &mut room[length..])? {
                0 => return Err(Errno::CONNRESET.into()),
                count => length += count,
            }
        }
        let reply = &room[..length];
        if reply.windows(ERROR.len()).any(|bytes| bytes == ERROR) {
            let _ = self.words.write(reply);
            return Err(Errno::PERM.into());
        }
        Ok(())
    }
}

/// What a reply has that is an error.
const ERROR: &[u8] = b"\"error\"";

/// Why the child was not moved in.
fn why_not(mut words: PipeReader, error: &io::Error) -> anyhow::Error {
    let mut reply = Vec::new();
    let _ = words.read_to_end(&mut reply);
    reply.retain(|byte| *byte != 0);
    let of_reply = serde_json::from_slice::<Reply>(&reply).ok().and_then(|reply| reply.parameters);
    match of_reply.and_then(|why| serde_json::from_value::<Refused>(why).ok()) {
        Some(Refused { code, why }) => failure(code, why),
        None => failure(NO_ASMPD, format!("asmpd did not move the command in: {error}")),
    }
}
