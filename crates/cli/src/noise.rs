// SPDX-License-Identifier: Apache-2.0 OR MIT
//! noise: the proof in counts. On a terminal a table, refreshed every second; elsewhere JSON. Both
//! have the totals since the window opened, and the window has no gap.

use crate::args::Noise;
use anyhow::Result;
use asmp_host::{CpuSet, Facts};
use asmp_measure::noise::{Request, Watch, table};
use asmp_shield::plan::Base;
use asmp_shield::text::shown_lines;
use asmp_shield::{Refusal, Shield, check_tree};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the kernel's buffers are read, and the table is refreshed.
const TURN: Duration = Duration::from_secs(1);

pub fn noise(shield: &Shield, noise: &Noise) -> Result<u8> {
    let facts = Facts::read(shield.kernel())?;
    // Elsewhere the tasks that belong on the CPUs cannot be told from others.
    check_tree(&facts)?;
    let request = request(shield, &facts, noise)?;
    let watched = std::io::stdout().is_terminal() && !noise.json && !noise.table;
    let mut watch = Watch::begin(shield.kernel(), &request)?;
    let end = Instant::now() + noise.time;
    let mut clear = "";
    loop {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(TURN));
        if watched {
            let text = table(&[("", &watch.look()?)]);
            let mut out = std::io::stdout().lock();
            write!(out, "{clear}{}", shown_lines(&text))?;
            out.flush()?;
            // Home and clear below, so that the table is refreshed in place.
            clear = "\x1b[H\x1b[J";
        } else {
            watch.drain();
        }
        if left <= TURN {
            break;
        }
    }
    if !watched {
        let report = watch.look()?;
        match noise.table {
            true => print!("{}", table(&[("", &report)])),
            false => crate::print::json(&report)?,
        }
    }
    Ok(0)
}

fn request(shield: &Shield, facts: &Facts, noise: &Noise) -> Result<Request> {
    let state = shield.state()?;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let group = |name: &str| base.groups(name).rt;
    if let Some(name) = &noise.name {
        let partition = state.partition(name)?;
        return Ok(Request { cpus: partition.shielded(), groups: vec![group(name)] });
    }
    let online = &facts.cpus.online;
    let cpus: CpuSet = noise.cpus.as_ref().map(|spec| spec.resolve(online)).unwrap_or_default();
    asmp_shield::online_cpus(facts, &cpus)?;
    // Tasks of a partition on these CPUs belong there.
    let groups = state
        .partitions
        .iter()
        .filter(|partition| partition.shielded().intersects(&cpus))
        .map(|partition| group(&partition.name))
        .collect();
    Ok(Request { cpus, groups })
}
