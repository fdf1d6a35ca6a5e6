// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp status`: what the kernel says of the partitions, and whether asmpd holds them.

use crate::{change, events, exit, granted, print};
use anyhow::Result;
use asmp_daemon::interface::State;
use asmp_host::facts;
use asmp_shield::Shield;
use asmp_shield::verify::Status;
use serde::Serialize;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show only this partition
    ///
    /// Without NAME, every partition is shown. Example: asmp status motion
    name: Option<String>,
    /// Print the status as JSON
    ///
    /// Values that do not apply are `null`. `asmpd` has the state of asmpd and its violations, or
    /// `error` where it does not answer. Example: asmp status --json
    #[arg(long)]
    json: bool,
}

/// Both, for programs.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a Status,
    asmpd: Option<Asmpd>,
}

/// `None`: it does not run.
#[derive(Serialize)]
#[serde(untagged)]
enum Asmpd {
    Runs(State),
    Silent { error: String },
}

/// Reads everything back; exit code 7 where a promise is broken.
pub fn status(shield: &Shield, args: &Args) -> Result<u8> {
    let name = args.name.as_deref();
    // First what this machine lacks: in a container no partition is there.
    let mut status = shield.status()?;
    name.map(|name| shield.state()?.partition(name).map(drop).map_err(anyhow::Error::from))
        .transpose()?;
    status.partitions.retain(|partition| name.is_none_or(|name| name == partition.name));
    let mut asmpd = events::state();
    if let (Some(name), Ok(Some(asmpd))) = (name, &mut asmpd) {
        asmpd.repaired.retain(|one| one.partition == name);
    }
    if args.json {
        let silent = |error| Some(Asmpd::Silent { error: print::chain(&error) });
        let asmpd = asmpd.map_or_else(silent, |state| state.map(Asmpd::Runs));
        print::json(&Shown { status: &status, asmpd })?;
    } else {
        print::status(&status, change::caller(shield.kernel()).time_s);
        match asmpd {
            Ok(Some(asmpd)) => {
                print::held(&asmpd);
                if facts::user(shield.kernel()) != Some(0) {
                    granted::show();
                }
            }
            Ok(None) if status.partitions.is_empty() => {}
            Ok(None) => {
                line!("asmpd does not run: what other programs change is not repaired");
            }
            Err(why) => line!("{}", print::chain(&why)),
        }
    }
    Ok(if status.holds() { 0 } else { exit::VIOLATED })
}
