// SPDX-License-Identifier: Apache-2.0 OR MIT
//! noise: the proof in counts. On a terminal a table, refreshed every second; elsewhere JSON. Both
//! have the totals since the window opened, and the window has no gap. A signal ends the window.

use crate::args::Noise;
use crate::exit::of_signal;
use crate::signals::Noted;
use anyhow::{Context, Result};
use asmp_host::sharing::{self, Sharing};
use asmp_host::{CpuSet, Facts, Kernel, clock};
use asmp_measure::noise::{Request, Watch, table};
use asmp_shield::plan::Base;
use asmp_shield::text::shown_lines;
use asmp_shield::{Mode, Refusal, Shield, check_tree};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the kernel's buffers are read, and the table is refreshed.
const TURN: Duration = Duration::from_secs(1);

/// Counts for a time, or until a signal comes. Exit code: 0, or of the signal.
pub fn noise(shield: &Shield, noise: &Noise) -> Result<u8> {
    // The end of this process alone would leave the kernel recording, on shielded CPUs too.
    let noted = Noted::take().context("take signals")?;
    count(shield, noise, &|| noted.signal())
}

/// `came` is a signal that has come.
fn count(shield: &Shield, noise: &Noise, came: &dyn Fn() -> Option<i32>) -> Result<u8> {
    let facts = Facts::read(shield.kernel())?;
    // Elsewhere the tasks that belong on the CPUs cannot be told from others.
    check_tree(&facts)?;
    let request = request(shield, &facts, noise)?;
    let shares = shield
        .state()?
        .partitions
        .iter()
        .any(|one| one.mode == Mode::Shared && one.cpus.intersects(&request.cpus));
    let before = if shares { guests(shield.kernel()) } else { None };
    let watched = std::io::stdout().is_terminal() && !noise.json && !noise.table;
    let mut watch = Watch::begin(shield.kernel(), &request)?;
    let end = Instant::now() + noise.time;
    let mut clear = "";
    let signal = loop {
        let left = end.saturating_duration_since(Instant::now());
        // A signal ends the sleep. One that comes right before it waits a turn at most.
        let signal = came().or_else(|| {
            clock::sleep_until(clock::monotonic_ns() + left.min(TURN).as_nanos() as u64);
            came()
        });
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
        if signal.is_some() || left <= TURN {
            break signal;
        }
    };
    if !watched {
        let report = watch.look()?;
        match noise.table {
            true => {
                print!("{}", table(&[("", &report)]));
                match (before, guests(shield.kernel())) {
                    (Some(before), Some(after)) => {
                        let [entered, left] =
                            [0, 1].map(|at: usize| after[at].saturating_sub(before[at]));
                        println!(
                            "shared CPUs: foreign tasks are there in user mode; they entered the \
                             kernel {entered} times, and left {left} times before it went on"
                        );
                    }
                    (Some(_), None) => println!(
                        "shared CPUs: their scheduler has ended: foreign tasks may have been in \
                         the kernel there"
                    ),
                    _ => {}
                }
            }
            false => crate::print::json(&report)?,
        }
    }
    Ok(signal.map_or(0, of_signal))
}

/// How often tasks entered the kernel on guarded CPUs, and left one on the way in; `None`: no CPU
/// is guarded.
fn guests(kernel: &dyn Kernel) -> Option<[u64; 2]> {
    if Sharing::read(kernel).guarded.is_empty() {
        return None;
    }
    let counts = sharing::counts(kernel)?;
    let of = |name: &str| counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
    Some([of("calls_from_rt")? + of("faults_from_rt")?, of("left_in_kernel")?])
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

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::fake::FakeKernel;
    use asmp_host::store::Store;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn a_signal_ends_the_count_and_what_was_counted_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Arc::new(FakeKernel::new());
        kernel.set_file("/proc/softirqs", "CPU0 CPU1 CPU2 CPU3\nTIMER: 1 2 3 4\n");
        let shield = Shield::new(kernel, Store::at(dir.path()));
        let long = Duration::from_secs(150);
        let cpus = Some("3".parse().unwrap());
        let noise = Noise { name: None, cpus, time: long, json: true, table: false };
        crate::print::recorded();
        let (begun, looks) = (Instant::now(), AtomicUsize::new(0));
        // It comes while it sleeps.
        let second = || (looks.fetch_add(1, Relaxed) >= 1).then_some(libc::SIGINT);
        assert_eq!(count(&shield, &noise, &second).unwrap(), 130);
        assert!(begun.elapsed() < long / 2);
        let report: serde_json::Value = serde_json::from_str(&crate::print::recorded()).unwrap();
        let counted_ns = report["duration_ns"].as_u64().unwrap();
        assert!(counted_ns > 0 && Duration::from_nanos(counted_ns) < long / 2, "{report}");
        // A count that no signal ends has its whole time.
        let short = Noise { time: Duration::from_millis(10), ..noise };
        assert_eq!(count(&shield, &short, &|| None).unwrap(), 0);
    }
}
