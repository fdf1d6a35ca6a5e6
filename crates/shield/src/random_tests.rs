// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random sequences of our requests and of other people's hands, against the fake machine.
//!
//! Problem:  who else changes a machine does so at any moment, and the cases that a person thinks
//!           of are few.
//! Approach: each seed gives a sequence with one to three kinds of hands ([`hands::Hand`]). After
//!           each request an oracle of its own ([`Run::judge`]) says whether the answer was true,
//!           and after a last `restore` whether the machine is as it was, up to what the hands did.
//!           A finding is shortened and given its class: what was wrong, and the hands it takes.
//!           Classes that are not mended yet stand in [`KNOWN`] and are printed with their counts.
//!
//! `ASMP_RANDOM_SEQUENCES=100000 cargo test -p asmp-shield random -- --nocapture` runs more of
//! them; `ASMP_RANDOM_SEED=7` begins elsewhere.

mod hands;
mod sequence;
mod steps;

use crate::fixture::REPAIR;
use crate::outcome::Outcome;
use crate::request::{Caller, Request};
use crate::shield::{ChangeError, Patience, Shield};
use crate::verify::Status;
use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_host::{Kernel, Schedule, task};
use hands::{BASE, Hand, Hands, MOUNT};
use sequence::{Dice, Event, hand, sequence, spec};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Findings that are not mended yet: what is wrong, a hand that it takes, the letter of its report.
const KNOWN: &[(&str, &str, &str)] = &[];

const SEQUENCES: u64 = 2000;
const KCOMPACTD: i32 = 30;
const TIDS: [i32; 13] = [1, 20, 21, 22, 23, 30, 31, 32, 100, 200, 201, 300, 400];

type Snapshot = BTreeMap<String, String>;

/// One machine from its start to its end.
struct Run {
    hands: Arc<Hands>,
    shield: Shield,
    _dir: tempfile::TempDir,
    untouched: Snapshot,
    /// Before the last change that could not be undone whole.
    before_undo: Option<Snapshot>,
    lost: bool,
    /// At the last loss our groups were there: they tell of it.
    told: bool,
    /// Nothing promises room for undoing: a hand took it within a request, or a change said so.
    may_be_full: bool,
    /// The hand of the last request has come.
    came: bool,
    /// What was wrong so far, and the words of its first time.
    wrong: BTreeMap<&'static str, String>,
}

/// What was wrong, and the words of it.
type Wrong = (&'static str, String);

impl Run {
    fn new(narrow: bool) -> Self {
        let fake = FakeKernel::new();
        fake.start_kernel_thread(32, "khugepaged", None);
        if narrow {
            fake.set_affinity(32, &"0-1".parse().unwrap()).unwrap();
        }
        fake.start(200, 200, "app", Schedule::Other { nice: 0 });
        fake.start(201, 200, "app-rt", Schedule::Fifo { priority: 80 });
        fake.start(300, 300, "tool", Schedule::Other { nice: 5 });
        fake.start(400, 400, "foreign", Schedule::Fifo { priority: 20 });
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::at(dir.path());
        let hands = Hands::new(fake, dir.path(), store.clone());
        let kernel = Arc::clone(&hands) as Arc<dyn Kernel>;
        let patience =
            Patience { lock: Duration::ZERO, tick: Duration::ZERO, busy: Duration::ZERO };
        let shield = Shield::new(kernel, store).with_patience(patience);
        let mut run = Self {
            hands,
            shield,
            _dir: dir,
            untouched: Snapshot::new(),
            before_undo: None,
            lost: false,
            told: false,
            may_be_full: false,
            came: false,
            wrong: BTreeMap::new(),
        };
        run.untouched = run.snapshot();
        run
    }

    /// Files and groups as the fake keeps them; tasks as others see them. Which offline CPUs
    /// kcompactd may have changes by itself with the next one that comes online.
    fn snapshot(&self) -> Snapshot {
        let mut all = self.hands.fake.snapshot();
        all.retain(|key, _| !key.starts_with("task "));
        for tid in TIDS {
            let Some(cpus) = self.hands.fake.allowed(tid) else { continue };
            let cpus = match tid {
                KCOMPACTD => cpus.intersection(&self.hands.fake.online()),
                _ => cpus,
            };
            let policy = self.hands.fake.schedule(tid);
            all.insert(format!("task {tid}"), format!("{} {cpus} {policy:?}", self.group(tid)));
        }
        all
    }

    fn group(&self, tid: i32) -> String {
        self.hands.fake.text(&Path::new("/proc").join(format!("{tid}/cgroup"))).unwrap_or_default()
    }

    fn changed(&self, before: &Snapshot) -> Vec<String> {
        let touched = self.hands.touched.lock().unwrap();
        let now = self.snapshot();
        let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        keys.into_iter()
            .filter(|key| before.get(*key) != now.get(*key) && !touched.contains(*key))
            .map(|key| format!("{key}: {:?} -> {:?}", before.get(key), now.get(key)))
            .collect()
    }

    fn note(&mut self, wrong: Wrong) {
        self.wrong.entry(wrong.0).or_insert(wrong.1);
    }

    /// `None`: killed, or a panic of ours.
    fn ask(&mut self, request: &Request) -> Option<Result<Outcome, ChangeError>> {
        let caller = Caller { time_s: 0, ..Caller::now(0, "root", "test") };
        match catch_unwind(AssertUnwindSafe(|| self.shield.change(request, &caller))) {
            Ok(answer) => Some(answer),
            Err(payload) => {
                if payload.downcast_ref::<&str>() != Some(&"killed") {
                    self.note(("a panic", format!("{request:?}")));
                }
                None
            }
        }
    }

    fn happen(&mut self, event: &Event) {
        let request = match event {
            Event::By(hand) => {
                if *hand == Hand::LoseState {
                    (self.lost, self.may_be_full) = (true, true);
                    self.told = self.hands.fake.is_marked(Path::new(BASE));
                }
                self.hands.act(hand);
                return self.judge_status();
            }
            Event::Ask(request) => {
                self.hands.wait(0, None);
                request
            }
            Event::Disturbed(request, at, hand) => {
                if *hand == Hand::LoseState {
                    (self.lost, self.told) = (true, false);
                }
                self.may_be_full |= matches!(hand, Hand::LoseState | Hand::Room(_));
                self.hands.wait(*at, Some(hand.clone()));
                request
            }
        };
        let before = self.snapshot();
        let interrupted = self.shield.is_interrupted().unwrap_or(true);
        let answer = self.ask(request);
        let came = self.hands.wait(0, None) && matches!(event, Event::Disturbed(..));
        self.came = came;
        let _ = std::fs::remove_dir(self.hands.dir.join("state.json.new"));
        self.may_be_full |= matches!(&answer, Some(Ok(outcome)) if outcome.no_room.is_some());
        let by_refusal = matches!(event, Event::Disturbed(_, _, Hand::Refuse(_)));
        match answer {
            None => return,
            Some(Err(error)) if matches!(error.cause(), ChangeError::NotUndone { .. }) => {
                if !interrupted {
                    self.before_undo = Some(before);
                }
                return;
            }
            Some(Ok(outcome)) => match request {
                Request::Repair { .. } if outcome.status.as_ref().is_some_and(Status::holds) => {
                    self.judge_repair()
                }
                // A refusal changes nothing by itself: what is claimed all the same is judged.
                _ if came && !by_refusal => {}
                _ if outcome.violated(request).is_empty() => {
                    self.judge_change(request);
                    self.judge_end(request);
                }
                // What refused once is no more in the way of a repair.
                _ if came => {}
                _ => self.judge_broken(request, true),
            },
            // What a hand of another changed meanwhile is not known here.
            Some(Err(_)) if interrupted || (came && !by_refusal) => {}
            Some(Err(error)) => {
                let changed = self.changed(&before);
                if !changed.is_empty() {
                    let words = format!("{request:?}: {error}: {changed:?}");
                    self.note(("a command failed and changed something", words));
                }
                if matches!(error, ChangeError::Undone { .. }) && !came {
                    self.judge_broken(request, false);
                }
            }
        }
        self.judge_status();
    }

    /// Does `status` agree with a repair that claims success?
    fn judge_repair(&mut self) {
        let Ok(status) = self.shield.status() else { return };
        if !status.holds() {
            let findings = status.partitions.iter().flat_map(|partition| &partition.violations);
            let words: Vec<_> = findings.map(|finding| &finding.what).collect();
            self.note(("repair claims what status denies", format!("{words:?}")));
        }
    }

    /// Does `status` agree with a change that claims to have given a partition its CPUs?
    fn judge_change(&mut self, request: &Request) {
        let name = match request {
            Request::Create { name, .. }
            | Request::Run { name, .. }
            | Request::Resize { name, .. } => name,
            Request::Apply { declaration } => &declaration.partitions[0].name,
            _ => return,
        };
        let Ok(status) = self.shield.status() else { return };
        let kept = status.partitions.iter().any(|one| one.name == *name && one.shielded);
        if !kept {
            self.note(("a change claims what status denies", format!("{request:?}: {status:#?}")));
        }
    }

    /// Is a partition gone whose end was claimed?
    fn judge_end(&mut self, request: &Request) {
        let (Request::EndRun { name, .. } | Request::Destroy { name: Some(name), .. }) = request
        else {
            return;
        };
        if self.shield.state().is_ok_and(|state| state.partition(name).is_ok()) {
            self.note(("an end leaves its partition", format!("{request:?}")));
        }
    }

    /// A change left a partition violated (`made`) or failed. Does it do better after a repair?
    fn judge_broken(&mut self, request: &Request, made: bool) {
        let repaired = request.is_repair().then(|| self.ask(&REPAIR)).flatten();
        let Some(Ok(outcome)) = repaired else { return };
        let (words, mended) = (format!("{request:?}"), outcome.violated(&REPAIR).is_empty());
        if mended && made {
            self.note(("a change leaves what a repair mends", words));
        } else if mended && self.ask(request).is_some_and(|answer| answer.is_ok()) {
            self.note(("a change fails where it succeeds after a repair", words));
        }
    }

    /// Is what `status` says true?
    fn judge_status(&mut self) {
        let Ok(status) = self.shield.status() else { return };
        self.untold(&status).into_iter().for_each(|wrong| self.note(wrong));
    }

    /// What breaks a partition that `status` calls shielded.
    fn untold(&self, status: &Status) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let Ok(state) = self.shield.state() else { return wrong };
        let isolated = self.hands.fake.isolated();
        for partition in status.partitions.iter().filter(|partition| partition.shielded) {
            let name = &partition.name;
            let shielded = partition.cpus.union(&partition.idle_cpus);
            if !shielded.difference(&isolated).is_empty() {
                let words = format!("{name} has CPU {shielded}, isolated are {isolated}");
                wrong.push(("status calls shielded what is not isolated", words));
            }
            let inside = format!("0::/asmp/{name}/");
            let outsiders = TIDS.into_iter().filter(|tid| !self.group(*tid).starts_with(&inside));
            for tid in outsiders.filter(|tid| *tid >= 30) {
                if self.hands.fake.allowed(tid).is_some_and(|cpus| cpus.intersects(&shielded)) {
                    let words = format!("task {tid} in {} on {name}'s CPU", self.group(tid));
                    wrong.push(("status is silent about a task on shielded CPUs", words));
                }
            }
            let groups = Path::new(BASE).join(name);
            let below = self.hands.fake.list(&groups.join("rt")).unwrap_or_default();
            if !below.is_empty() && partition.sub_groups.is_empty() {
                wrong.push(("status is silent about a sub-group", format!("{name}: {below:?}")));
            }
            let members = state.partition(name).map(|one| one.tasks.clone()).unwrap_or_default();
            for member in members {
                let tid = member.task.tid;
                let lives = task::identify(&*self.hands, tid) == Some(member.task);
                if lives && !self.group(tid).starts_with(&inside) {
                    let words = format!("task {tid} of {name} is in {}", self.group(tid));
                    wrong.push(("status is silent about a member outside", words));
                }
            }
        }
        wrong
    }

    /// Is nothing left but what is above a group of another program, and is that named? Then the
    /// other program takes it away.
    fn keeps_theirs(&mut self, answer: &Option<Result<Outcome, ChangeError>>) -> bool {
        let left = match answer {
            Some(Err(error)) => match error.cause() {
                ChangeError::NotUndone { left, .. } => left.clone(),
                _ => return false,
            },
            Some(Ok(outcome)) => outcome.left.iter().map(ToString::to_string).collect(),
            None => return false,
        };
        let fake = &self.hands.fake;
        let groups = ["a", "b"].map(|name| Path::new(BASE).join(name));
        let mut theirs = groups.iter().filter(|group| fake.exists(group) && !fake.is_marked(group));
        let Some(group) = theirs.next() else { return false };
        if !left.iter().any(|left| left.contains(&*group.to_string_lossy())) {
            return false;
        }
        let above = ["group /:", "group /asmp:", "group /asmp/"];
        // What earlier changes have set waits for the undo of the last.
        let is_undone = answer.as_ref().is_some_and(|answer| answer.is_ok());
        let since = self.before_undo.as_ref().filter(|_| !is_undone);
        let changed = self.changed(since.unwrap_or(&self.untouched));
        let is_above = |line: &String| above.iter().any(|above| line.starts_with(above));
        let wrong = !self.lost && !changed.iter().all(is_above);
        for group in [group].into_iter().chain(theirs) {
            let _ = fake.write(&Path::new(MOUNT).join("cgroup.procs"), b"400");
            fake.remove_dir(group).expect("an empty group");
        }
        if wrong {
            self.note(("restore leaves more than a group of others needs", format!("{changed:?}")));
        }
        true
    }

    /// The last `restore`, with all CPUs online again.
    fn end(&mut self) {
        for cpu in [2, 3] {
            self.hands.act(&Hand::Online(cpu));
        }
        self.hands.wait(0, None);
        // What it names as left it does not claim.
        let mut answer = self.ask(&Request::Restore { abandon: false });
        // Refused until there is room again.
        let is_full = |error: &ChangeError| error.to_string().contains("No space left");
        let refused = answer.as_ref().is_some_and(|answer| answer.as_ref().is_err_and(is_full));
        if refused && self.may_be_full {
            self.hands.store.limit_room(None);
            answer = self.ask(&Request::Restore { abandon: false });
        }
        if self.keeps_theirs(&answer) {
            answer = self.ask(&Request::Restore { abandon: false });
        }
        let (left, unknown) = match answer {
            Some(Err(error)) => return self.note(("restore refuses", error.to_string())),
            Some(Ok(outcome)) => (outcome.left, outcome.unknown_originals),
            None => Default::default(),
        };
        if !unknown.is_empty() && !self.lost {
            self.note(("restore claims that originals are lost", format!("{unknown:?}")));
        }
        let changed = self.changed(&self.untouched);
        let (groups, mut settings): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|line| line.starts_with("group /"));
        if self.lost {
            // No file keeps the originals any more; what the kernel shows as ours must be gone.
            if self.told && unknown.is_empty() && !settings.is_empty() {
                self.note(("restore is silent about lost originals", format!("{settings:?}")));
            }
            settings.clear();
        }
        let of_root = |line: &String| line.starts_with("group /:");
        if left.iter().any(|left| left.what.starts_with(MOUNT)) {
            // Groups, which it names.
        } else if !groups.iter().all(of_root) {
            self.note(("restore leaves groups and claims success", format!("{groups:?}")));
        } else if !groups.is_empty() && !self.lost {
            self.note(("restore leaves the root's controllers", format!("{groups:?}")));
        }
        let (tasks, files): (Vec<_>, Vec<_>) =
            settings.into_iter().partition(|line| line.starts_with("task "));
        if !tasks.is_empty() {
            self.note(("restore leaves tasks changed and claims success", format!("{tasks:?}")));
        }
        if !files.is_empty() {
            self.note(("restore leaves settings and claims success", format!("{files:?}")));
        }
    }
}

fn run(events: &[Event]) -> BTreeMap<&'static str, String> {
    let narrow = events.iter().any(|event| event.hand() == Some(&Hand::Narrow));
    let mut run = Run::new(narrow);
    events.iter().for_each(|event| run.happen(event));
    run.end();
    run.wrong
}

/// The same finding with as few events as possible.
fn shortened(mut events: Vec<Event>, kind: &str) -> (Vec<Event>, String) {
    let fails = |events: &[Event]| run(events).remove(kind);
    let mut words = fails(&events).unwrap_or_default();
    loop {
        let before = events.len();
        let mut at = 0;
        while at < events.len() {
            let mut fewer = events.clone();
            fewer.remove(at);
            let plain = match &events[at] {
                Event::Disturbed(request, ..) => Some(Event::Ask(request.clone())),
                _ => None,
            };
            if let Some(found) = fails(&fewer) {
                (events, words) = (fewer, found);
                continue;
            }
            if let Some(plain) = plain {
                let mut calmer = events.clone();
                calmer[at] = plain;
                if let Some(found) = fails(&calmer) {
                    (events, words) = (calmer, found);
                }
            }
            at += 1;
        }
        if events.len() == before {
            return (events, words);
        }
    }
}

fn kinds_of(events: &[Event]) -> BTreeSet<&'static str> {
    events.iter().filter_map(|event| Some(event.hand()?.kind())).collect()
}

fn known(kind: &str, hands: &BTreeSet<&str>) -> Option<&'static str> {
    let mut known = KNOWN.iter().filter(|(wrong, hand, _)| {
        *wrong == kind && (hands.contains(hand) || (hand.is_empty() && hands.is_empty()))
    });
    known.next().map(|(_, _, letter)| *letter)
}

/// Findings of one kind that take the same hands.
struct Class {
    count: u64,
    seed: u64,
    events: Vec<Event>,
    words: String,
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

#[test]
fn random_hands_between_and_inside_our_requests() {
    let first = number("ASMP_RANDOM_SEED", 0);
    let mut classes: BTreeMap<(&str, BTreeSet<&str>), Class> = BTreeMap::new();
    // By what is wrong and the hands of the whole sequence.
    let mut seen = BTreeMap::new();
    for seed in first..first + number("ASMP_RANDOM_SEQUENCES", SEQUENCES) {
        let events = sequence(seed);
        for kind in run(&events).into_keys() {
            let whole = kinds_of(&events);
            // With these hands it was shortened already, or with some of them.
            let smaller = |(other, hands): &&(&str, BTreeSet<&str>)| {
                *other == kind && !hands.is_empty() && hands.is_subset(&whole)
            };
            let same = seen.get(&(kind, whole.clone())).cloned();
            if let Some(class) = same.or_else(|| classes.keys().find(smaller).cloned()) {
                classes.get_mut(&class).unwrap().count += 1;
                continue;
            }
            let (events, words) = shortened(events.clone(), kind);
            let hands = kinds_of(&events);
            seen.insert((kind, whole), (kind, hands.clone()));
            let new = Class { count: 0, seed, events, words };
            classes.entry((kind, hands)).or_insert(new).count += 1;
        }
    }
    let mut unknown = 0;
    for ((kind, hands), Class { count, seed, events, words }) in &classes {
        let letter = known(kind, hands);
        unknown += usize::from(letter.is_none());
        println!("{count} x {kind}, hands {hands:?}: {}", letter.unwrap_or("NOT KNOWN"));
        println!("  seed {seed}:");
        events.iter().for_each(|event| println!("    {event:?}"));
        println!("    -> {words}");
    }
    assert_eq!(unknown, 0, "classes that are not known, each with its shortest sequence above");
}

#[test]
fn the_kinds_of_hands_have_their_names() {
    let mut dice = Dice::new(1);
    for kind in Hand::KINDS {
        for _ in 0..20 {
            assert_eq!(hand(&mut dice, kind).kind(), kind);
        }
    }
}
