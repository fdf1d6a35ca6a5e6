// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When to look at the machine, what to repair, and what came of it. Pure: times are nanoseconds of
//! CLOCK_MONOTONIC, and come as arguments.
//!
//! A notice asks for a look, a little later: what comes together is looked at once. Without notices
//! there is a look once a sweep, for what no source tells. A look that finds a violation asks for a
//! repair, and there is one more look after it. What a repair leaves though it changed something
//! may have been repaired and broken again at once: it is tried again at once, some times. What
//! stays is named once, and tried again after a pause that doubles; a notice cuts a long pause
//! short. Where somebody breaks a partition as fast as it is repaired, all repairs pause, and that
//! is named too.

use asmp_shield::Mode;
use asmp_shield::verify::Status;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// How often what a repair left is tried again at once, where the repair changed something.
const MOST_AT_ONCE: u32 = 3;

/// How long what is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From a notice to the look.
    pub settle_ns: u64,
    /// Between looks without a notice.
    pub sweep_ns: u64,
    /// Before what was not repaired is tried again: at first, and at most.
    pub again_ns: [u64; 2],
    /// So many repairs in `storm_ns` are a storm.
    pub storm_repairs: usize,
    pub storm_ns: u64,
    /// Between repairs in a storm: at first, and at most. The latter is also the longest pause of
    /// what was not repaired, once there is a notice.
    pub pause_ns: [u64; 2],
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            settle_ns: 2 * MS,
            sweep_ns: 60 * SECOND,
            again_ns: [SECOND, 600 * SECOND],
            storm_repairs: 50,
            storm_ns: 10 * SECOND,
            pause_ns: [100 * MS, 5 * SECOND],
        }
    }
}

/// What is wrong, and with which partition. What belongs to no partition has an empty name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub partition: String,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.partition.is_empty() {
            true => write!(f, "{}", self.what),
            false => write!(f, "{}: {}", self.partition, self.what),
        }
    }
}

/// What is kept of each violation, and of storms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Of the notice to the end of the repair.
    Repaired {
        violation: Violation,
        after_ns: u64,
    },
    /// It ended before a repair began.
    Ended {
        violation: Violation,
    },
    /// A repair left it, or could not be made.
    Stays {
        violation: Violation,
        cure: String,
    },
    /// Another program has moved a task into a partition. It stays there.
    Entered {
        partition: String,
        task: i32,
        command: String,
    },
    /// Another program was told what to leave alone, or would not be.
    Told {
        what: String,
    },
    /// A partition was made for a user who is not root, or ended. Without a name: what became of a
    /// task that was in one.
    Granted {
        partition: String,
        what: String,
    },
    /// A write to the tree of files was refused, or what must be known of it.
    Refused {
        what: String,
    },
    /// Partitions are broken as fast as they are repaired.
    StormBegan {
        repairs: usize,
    },
    StormEnded,
    /// The machine could not be read, or the partitions not be changed.
    Failed {
        why: String,
    },
}

/// One event with what was noticed before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub at_ns: u64,
    pub event: Event,
    /// What was noticed first; a sweep where nothing was.
    pub cause: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { event, cause, .. } = self;
        match event {
            Event::Repaired { violation, after_ns } => {
                let ms = *after_ns as f64 / 1e6;
                write!(f, "{violation}: repaired {ms:.1} ms after the notice ({cause})")
            }
            Event::Ended { violation } => write!(f, "{violation}: ended by itself ({cause})"),
            Event::Stays { violation, cure } => {
                write!(f, "{violation}: could not be repaired ({cause}): {cure}")
            }
            Event::Entered { partition, task, command } => write!(
                f,
                "{partition}: task {task} ({command}) was moved in by another program ({cause})"
            ),
            Event::Told { what } | Event::Refused { what } => write!(f, "{what}"),
            Event::Granted { partition, what } if partition.is_empty() => write!(f, "{what}"),
            Event::Granted { partition, what } => write!(f, "{partition}: {what}"),
            Event::StormBegan { repairs } => write!(
                f,
                "a storm: {repairs} repairs in a short time; the next ones wait ({cause})"
            ),
            Event::StormEnded => write!(f, "the storm is over"),
            Event::Failed { why } => write!(f, "{why} ({cause})"),
        }
    }
}

/// Numbers since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub notices: u64,
    pub looks: u64,
    pub repairs: u64,
    pub violations: u64,
    pub repaired: u64,
    /// From the notices to the ends of the repairs, of all that was repaired.
    pub repair_us: u64,
    /// Violations that no notice announced, and a sweep found.
    pub found_by_sweep: u64,
    /// Tasks that other programs moved in.
    pub entered: u64,
}

/// A violation that is there.
#[derive(Debug, Clone)]
pub struct Open {
    /// When it was noticed first, and what was.
    pub since_ns: u64,
    pub cause: String,
    /// Repairs that left it.
    pub tries: u32,
    /// Those of them that were followed by a pause.
    pauses: u32,
    tried_at_ns: u64,
    again_at_ns: u64,
}

/// What is to be done after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Rest,
    Repair,
}

/// All that asmpd knows.
#[derive(Debug)]
pub struct Hold {
    pace: Pace,
    /// The first notice since the last look.
    noticed: Option<(u64, String)>,
    /// There was a notice since the last look, not only the end of a repair.
    is_told: bool,
    looked_at_ns: Option<u64>,
    /// Looks that failed, one after the other.
    failures: u32,
    /// Another asmp was changing partitions during the last look: what that saw may be half done.
    changing: bool,
    open: BTreeMap<Violation, Open>,
    /// When repairs were made, within a storm's time.
    repairs_at_ns: VecDeque<u64>,
    /// How long repairs pause, and until when; `None` without a storm.
    storm: Option<(u64, u64)>,
    pub counts: Counts,
    /// Violations that were repaired, by partition, of those that are there.
    repaired_of: BTreeMap<String, u64>,
    /// Partitions that were shared under the guarantee at the last look.
    shared: BTreeSet<String>,
    /// Since the last call of [`Hold::fresh`].
    fresh: Vec<Record>,
}

const SWEEP: &str = "found by a sweep";
const START: &str = "found at the start";
const AGAIN: &str = "found as another was tried again";
const MEANWHILE: &str = "found after a repair";

impl Hold {
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            noticed: None,
            is_told: false,
            looked_at_ns: None,
            failures: 0,
            changing: false,
            open: BTreeMap::new(),
            repairs_at_ns: VecDeque::new(),
            storm: None,
            counts: Counts::default(),
            repaired_of: BTreeMap::new(),
            shared: BTreeSet::new(),
            fresh: Vec::new(),
        }
    }

    /// Something may have changed. If several notices come before the next look, records name the
    /// first as the cause.
    pub fn notice(&mut self, now_ns: u64, cause: impl fmt::Display) {
        self.counts.notices += 1;
        self.is_told = true;
        if self.noticed.as_ref().is_none_or(|(_, cause)| cause == MEANWHILE) {
            self.noticed = Some((now_ns, cause.to_string()));
        }
    }

    /// The repair that has just ended changed a setting, or another program did. A violation that
    /// is still there may have been repaired and broken again.
    pub const fn changed(&mut self) {
        self.is_told = true;
    }

    /// When to look next, without a further notice.
    pub fn due_ns(&self) -> u64 {
        let Some(looked_at_ns) = self.looked_at_ns else { return 0 };
        let sweep_ns = looked_at_ns.saturating_add(self.pace.sweep_ns);
        if let Some(pauses) = self.failures.checked_sub(1) {
            return looked_at_ns.saturating_add(self.again_in_ns(pauses)).min(sweep_ns);
        }
        let noticed_ns = self.noticed.as_ref().map(|(at_ns, _)| at_ns + self.pace.settle_ns);
        let again_ns = self.open.values().map(|open| open.again_at_ns).min();
        // What pauses is not looked at meanwhile.
        let paused_ns = self.storm.map_or(0, |(_, until_ns)| until_ns);
        let wanted = [noticed_ns, again_ns].into_iter().flatten();
        wanted.map(|at_ns| at_ns.max(paused_ns)).chain([sweep_ns]).min().unwrap_or(sweep_ns)
    }

    /// What a look has found.
    pub fn looked(&mut self, now_ns: u64, status: &Status) -> Order {
        let (noticed_ns, cause) = self.cause(now_ns);
        self.counts.looks += 1;
        self.failures = 0;
        self.changing = status.changing;
        if status.changing {
            // A half-done change of another asmp is no violation. The next look waits for its end.
            self.noticed = Some((noticed_ns, cause));
            self.looked_at_ns = Some(now_ns);
            return Order::Rest;
        }
        let is_known = |name: &String| status.partitions.iter().any(|one| one.name == *name);
        self.repaired_of.retain(|name, _| is_known(name));
        let shared = status.partitions.iter().filter(|one| one.mode == Mode::Shared);
        self.shared = shared.map(|one| one.name.clone()).collect();
        let is_sweep = cause == SWEEP;
        let found = violations(status);
        let is_there = |violation: &Violation| found.iter().any(|(one, _)| one == violation);
        let ended: Vec<Violation> =
            self.open.keys().filter(|one| !is_there(one)).cloned().collect();
        for violation in ended {
            self.open.remove(&violation);
            self.record(now_ns, Event::Ended { violation }, &cause);
        }
        for (violation, _) in &found {
            if !self.open.contains_key(violation) {
                self.counts.violations += 1;
                self.counts.found_by_sweep += u64::from(is_sweep);
                let open = Open {
                    since_ns: noticed_ns,
                    cause: cause.clone(),
                    tries: 0,
                    pauses: 0,
                    tried_at_ns: now_ns,
                    again_at_ns: now_ns,
                };
                self.open.insert(violation.clone(), open);
            }
        }
        self.calm(now_ns);
        self.looked_at_ns = Some(now_ns);
        if std::mem::take(&mut self.is_told) {
            let [_, most_ns] = self.pace.pause_ns;
            for open in self.open.values_mut() {
                open.again_at_ns = open.again_at_ns.min(open.tried_at_ns.saturating_add(most_ns));
            }
        }
        let is_paused = self.storm.is_some_and(|(_, until_ns)| until_ns > now_ns);
        let is_due = self.open.values().any(|open| open.again_at_ns <= now_ns);
        if !is_paused && is_due { Order::Repair } else { Order::Rest }
    }

    /// The look could not be made. What was noticed is looked at later, and later again.
    pub fn blind(&mut self, now_ns: u64, why: impl fmt::Display) {
        let (noticed_ns, cause) = self.cause(now_ns);
        self.record(now_ns, Event::Failed { why: why.to_string() }, &cause);
        self.noticed = Some((noticed_ns, cause));
        self.looked_at_ns = Some(now_ns);
        self.failures = self.failures.saturating_add(1);
    }

    /// Some files cannot be followed: what is written to them only a sweep finds.
    pub fn half_blind(&mut self, now_ns: u64, why: impl fmt::Display) {
        let cause = "what is written there is found by a sweep";
        self.record(now_ns, Event::Failed { why: why.to_string() }, cause);
    }

    /// Another program has moved a task into a partition.
    pub fn entered(
        &mut self,
        now_ns: u64,
        partition: String,
        (task, command): (i32, String),
        by: &str,
    ) {
        self.counts.entered += 1;
        self.record(now_ns, Event::Entered { partition, task, command }, by);
    }

    /// Another program was told what to leave alone, or would not be.
    pub fn told(&mut self, now_ns: u64, what: String) {
        self.record(now_ns, Event::Told { what }, "");
    }

    /// A partition was made for a user, or ended.
    pub fn granted(&mut self, now_ns: u64, partition: String, what: String) {
        self.record(now_ns, Event::Granted { partition, what }, "");
    }

    /// A write to the tree of files was refused, or was made and more must be known.
    pub fn refused(&mut self, now_ns: u64, what: String) {
        self.record(now_ns, Event::Refused { what }, "");
    }

    /// A repair was made with so many changes, and the machine looked so afterwards.
    pub fn repaired(&mut self, now_ns: u64, status: &Status, changes: usize) {
        let left: BTreeMap<Violation, String> = violations(status).into_iter().collect();
        self.count_repair(now_ns);
        let open = std::mem::take(&mut self.open);
        for (violation, open) in open {
            let Some(cure) = left.get(&violation) else {
                self.counts.repaired += 1;
                if !violation.partition.is_empty() {
                    *self.repaired_of.entry(violation.partition.clone()).or_default() += 1;
                }
                let after_ns = now_ns.saturating_sub(open.since_ns);
                self.counts.repair_us += after_ns / 1000;
                self.record(now_ns, Event::Repaired { violation, after_ns }, &open.cause);
                continue;
            };
            self.keep(now_ns, violation, open, cure, changes > 0);
        }
        for one in status.partitions.iter().filter(|one| one.mode == Mode::Isolated) {
            if self.shared.remove(&one.name) {
                let name = &one.name;
                let what = format!("{name}: is isolated now, and classes are lost");
                self.told(now_ns, format!("{what}: `asmp mode {name} shared` shares it again"));
            }
        }
        self.look_again(now_ns);
    }

    /// The repair could not be made.
    pub fn unrepaired(&mut self, now_ns: u64, why: impl fmt::Display) {
        self.count_repair(now_ns);
        let why = why.to_string();
        for (violation, open) in std::mem::take(&mut self.open) {
            self.keep(now_ns, violation, open, &why, false);
        }
        self.look_again(now_ns);
    }

    /// What others did beside the repair is not told apart from what it wrote itself.
    fn look_again(&mut self, now_ns: u64) {
        self.looked_at_ns = Some(now_ns);
        self.noticed.get_or_insert_with(|| (now_ns, MEANWHILE.to_owned()));
    }

    /// In a line, for people: what is wrong now, and what was.
    pub fn summary(&self) -> String {
        let Counts { repaired, .. } = self.counts;
        let now = match self.open.len() {
            _ if self.is_blind() => "cannot look now: `asmp events` says why".to_owned(),
            _ if self.changing => "another asmp is changing partitions".to_owned(),
            0 => "every partition holds".to_owned(),
            1 => "1 violation now".to_owned(),
            many => format!("{many} violations now"),
        };
        let storm = if self.is_storming() { "; a storm: repairs wait" } else { "" };
        format!("{now}; {repaired} repaired{storm}")
    }

    /// Violations that are there now.
    pub fn open(&self) -> impl Iterator<Item = (&Violation, &Open)> {
        self.open.iter()
    }

    /// How many violations of each partition were repaired.
    pub const fn repaired_of(&self) -> &BTreeMap<String, u64> {
        &self.repaired_of
    }

    /// The last look failed: what is known is from before it.
    pub const fn is_blind(&self) -> bool {
        self.failures > 0
    }

    pub const fn is_storming(&self) -> bool {
        self.storm.is_some()
    }

    /// The records since the last call, the oldest first.
    pub fn fresh(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.fresh)
    }

    /// Of a look: since when, and why.
    fn cause(&mut self, now_ns: u64) -> (u64, String) {
        match (self.noticed.take(), self.looked_at_ns) {
            (Some(noticed), _) => noticed,
            (None, None) => (now_ns, START.to_owned()),
            (None, Some(at_ns)) if now_ns < at_ns.saturating_add(self.pace.sweep_ns) => {
                (now_ns, AGAIN.to_owned())
            }
            (None, Some(_)) => (now_ns, SWEEP.to_owned()),
        }
    }

    /// One that was not repaired, or broken again: tried again at once, or told, and tried again
    /// later and later.
    fn keep(
        &mut self,
        now_ns: u64,
        violation: Violation,
        open: Open,
        cure: &str,
        had_effect: bool,
    ) {
        let (mut pauses, mut again_at_ns) = (open.pauses, now_ns);
        if !had_effect || open.tries >= MOST_AT_ONCE {
            if pauses == 0 {
                let event = Event::Stays { violation: violation.clone(), cure: cure.to_owned() };
                self.record(now_ns, event, &open.cause);
            }
            again_at_ns = now_ns.saturating_add(self.again_in_ns(pauses));
            pauses += 1;
        }
        let (tries, tried_at_ns) = (open.tries + 1, now_ns);
        self.open.insert(violation, Open { tries, pauses, tried_at_ns, again_at_ns, ..open });
    }

    /// The pause before the next try, after so many.
    fn again_in_ns(&self, pauses: u32) -> u64 {
        let [first_ns, most_ns] = self.pace.again_ns;
        first_ns.saturating_mul(1 << pauses.min(32)).min(most_ns)
    }

    fn count_repair(&mut self, now_ns: u64) {
        self.counts.repairs += 1;
        self.repairs_at_ns.push_back(now_ns);
        self.forget_repairs(now_ns);
        let [first_ns, most_ns] = self.pace.pause_ns;
        let repairs = self.repairs_at_ns.len();
        let pause_ns = match self.storm {
            Some((pause_ns, _)) => pause_ns.saturating_mul(2).min(most_ns),
            None if repairs >= self.pace.storm_repairs => {
                let cause = "the last repairs came one after the other";
                self.record(now_ns, Event::StormBegan { repairs }, cause);
                first_ns
            }
            None => return,
        };
        self.storm = Some((pause_ns, now_ns.saturating_add(pause_ns)));
    }

    /// A storm is over when no repair was made for its time.
    fn calm(&mut self, now_ns: u64) {
        self.forget_repairs(now_ns);
        if self.storm.is_some() && self.repairs_at_ns.is_empty() {
            self.storm = None;
            self.record(now_ns, Event::StormEnded, "");
        }
    }

    fn forget_repairs(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.pace.storm_ns);
        while self.repairs_at_ns.front().is_some_and(|at_ns| *at_ns < since_ns) {
            self.repairs_at_ns.pop_front();
        }
    }

    fn record(&mut self, at_ns: u64, event: Event, cause: &str) {
        self.fresh.push(Record { at_ns, event, cause: cause.to_owned() });
    }
}

/// What violates a promise, with the cure in words.
pub fn violations(status: &Status) -> Vec<(Violation, String)> {
    let of = |partition: &str, what: &str| Violation {
        partition: partition.to_owned(),
        what: what.to_owned(),
    };
    let of_partitions = status.partitions.iter().flat_map(|partition| {
        let all = partition.violations.iter();
        all.map(|one| (of(&partition.name, &one.what), one.cure.clone()))
    });
    let left = status.left.iter().map(|one| (of("", &one.what), one.cure.clone()));
    let orphans = status.orphans.iter().map(|group| {
        let what = format!("{} has no state", group.display());
        (of("", &what), "`asmp restore` ends it".to_owned())
    });
    let interrupted = status.interrupted.then(|| {
        (of("", "a change was interrupted, and is not undone"), "`asmp restore`".to_owned())
    });
    of_partitions.chain(left).chain(orphans).chain(interrupted).collect()
}

#[cfg(test)]
#[path = "hold_tests.rs"]
pub(crate) mod tests;
