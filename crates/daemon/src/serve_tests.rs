// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partitions of a machine in memory, held while another program changes it.

use super::*;
use crate::hold::{Counts, Event};
use asmp_host::fake::FakeKernel;
use asmp_host::peer::Peer;
use asmp_host::store::Store;
use asmp_host::{CpuSpec, Kernel, Schedule};
use asmp_shield::{Grant, Members, Spec};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// What another program does before something is noticed, and what is noticed.
type Hand = Box<dyn FnOnce(&FakeKernel) -> Vec<Notice>>;

thread_local! {
    /// Whom advice is for does not listen, once.
    static IS_DEAF: Cell<bool> = const { Cell::new(false) };
}

/// A source whose notices come from a script. Its clock goes on as it waits.
struct Script {
    kernel: Arc<FakeKernel>,
    hands: std::vec::IntoIter<Hand>,
    now_ns: u64,
    followed: Vec<BTreeSet<PathBuf>>,
    tasks: BTreeSet<i32>,
    /// All that were followed.
    processes: BTreeSet<TaskId>,
    /// All that have partitions.
    users: BTreeSet<u32>,
    groups: BTreeSet<PathBuf>,
    looks: u64,
    advised: u64,
    again_ns: Option<u64>,
    sweeps_left: usize,
    events: Vec<Event>,
    /// A file that cannot be followed.
    refused: Option<&'static str>,
    /// What clients want once the last hand was at work.
    works: std::vec::IntoIter<(u64, Work)>,
    replies: Vec<(u64, Result<Value, Refused>)>,
}

impl Source for Script {
    fn follow(&mut self, files: &BTreeSet<PathBuf>) -> Vec<(PathBuf, io::Error)> {
        self.followed.push(files.clone());
        let refused = files.iter().find(|file| Some(file.as_path()) == self.refused.map(Path::new));
        refused.map(|file| (file.clone(), io::Error::other("no room"))).into_iter().collect()
    }

    fn follow_tasks(&mut self, tasks: BTreeSet<i32>) {
        self.tasks = tasks;
    }

    fn note_users(&mut self, users: BTreeSet<u32>) {
        self.users.extend(users);
    }

    fn follow_processes(&mut self, processes: &BTreeSet<TaskId>) {
        self.processes.extend(processes);
    }

    fn follow_groups(&mut self, groups: BTreeSet<PathBuf>) {
        self.groups = groups;
    }

    fn wait(&mut self, most: Duration) -> Result<BTreeSet<Notice>, String> {
        // What is due soon comes before the next hand, and a sweep after the last one.
        let hand = if most < Duration::from_secs(1) { None } else { self.hands.next() };
        if let Some(hand) = hand {
            self.now_ns += 1_000_000;
            return Ok(hand(&self.kernel).into_iter().collect());
        }
        self.now_ns += most.as_nanos() as u64;
        self.sweeps_left -= usize::from(most >= Duration::from_secs(1));
        Ok(BTreeSet::new())
    }

    fn advise(&mut self, status: &Status) -> Option<String> {
        assert!(status.holds(), "a repair comes first");
        self.advised += 1;
        self.again_ns = IS_DEAF.take().then_some(self.now_ns + 2_000_000_000);
        None
    }

    fn advise_again_ns(&self) -> Option<u64> {
        self.again_ns
    }

    fn work(&mut self) -> Option<(u64, Work)> {
        if self.hands.len() == 0 { self.works.next() } else { None }
    }

    fn reply(&mut self, client: u64, reply: Result<Value, Refused>) {
        self.replies.push((client, reply));
    }

    fn looked(&mut self, hold: &Hold) {
        self.looks = hold.counts.looks;
    }

    fn tell(&mut self, record: &Record) {
        self.events.push(record.event.clone());
    }

    fn show(&mut self, hold: &Hold) {
        assert_eq!(self.looks, hold.counts.looks, "what is shown is what was found last");
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn now_s(&self) -> u64 {
        1_700_000_000 + self.now_ns / 1_000_000_000
    }

    fn is_over(&self) -> bool {
        self.sweeps_left == 0
    }
}

const CPUS: &str = "3";

fn held(hands: Vec<Hand>) -> (Shield, Script, Counts, Vec<Event>) {
    held_without(None, hands, Vec::new())
}

/// Partition `motion` of CPU 3 with process 200 inside, held while these hands are at work.
fn held_without(
    refused: Option<&'static str>,
    hands: Vec<Hand>,
    works: Vec<(u64, Work)>,
) -> (Shield, Script, Counts, Vec<Event>) {
    held_on(Arc::new(FakeKernel::new()), refused, hands, works)
}

fn held_on(
    kernel: Arc<FakeKernel>,
    refused: Option<&'static str>,
    hands: Vec<Hand>,
    works: Vec<(u64, Work)>,
) -> (Shield, Script, Counts, Vec<Event>) {
    kernel.start(200, 200, "app", Schedule::Other { nice: 0 });
    kernel.start(300, 300, "of-user", Schedule::Other { nice: 0 });
    kernel.edit(300, |task| (task.uid, task.other_uids) = (1000, 1000));
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = Store::at(dir.keep());
    let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, store);
    let cpus: CpuSpec = CPUS.parse().unwrap();
    let name = || "motion".to_owned();
    for request in [
        Request::Create { name: name(), spec: Spec::of(cpus) },
        Request::Add {
            name: name(),
            members: Members { pids: vec![200], force: true, ..Members::default() },
        },
    ] {
        shield.change(&request, &Caller::now(0, "root", "test")).unwrap();
    }
    assert!(shield.status().unwrap().holds());
    let hands = hands.into_iter();
    let (followed, tasks, groups) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (now_ns, looks, advised, sweeps_left, events) = (0, 0, 0, 1, Vec::new());
    let mut script = Script {
        kernel,
        hands,
        now_ns,
        followed,
        tasks,
        processes: BTreeSet::new(),
        users: BTreeSet::new(),
        groups,
        looks,
        advised,
        sweeps_left,
        events,
        refused,
        again_ns: None,
        works: works.into_iter(),
        replies: Vec::new(),
    };
    let counts = serve(&shield, &mut script, Pace::default()).unwrap().counts;
    let events = std::mem::take(&mut script.events);
    assert_eq!(script.looks, counts.looks, "each look is told");
    (shield, script, counts, events)
}

fn writes(path: &'static str, text: &'static str) -> Hand {
    Box::new(move |kernel| {
        kernel.write(Path::new(path), text.as_bytes()).unwrap();
        vec![Notice::Written(path.into())]
    })
}

const LINE_DIR: &str = "/proc/irq/24";
const LINE: &str = "/proc/irq/24/smp_affinity_list";

#[test]
fn what_another_program_writes_is_repaired_and_told_with_its_cause() {
    let (shield, script, counts, events) = held(vec![
        writes(LINE, "3"),
        writes("/sys/fs/cgroup/asmp/motion/rt/cpuset.cpus.partition", "member"),
        Box::new(|kernel| {
            kernel.write(Path::new("/sys/fs/cgroup/cgroup.procs"), b"200").unwrap();
            vec![Notice::Moved(200)]
        }),
    ]);
    assert!(shield.status().unwrap().holds());
    assert_eq!((counts.repaired, counts.repairs), (counts.violations, 3), "{events:#?}");
    let repaired: Vec<String> = events
        .iter()
        .map(|event| match event {
            Event::Repaired { violation, .. } => violation.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    // A partition that is none lets other tasks onto its CPUs: each is named.
    for words in ["IRQ 24 (eth0)", "the kernel says \"member\"", "process 200 (app) is a member"] {
        let found = repaired.iter().any(|one| one.starts_with("motion: ") && one.contains(words));
        assert!(found, "{words}: {repaired:#?}");
    }
    assert_eq!(script.tasks, BTreeSet::from([200]));
    assert_eq!(script.advised, counts.looks);
    let files = &script.followed[0];
    for file in ["/proc/irq/24", "/proc/irq/default_smp_affinity"] {
        assert!(files.contains(Path::new(file)), "{file}: {files:#?}");
    }
    assert!(!files.contains(Path::new(LINE)), "it is told of by its directory");
}

#[test]
fn files_are_chosen_again_with_a_device_or_a_link_and_not_with_each_write() {
    let tells = |notice: Notice| -> Hand { Box::new(move |_| vec![notice]) };
    let chosen = |notices: Vec<Notice>| {
        let (_, script, _, _) = held(notices.into_iter().map(tells).collect());
        script.followed.len()
    };
    assert_eq!(chosen(vec![Notice::Written(LINE.into()), Notice::Moved(200)]), 1);
    let cpu = Notice::Device("online cpu devices/system/cpu/cpu3".to_owned());
    let gone = Notice::Gone("/sys/fs/cgroup/asmp/motion/rt".into());
    for notice in [cpu, gone, Notice::Link, Notice::Resumed, Notice::Lost] {
        assert_eq!(chosen(vec![notice.clone()]), 2, "{notice}");
    }
}

#[test]
fn a_task_that_another_program_moves_in_is_named_and_a_member_is_not() {
    let group = PathBuf::from("/asmp/motion/rt");
    let enters = |tid: i32| {
        let (group, by) = (group.clone(), "bash-301".to_owned());
        Notice::Entered(Entered { group, tid, by })
    };
    let notices = [200, 300, 400].map(enters);
    let (_, script, counts, events) = held(vec![Box::new(move |kernel| {
        kernel.start(300, 300, "guest", Schedule::Other { nice: 0 });
        let procs = Path::new("/sys/fs/cgroup/asmp/motion/rt/cgroup.procs");
        kernel.write(procs, b"300").unwrap();
        notices.to_vec()
    })]);
    assert_eq!(script.groups, BTreeSet::from([group]));
    let [partition, command] = ["motion", "guest"].map(str::to_owned);
    let entered = Event::Entered { partition, task: 300, command };
    assert_eq!(events, [entered], "400 has ended, 200 is a member");
    assert_eq!((counts.entered, counts.violations), (1, 0));
}

/// A real-time task that has the mark of asmpd, taken to the root group. Before the next sweep it
/// has the policy `expected`.
fn taken_out(notices: Vec<Notice>, expected: Schedule) -> (Script, Counts, Vec<Event>) {
    let take: Hand = Box::new(move |kernel| {
        kernel.start(500, 500, "taken", Schedule::Fifo { priority: 9 });
        asmp_host::rttime::mark(kernel, 500).unwrap();
        notices
    });
    let look: Hand = Box::new(move |kernel| {
        assert_eq!(kernel.schedule(500).unwrap(), expected);
        Vec::new()
    });
    let (_, script, counts, events) = held(vec![take, look]);
    (script, counts, events)
}

#[test]
fn a_task_that_is_taken_out_loses_its_policy_without_a_look() {
    let notice = Notice::TakenOut(TakenOut { group: "/".into(), tid: 500 });
    let (script, counts, events) = taken_out(vec![notice], Schedule::Other { nice: 0 });
    assert_eq!(script.kernel.schedule(500).unwrap(), Schedule::Other { nice: 0 });
    let what = "task 500 (taken) was taken out to /: SCHED_OTHER now, it was fifo:9".to_owned();
    assert_eq!(events, [Event::Granted { partition: String::new(), what }]);
    // One at the start, and a sweep.
    assert_eq!((counts.looks, counts.notices), (2, 0));
}

#[test]
fn where_notices_were_lost_tasks_that_were_taken_out_are_sought() {
    let now = |notices, expected| {
        let (script, _, events) = taken_out(notices, expected);
        assert_eq!(script.kernel.schedule(500).unwrap(), Schedule::Other { nice: 0 });
        assert_eq!(events.len(), 1, "{events:?}");
    };
    now(vec![Notice::Lost], Schedule::Other { nice: 0 });
    // The kernel has told nothing: the sweep finds it.
    now(Vec::new(), Schedule::Fifo { priority: 9 });
}

#[test]
fn at_the_start_tasks_that_were_taken_out_are_sought() {
    let kernel = Arc::new(FakeKernel::new());
    kernel.start(500, 500, "taken", Schedule::Fifo { priority: 9 });
    asmp_host::rttime::mark(&*kernel, 500).unwrap();
    let (_, script, _, events) = held_on(kernel, None, Vec::new(), Vec::new());
    assert_eq!(script.kernel.schedule(500).unwrap(), Schedule::Other { nice: 0 });
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
fn what_nothing_tells_is_found_by_the_sweep() {
    let silent: Hand = Box::new(|kernel| {
        kernel.write(Path::new(LINE), b"3").unwrap();
        Vec::new()
    });
    let (shield, _, counts, events) = held(vec![silent]);
    assert!(shield.status().unwrap().holds());
    assert_eq!((counts.repaired, counts.found_by_sweep), (1, 1), "{events:?}");
}

#[test]
fn advice_that_met_no_ear_is_given_again_before_the_sweep() {
    let (_, script, counts, _) = held(Vec::new());
    assert_eq!((script.advised, script.now_ns), (counts.looks, Pace::default().sweep_ns));
    IS_DEAF.set(true);
    let (_, script, counts, _) = held(Vec::new());
    assert_eq!((script.advised, counts.looks, script.now_ns), (2, 2, 2_000_000_000));
}

#[test]
fn files_that_cannot_be_followed_are_told() {
    let (_, _, _, events) =
        held_without(Some(LINE_DIR), vec![Box::new(|_| Vec::new())], Vec::new());
    let why = format!("files that cannot be followed: 1, such as {LINE_DIR}: no room");
    assert_eq!(events, [Event::Failed { why }]);
}

#[test]
fn a_partition_that_a_command_ends_is_let_go() {
    let (shield, script, counts, events) = held(vec![Box::new(|_| Vec::new())]);
    assert_eq!((counts.violations, events), (0, Vec::new()));
    let request = Request::Destroy { name: None, demote: true };
    shield.change(&request, &Caller::now(0, "root", "test")).unwrap();
    let files = shield.watched().unwrap().files;
    assert_eq!(files.len(), 1, "only the directory of the state: {files:?}");
    assert!(script.followed[0].len() > files.len());
}

#[test]
fn a_client_gets_its_partition_after_what_is_broken_is_repaired_and_until_its_time_is_over() {
    let grant = Grant {
        uid: 1000,
        cpus: "2".parse().unwrap(),
        policy: Schedule::Other { nice: 0 },
        partitions: 1,
        until_s: Some(1_700_000_005),
    };
    let work = Work::Run {
        peer: Peer { pid: 300, uid: 1000, groups: BTreeSet::new() },
        name: "run-1".to_owned(),
        spec: Box::new(Spec::of("2".parse().unwrap())),
        grants: vec![grant],
        policy: Schedule::Other { nice: 0 },
        command: "app".to_owned(),
    };
    let (shield, script, counts, events) =
        held_without(None, vec![writes(LINE, "3")], vec![(7, work)]);
    let words: Vec<String> = events
        .iter()
        .map(|event| match event {
            Event::Repaired { violation, .. } => violation.to_string(),
            Event::Granted { partition, what } => format!("{partition}: {what}"),
            other => panic!("{other:?}"),
        })
        .collect();
    let [line, made, ended] = &words[..] else { panic!("{words:#?}") };
    assert!(line.starts_with("motion: ") && line.contains("IRQ 24 (eth0)"), "{line}");
    assert_eq!(made, "run-1: made for user 1000: CPU 2, at most other");
    assert_eq!(ended, "run-1: ended: its time is over");
    let followed: Vec<i32> = script.processes.iter().map(|one| one.tid).collect();
    assert_eq!(followed, [300], "the partition ends with its process");
    assert_eq!(script.users, BTreeSet::from([1000]), "they are no strangers after a restart");
    let (client, reply) = &script.replies[0];
    assert_eq!((*client, reply.as_ref().unwrap()["cpus"].as_str()), (7, Some("2")));
    assert_eq!(
        (counts.repaired, shield.state().unwrap().known_names()),
        (1, "known are: motion".to_owned())
    );
}
