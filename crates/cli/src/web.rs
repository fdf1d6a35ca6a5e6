// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp web`: partitions in a browser of this machine. The page and its server are `asmp_web`;
//! here is what it shows, and what it may ask for.

use crate::change;
use crate::events;
use crate::exit::{BAD_FILE, NO_PORT, USAGE, code_of, failure};
use crate::print;
use crate::signals;
use crate::top::{latency, look::Look, look::rates};
use anyhow::{Context, Result};
use asmp_daemon::came;
use asmp_daemon::log::Entry;
use asmp_host::clock::utc;
use asmp_host::names::number_of;
use asmp_host::{Cpu, CpuSet, CpuSpec, Kernel, facts};
use asmp_shield::{Partition, Request, Shield, Spec, State};
use asmp_web::{
    Change, Event, Machine, Place, Rates, Refused, Reports, Seen, Served, Task, Token, serve,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Show partitions in a browser of this machine, and make and end them there
///
/// Serves a page on 127.0.0.1 and ::1 and prints its address. The page shows the CPUs by socket and
/// core, the partitions, what disturbs them, and what asmpd found and repaired. With root it also
/// makes and ends partitions. The address has a new name and a new secret token at each start. Only
/// programs of root, of the user who started asmp web, and of the user who called sudo get in, and
/// they need the token. SIGINT (Ctrl-C), SIGTERM or SIGHUP ends asmp web, with exit code 0. asmp
/// reads the machine only while a browser shows the page. From another machine, as a user who may
/// call sudo here, run `ssh -t -o ExitOnForwardFailure=yes -L 127.0.0.1:8080:127.0.0.1:8080 -L
/// '[::1]:8080:127.0.0.1:8080' USER@MACHINE sudo asmp web --port 8080`, and open the printed
/// address there, in Firefox or Chromium (Safari does not find it). The port must be the same, and
/// both forwards are needed: another user there may listen at the one that is left out. Only where
/// that machine has no IPv6, leave out the second.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The port; 0: any that is free
    ///
    /// Example: asmp web --port 8080
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Also list the pages (*.html) in this directory, such as those of `asmp measure report`
    ///
    /// Example: asmp web --reports /var/lib/asmp/reports
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
    /// Also answer programs of this user, by name or number; may be given several times
    ///
    /// Without it, asmp web answers programs of root, of the user who started it, and of the user
    /// who called sudo. A container's browser may run as another. Example: asmp web --user kiosk
    #[arg(long, value_name = "USER")]
    user: Vec<String>,
}

/// Serves until a signal ends it.
pub fn web(shield: &Shield, args: &Args) -> Result<u8> {
    let reports = args.reports.as_deref().map(|dir| {
        let cure = "give --reports a directory that you may read";
        let refused = |error| failure(BAD_FILE, format!("{}: {error}: {cure}", dir.display()));
        Reports::below(dir).map_err(refused)
    });
    let reports = reports.transpose()?;
    let users = users(shield.kernel(), &args.user)?;
    let place = Place::take(args.port).map_err(|error| {
        let cure = match error.kind() {
            ErrorKind::PermissionDenied => "choose a --port of 1024 or more",
            _ => "choose another --port",
        };
        failure(NO_PORT, format!("port {}: {error}: {cure}", args.port))
    })?;
    signals::outlive_file_size_limit().context("take SIGXFSZ")?;
    let token = Token::new().context("random numbers")?;
    println!("{}#token={}", place.url(), token.text());
    // Without the address no browser comes in. `main` says why.
    if !print::is_read() {
        return Ok(0);
    }
    let may = match facts::user(shield.kernel()) == Some(0) {
        true => "it may make and end partitions",
        false => "read only: start it with sudo to make partitions",
    };
    eprintln!("asmp: open this address in a browser of this machine ({may}); Ctrl-C ends asmp web");
    let machine = Arc::new(Own { shield: shield.clone(), before: Mutex::default() });
    let signals = signals::that_end();
    serve(Served { place, token, users, signals, machine, reports }).context("serve")?;
    Ok(0)
}

/// Whose programs may connect: this user's, root's, those of who has used sudo, and those named.
fn users(kernel: &dyn Kernel, named: &[String]) -> Result<BTreeSet<u32>> {
    let passwd = kernel.text(Path::new("/etc/passwd")).unwrap_or_default();
    let number = |name: &String| {
        let number = name.parse().ok().or_else(|| number_of(&passwd, name));
        let why = || format!("no user {name:?} in /etc/passwd: give --user a number");
        number.ok_or_else(|| failure(USAGE, why()))
    };
    let mut users = named.iter().map(number).collect::<Result<BTreeSet<u32>>>()?;
    let own = facts::user(kernel);
    users.extend([0].into_iter().chain(own));
    // Root's environment is as root has it.
    if own == Some(0) {
        users.extend(std::env::var("SUDO_UID").ok().and_then(|user| user.parse::<u32>().ok()));
    }
    Ok(users)
}

/// Events that the page shows.
const MOST_EVENTS: usize = 200;

/// This machine.
struct Own {
    shield: Shield,
    before: Mutex<Before>,
}

/// What was seen the last time.
#[derive(Default)]
struct Before {
    look: Option<Look>,
    /// The last ones, the oldest first.
    events: Vec<Entry>,
}

impl Machine for Own {
    fn seen(&self) -> Result<Seen, String> {
        self.look().map_err(|error| print::chain(&error))
    }

    fn change(&self, change: &Change) -> Result<String, Refused> {
        let refused =
            |error: &anyhow::Error| Refused { code: code_of(error), why: print::chain(error) };
        let request = request(change).map_err(|error| refused(&error))?;
        let caller = change::caller(self.shield.kernel());
        caller.must_be_root().map_err(|error| refused(&error.into()))?;
        let outcome =
            self.shield.change(&request, &caller).map_err(|error| refused(&error.into()))?;
        let done = match change {
            Change::Create { name, .. } => {
                let made = outcome.state.partition(name);
                made.map_or_else(|_| String::new(), |one| format!("{name}: CPU {}", one.cpus))
            }
            Change::Destroy { name } => format!("{name} is gone"),
        };
        Ok([vec![done], came::of(&request, &outcome)].concat().join("; "))
    }
}

fn request(change: &Change) -> Result<Request> {
    Ok(match change {
        Change::Create { name, cpus } => {
            let cpus: CpuSpec = cpus.parse()?;
            Request::Create { name: name.clone(), spec: Spec::of(cpus) }
        }
        Change::Destroy { name } => Request::Destroy { name: Some(name.clone()), demote: false },
    })
}

impl Own {
    fn look(&self) -> Result<Seen> {
        let kernel = self.shield.kernel();
        let state = self.shield.state()?;
        let look = Look::take(&self.shield)?;
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let rates = before.look.as_ref().map(|old| rates(old, &look)).unwrap_or_default();
        let rates = rates.into_iter().map(|(cpu, one)| {
            let (ticks, devices, ipis, softirqs) = (one.ticks, one.devices, one.ipis, one.softirqs);
            (cpu, Rates { ticks, devices, ipis, softirqs })
        });
        follow_events(&mut before.events);
        let event = |one: &Entry| Event {
            number: one.number,
            time: utc(one.time_us / 1_000_000),
            text: one.text.clone(),
        };
        let text = |path: &str| kernel.text(Path::new(path)).unwrap_or_default().trim().to_owned();
        let seen = Seen {
            time: utc(look.at_s),
            host: text("/proc/sys/kernel/hostname"),
            kernel: text("/proc/sys/kernel/osrelease"),
            held: look.held.clone(),
            blind: look.blind,
            violations: look.violations.clone(),
            changes: facts::user(kernel) == Some(0),
            cpus: cpus(kernel, &state, &rates.collect())?,
            partitions: state.partitions.iter().map(|one| partition(one, &look)).collect(),
            events: before.events.iter().rev().map(event).collect(),
        };
        before.look = Some(look);
        Ok(seen)
    }
}

/// Adds those that came since. Those of another asmpd take the place of all.
fn follow_events(events: &mut Vec<Entry>) {
    // The last one again: another asmpd has another event of this number, or none.
    let before = events.last().map(|last| last.number.saturating_sub(1));
    match events::after(before) {
        Ok(Some(new)) => join(events, new),
        Ok(None) | Err(_) => events.clear(),
    }
    if events.is_empty() && before.is_some() {
        *events = events::after(None).ok().flatten().unwrap_or_default();
    }
    events.drain(..events.len().saturating_sub(MOST_EVENTS));
}

/// Adds events that begin with the last one of those that are there; without that, there are none.
fn join(events: &mut Vec<Entry>, new: Vec<Entry>) {
    match events.pop() {
        None => *events = new,
        Some(last) if new.first() == Some(&last) => events.extend(new),
        Some(_) => events.clear(),
    }
}

/// Every CPU that is plugged in.
fn cpus(
    kernel: &dyn Kernel,
    state: &State,
    rates: &BTreeMap<Cpu, Rates>,
) -> Result<Vec<asmp_web::Cpu>> {
    let online = facts::cpu_list(kernel, "online")?;
    let one = |cpu: Cpu| {
        let topology = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
            kernel.text(Path::new(&path)).ok()
        };
        let siblings = topology("thread_siblings_list").and_then(|list| list.trim().parse().ok());
        let core = siblings.and_then(|siblings: CpuSet| siblings.iter().next());
        let of = |which: fn(&Partition) -> &CpuSet| {
            state.partitions.iter().find(|one| which(one).contains(cpu))
        };
        let (inside, idle) = (of(|one| &one.cpus), of(|one| &one.idle_cpus));
        asmp_web::Cpu {
            cpu,
            socket: topology("physical_package_id")
                .and_then(|id| id.trim().parse().ok())
                .unwrap_or_default(),
            core: core.unwrap_or(cpu),
            state: match (online.contains(cpu), inside, idle) {
                (false, ..) => "offline",
                (_, Some(_), _) => "shielded",
                (_, _, Some(_)) => "kept idle",
                _ => "system",
            },
            partition: inside.or(idle).map(|one| one.name.clone()),
            rates: rates.get(&cpu).copied(),
        }
    };
    Ok(facts::cpu_list(kernel, "present")?.iter().map(one).collect())
}

fn partition(one: &Partition, look: &Look) -> asmp_web::Partition {
    let seen = look.partitions.iter().find(|seen| seen.name == one.name);
    let task = |one: &crate::top::look::Inside| Task {
        tid: one.tid,
        command: one.command.clone(),
        policy: one.policy.clone(),
    };
    asmp_web::Partition {
        name: one.name.clone(),
        cpus: one.cpus.to_string() + &print::idle_siblings(&one.idle_cpus),
        since: utc(one.created_s),
        by: one.created_by.clone(),
        tick: one.tick.to_string(),
        irqs: one.irqs.clone(),
        tasks: seen.iter().flat_map(|seen| &seen.tasks).map(task).collect(),
        more_tasks: seen.map(|seen| seen.more_tasks).unwrap_or_default(),
        violations: seen.map(|seen| seen.violations.clone()).unwrap_or_default(),
        unchecked: seen.is_some_and(|seen| seen.unchecked),
        latency: seen.and_then(|seen| latency(&seen.worst_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::fake::FakeKernel;

    #[test]
    fn events_of_another_asmpd_are_not_added_to_those_of_the_one_before() {
        let event = |number: u64, text: &str| Entry {
            number,
            time_us: 1,
            kind: asmp_daemon::log::Kind::Told,
            partition: None,
            what: None,
            task: None,
            after_us: None,
            cure: None,
            cause: String::new(),
            text: text.to_owned(),
        };
        let after = |new: Vec<Entry>| {
            let mut events = vec![event(1, "a"), event(2, "b")];
            join(&mut events, new);
            events.into_iter().map(|one| one.text).collect::<String>()
        };
        assert_eq!(after(vec![event(2, "b"), event(3, "c")]), "abc");
        assert_eq!(after(vec![event(2, "b")]), "ab");
        assert_eq!(after(vec![event(2, "x"), event(3, "y")]), "", "all are read again");
        assert_eq!(after(vec![]), "");
    }

    #[test]
    fn named_users_may_connect_besides_root_and_the_own_one() {
        let kernel = FakeKernel::new();
        kernel.set_file("/etc/passwd", "alice:x:1000:100::/:\n");
        kernel.set_file("/proc/self/status", "Uid:\t7\t7\t7\t7");
        let of = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(ToString::to_string).collect();
            users(&kernel, &named).map(|users| users.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).unwrap(), [0, 7]);
        assert_eq!(of(&["alice", "44"]).unwrap(), [0, 7, 44, 1000]);
        let why = of(&["bob"]).unwrap_err();
        assert_eq!(code_of(&why), USAGE);
        assert_eq!(why.to_string(), "no user \"bob\" in /etc/passwd: give --user a number");
    }
}
