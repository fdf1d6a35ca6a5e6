// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp events`: what asmpd found and repaired, asked over its socket.

use crate::asmpd::{Asmpd, absent, ended};
use crate::print;
use anyhow::Result;
use asmp_daemon::interface::{INTERFACE, State};
use asmp_daemon::log::Entry;
use asmp_host::clock::utc;
use serde::Deserialize;
use serde_json::json;

/// Show what asmpd found and repaired
///
/// Prints the last thousand events of the running asmpd: what violated a partition, what was
/// noticed first, and how long the repair took. Needs no root. Exit code 49 if none runs.
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

/// Prints the events.
pub fn events(args: &Args) -> Result<u8> {
    let mut asmpd = Asmpd::connect()?.ok_or_else(absent)?;
    if args.follow {
        // Whether it answers at all: the next event may be days away.
        asmpd.ask(&of("GetState"), None, false)?;
        asmpd.reply::<State>()?.ok_or_else(ended)?;
        asmpd.ask(&of("FollowEvents"), None, true)?;
        while asmpd.has_more()? {
            let Some(Followed { event }) = asmpd.reply()? else { break };
            show(&event, args.json)?;
        }
        return Ok(0);
    }
    drop(asmpd);
    let events = after(None)?.ok_or_else(absent)?;
    if events.is_empty() {
        eprintln!("asmp: asmpd has found nothing since it started");
    }
    events.iter().try_for_each(|event| show(event, args.json))?;
    Ok(0)
}

/// The events after this one, the oldest first; `None`: all that are kept. `Ok(None)`: asmpd does
/// not run. Errors: it does not answer, or has no event of that number.
pub fn after(number: Option<u64>) -> Result<Option<Vec<Entry>>> {
    let Some(mut asmpd) = Asmpd::connect()? else { return Ok(None) };
    let parameters = number.map(|number| json!({ "after": number }));
    asmpd.ask(&of("GetEvents"), parameters, false)?;
    let Events { events } = asmpd.reply()?.ok_or_else(ended)?;
    Ok(Some(events))
}

/// What asmpd says of itself; `None`: it does not run. Errors: it does not answer.
pub fn state() -> Result<Option<State>> {
    let Some(mut asmpd) = Asmpd::connect()? else { return Ok(None) };
    asmpd.ask(&of("GetState"), None, false)?;
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

fn of(method: &str) -> String {
    format!("{INTERFACE}.{method}")
}
