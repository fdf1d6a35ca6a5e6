// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What users ask for, on a machine in memory: whose process comes in, and how a partition ends.

use super::*;
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::sched::TimeLimits;
use asmp_host::store::Store;
use asmp_host::{CpuSet, Spinner};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const USER: u32 = 1000;
const FIFO_50: Schedule = Schedule::Fifo { priority: 50 };
const OTHER: Schedule = Schedule::Other { nice: 0 };

/// A machine where process 200 asked for partition `run-1` of CPU 3 as client 1, and has process
/// 300 of the same user.
struct Machine {
    kernel: Arc<FakeKernel>,
    shield: Shield,
    users: Users,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn empty() -> Self {
        let kernel = Arc::new(FakeKernel::new());
        for pid in [200, 300, 400] {
            kernel.start(pid, pid, "app", OTHER);
        }
        for pid in [200, 300] {
            kernel.edit(pid, |task| (task.uid, task.other_uids) = (USER, USER));
        }
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
        Self { kernel, shield, users: Users::default(), _dir: dir }
    }

    fn new() -> Self {
        let mut machine = Self::empty();
        let done = machine.run(1, "run-1", Some(1_000));
        assert_eq!(done.reply.unwrap().unwrap()["cpus"], "3");
        machine
    }

    fn run(&mut self, client: u64, name: &str, until_s: Option<u64>) -> Done {
        self.run_of(peer(200, USER), client, name, until_s)
    }

    /// As client 9, `run-1` with process 500, which is this user's.
    fn run_of_another(&mut self, uid: u32, until_s: Option<u64>) -> Done {
        self.kernel.start(500, 500, "app", OTHER);
        self.kernel.edit(500, |task| (task.uid, task.other_uids) = (uid, uid));
        self.run_of(peer(500, uid), 9, "run-1", until_s)
    }

    fn run_of(&mut self, peer: Peer, client: u64, name: &str, until_s: Option<u64>) -> Done {
        let (cpus, policy, partitions) = ("3".parse().unwrap(), FIFO_50, 1);
        let grants = vec![Grant { uid: peer.uid, cpus, policy, partitions, until_s }];
        let spec = Box::new(Spec::of("3".parse().unwrap()));
        let (name, command) = (name.to_owned(), "app".to_owned());
        let work = Work::Run { peer, name, spec, grants, policy, command };
        self.users.carry_out(&self.shield, client, work)
    }

    fn enter(&mut self, peer: Peer, policy: Schedule) -> Result<(), Refused> {
        let (name, command) = ("run-1".to_owned(), "app".to_owned());
        let work = Work::Enter { peer, name, policy, command };
        let done = self.users.carry_out(&self.shield, 2, work);
        assert!(done.told.is_empty());
        done.reply.unwrap().map(drop)
    }

    fn end(&mut self, uid: u32) -> Done {
        let work = Work::End { peer: peer(200, uid), name: "run-1".to_owned() };
        self.users.carry_out(&self.shield, 1, work)
    }

    fn names(&self) -> String {
        self.shield.state().unwrap().known_names()
    }

    fn is_as_it_was(&self) -> bool {
        self.names() == "there are none" && self.kernel.isolated().is_empty()
    }
}

fn peer(pid: i32, uid: u32) -> Peer {
    Peer { pid, uid, groups: [100].into() }
}

fn words(told: &[Told]) -> Vec<String> {
    told.iter().map(|one| format!("{}: {}", one.partition, one.what)).collect()
}

#[test]
fn a_user_gets_a_partition_enters_it_and_ends_it() {
    let mut machine = Machine::new();
    machine.enter(peer(300, USER), FIFO_50).unwrap();
    let task = machine.kernel.task(300).unwrap();
    assert_eq!((task.schedule, machine.kernel.allowed(300)), (FIFO_50, "3".parse().ok()));
    assert!(machine.shield.status().unwrap().holds());
    let done = machine.end(USER);
    assert_eq!(words(&done.told), ["run-1: ended: its user is done"]);
    let notes = done.reply.unwrap().unwrap()["notes"].to_string();
    assert!(notes.contains("left run-1 as SCHED_OTHER; it was fifo:50"), "{notes}");
    assert_eq!(machine.kernel.task(300).unwrap().schedule, OTHER);
    assert!(machine.is_as_it_was());
}

#[test]
fn only_a_process_with_the_users_ids_and_no_others_comes_in() {
    let mut machine = Machine::new();
    // Of another user, though the kernel noted this number for ours: it was used again.
    assert_eq!(machine.enter(peer(400, USER), FIFO_50).unwrap_err().code, 29);
    // One that a setuid program runs in, or that is gone.
    machine.kernel.edit(300, |task| task.other_uids = 0);
    assert_eq!(machine.enter(peer(300, USER), FIFO_50).unwrap_err().code, 29);
    assert_eq!(machine.enter(peer(999, USER), FIFO_50).unwrap_err().code, 29);
    // Another user's own process.
    assert_eq!(machine.enter(peer(400, 0), FIFO_50).unwrap_err().code, 29);
    let inside = &machine.shield.state().unwrap().partitions[0].tasks;
    assert!(inside.is_empty(), "{inside:?}");
    for pid in [300, 400] {
        assert_eq!(machine.kernel.task(pid).unwrap().schedule, OTHER);
    }
}

#[test]
fn a_policy_that_was_not_asked_for_is_refused_before_the_move() {
    let mut machine = Machine::new();
    for policy in [Schedule::Fifo { priority: 51 }, Schedule::Other { nice: -1 }] {
        assert_eq!(machine.enter(peer(300, USER), policy).unwrap_err().code, 29);
    }
    assert_eq!(machine.kernel.allowed(300), "0-2".parse().ok());
}

#[test]
fn only_its_user_ends_it() {
    let mut machine = Machine::new();
    for uid in [1001, 0] {
        let done = machine.end(uid);
        assert_eq!(done.reply.unwrap().unwrap_err().code, 29);
        assert!(done.told.is_empty());
    }
    assert_eq!(machine.names(), "known are: run-1");
}

#[test]
fn it_ends_with_its_client_and_no_other_of_that_name_does() {
    let mut machine = Machine::new();
    let left = |machine: &mut Machine, client| {
        let done = machine.users.carry_out(&machine.shield, client, Work::Left);
        assert_eq!(done.reply, None);
        words(&done.told)
    };
    assert!(left(&mut machine, 7).is_empty());
    assert_eq!(left(&mut machine, 1), ["run-1: ended: its client is gone"]);
    assert!(machine.is_as_it_was());
    // The first client ends its own; the second makes one of that name; the first leaves.
    machine.run(1, "run-1", None);
    machine.end(USER);
    machine.run(2, "run-1", None);
    assert!(left(&mut machine, 1).is_empty());
    assert_eq!(machine.names(), "known are: run-1");
    // Root ends that, and makes one of that name.
    let root = Caller::now(0, "root", "test");
    let name = || "run-1".to_owned();
    for request in [
        Request::Destroy { name: Some(name()), demote: true },
        Request::Create { name: name(), spec: Spec::of("3".parse().unwrap()) },
    ] {
        machine.shield.change(&request, &root).unwrap();
    }
    assert!(left(&mut machine, 2).is_empty());
    assert_eq!(machine.names(), "known are: run-1");
}

#[test]
fn it_ends_with_its_time() {
    let mut machine = Machine::new();
    assert_eq!(machine.users.next_end_s(&machine.shield), Some(1_000));
    assert!(machine.users.end_over(&machine.shield, 999).is_empty());
    let told = machine.users.end_over(&machine.shield, 1_000);
    assert_eq!(words(&told), ["run-1: ended: its time is over"]);
    assert!(machine.is_as_it_was());
    assert_eq!(machine.users.next_end_s(&machine.shield), None);
}

#[test]
fn it_ends_with_its_process_also_for_an_asmpd_that_did_not_make_it() {
    let mut machine = Machine::new();
    machine.users = Users::default();
    assert!(machine.users.end_over(&machine.shield, 1).is_empty());
    // Its number is another process's by now.
    machine.kernel.edit(200, |task| task.start_ticks += 1);
    let told = machine.users.end_over(&machine.shield, 1);
    assert_eq!(words(&told), ["run-1: ended: its process has ended"]);
    assert!(machine.is_as_it_was());
}

#[test]
fn one_that_cannot_be_ended_is_told_once_and_tried_again_at_each_look() {
    let mut machine = Machine::new();
    let refuse = Fault::Die { at: 0, after: false };
    machine.kernel.arm(Some(refuse));
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        machine.users.end_over(&machine.shield, 1_000)
    }));
    machine.kernel.arm(None);
    assert!(killed.is_err());
    // The lock is held by another program.
    let held = Store::at(machine._dir.path()).lock(Duration::ZERO).unwrap().unwrap();
    machine.shield = machine.shield.clone().with_patience(asmp_shield::Patience {
        lock: Duration::ZERO,
        ..asmp_shield::Patience::default()
    });
    let told = words(&machine.users.end_over(&machine.shield, 1_000));
    assert!(told[0].starts_with("run-1: cannot be ended (its time is over): "), "{told:?}");
    assert!(machine.users.end_over(&machine.shield, 1_000).is_empty(), "it is told once");
    assert_eq!(machine.users.next_end_s(&machine.shield), None, "that time is waited for no more");
    drop(held);
    let told = machine.users.end_over(&machine.shield, 1_000);
    assert_eq!(words(&told), ["run-1: ended: its time is over"]);
    assert!(machine.is_as_it_was());
}

#[test]
fn a_new_partition_of_the_same_name_ends_in_its_own_time() {
    let (impatient, patient) = (Duration::ZERO, asmp_shield::Patience::default().lock);
    let wait_for_lock = |machine: &mut Machine, lock| {
        let patience = asmp_shield::Patience { lock, ..asmp_shield::Patience::default() };
        machine.shield = machine.shield.clone().with_patience(patience);
    };
    for by in [None, Some(1001)] {
        let mut machine = Machine::new();
        wait_for_lock(&mut machine, impatient);
        let held = Store::at(machine._dir.path()).lock(Duration::ZERO).unwrap().unwrap();
        assert_eq!(machine.users.end_over(&machine.shield, 1_000).len(), 1, "it cannot be ended");
        drop(held);
        wait_for_lock(&mut machine, patient);
        let end = Request::Destroy { name: Some("run-1".to_owned()), demote: true };
        machine.shield.change(&end, &Caller::now(0, "root", "test")).unwrap();
        let made = match by {
            None => machine.run(1, "run-1", Some(2_000)),
            Some(uid) => machine.run_of_another(uid, Some(2_000)),
        };
        made.reply.unwrap().unwrap();
        assert_eq!(machine.users.next_end_s(&machine.shield), Some(2_000), "{by:?}");
    }
}

#[test]
fn who_asks_and_has_ended_gets_nothing() {
    let mut machine = Machine::empty();
    machine.kernel.end(200);
    let refused = machine.run(1, "run-1", None).reply.unwrap().unwrap_err();
    assert_ne!(refused.code, USAGE);
    assert!(refused.why.contains("process 200 is not granted: it has ended"), "{}", refused.why);
    assert!(machine.is_as_it_was());
}

#[test]
fn a_client_that_leaves_ends_no_partition_of_another_that_has_its_name() {
    let mut machine = Machine::new();
    let end = Request::Destroy { name: Some("run-1".to_owned()), demote: true };
    machine.shield.change(&end, &Caller::now(0, "root", "test")).unwrap();
    machine.run_of_another(1001, None).reply.unwrap().unwrap();
    let left = machine.users.carry_out(&machine.shield, 1, Work::Left);
    assert_eq!((left.told.len(), machine.names()), (0, "known are: run-1".to_owned()));
    let left = machine.users.carry_out(&machine.shield, 9, Work::Left);
    assert_eq!(words(&left.told), ["run-1: ended: its client is gone"]);
}

/// A kernel in which something happens right after a thread got a policy.
struct After {
    kernel: Arc<FakeKernel>,
    then: fn(&FakeKernel, i32),
}

impl Kernel for After {
    fn set_schedule(&self, tid: i32, schedule: &Schedule) -> io::Result<()> {
        self.kernel.set_schedule(tid, schedule)?;
        (self.then)(&self.kernel, tid);
        Ok(())
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.kernel.read(path)
    }
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.kernel.write(path, bytes)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.kernel.list(dir)
    }
    fn stream(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        self.kernel.stream(path)
    }
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.kernel.make_dir(dir)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.kernel.remove_dir(dir)
    }
    fn mark(&self, dir: &Path) -> io::Result<()> {
        self.kernel.mark(dir)
    }
    fn is_marked(&self, dir: &Path) -> bool {
        self.kernel.is_marked(dir)
    }
    fn link(&self, path: &Path) -> io::Result<String> {
        self.kernel.link(path)
    }
    fn schedule(&self, tid: i32) -> io::Result<Schedule> {
        self.kernel.schedule(tid)
    }
    fn online_affinity(&self, tid: i32) -> io::Result<CpuSet> {
        self.kernel.online_affinity(tid)
    }
    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        self.kernel.set_affinity(tid, cpus)
    }
    fn limit_real_time(&self, process: i32, limits: TimeLimits) -> io::Result<()> {
        self.kernel.limit_real_time(process, limits)
    }
    fn exists(&self, path: &Path) -> bool {
        self.kernel.exists(path)
    }
    fn is_file(&self, path: &Path) -> bool {
        self.kernel.is_file(path)
    }
    fn sharer(&self) -> Option<PathBuf> {
        self.kernel.sharer()
    }
    fn share(&self, cpus: &CpuSet) -> io::Result<()> {
        self.kernel.share(cpus)
    }
    fn delegate(&self, mount: &Path, on: bool) -> io::Result<()> {
        self.kernel.delegate(mount, on)
    }
    fn spin(&self, time: Duration) -> io::Result<Box<dyn Spinner + '_>> {
        self.kernel.spin(time)
    }
}

/// Process 300 with thread 301 enters, and `then` comes after each policy that is given.
fn entered(then: fn(&FakeKernel, i32)) -> (Machine, Result<(), Refused>) {
    let mut machine = Machine::new();
    machine.kernel.start(301, 300, "thread", OTHER);
    machine.kernel.edit(301, |task| (task.uid, task.other_uids) = (USER, USER));
    let kernel: Arc<dyn Kernel> = Arc::new(After { kernel: Arc::clone(&machine.kernel), then });
    machine.shield = Shield::new(kernel, Store::at(machine._dir.path()));
    let came = machine.enter(peer(300, USER), FIFO_50);
    (machine, came)
}

#[test]
fn a_thread_number_that_is_used_again_outside_gets_no_policy() {
    let (machine, came) = entered(|kernel, tid| {
        if tid == 300 {
            kernel.end(301);
            kernel.start(301, 301, "outside", OTHER);
            kernel.edit(301, |task| task.start_ticks = 77_777);
        }
    });
    assert_eq!(came, Ok(()));
    assert_eq!(machine.kernel.task(300).unwrap().schedule, FIFO_50);
    assert_eq!(machine.kernel.task(301).unwrap().schedule, OTHER);
    // Between the look and the call.
    let (machine, came) = entered(|kernel, tid| {
        if tid == 301 && kernel.task(301).is_some_and(|task| task.start_ticks != 77_777) {
            kernel.end(301);
            kernel.start(301, 301, "outside", FIFO_50);
            kernel.edit(301, |task| task.start_ticks = 77_777);
        }
    });
    assert_eq!(came, Ok(()));
    assert_eq!(machine.kernel.task(301).unwrap().schedule, OTHER);
}

#[test]
fn a_process_of_another_that_gets_the_number_of_one_that_enters_does_not_come_in() {
    let machine = Machine::new();
    let own = own_process(&*machine.kernel, &peer(300, USER)).unwrap();
    machine.kernel.end(300);
    machine.kernel.start(300, 300, "stranger", FIFO_50);
    machine.kernel.edit(300, |task| task.start_ticks = 77_777);
    let enter = Request::Exec { name: "run-1".into(), process: own, command: "app".into() };
    let error = machine.shield.change(&enter, &Caller::now(0, "asmpd", "asmpd")).unwrap_err();
    assert_eq!(error.code(), 33, "{error}");
    let stranger = machine.kernel.task(300).unwrap();
    assert_eq!((stranger.schedule, machine.kernel.allowed(300)), (FIFO_50, "0-2".parse().ok()));
}

#[test]
fn a_process_with_a_lower_limit_gets_no_real_time_policy() {
    let mut machine = Machine::new();
    let low = TimeLimits { soft_us: Some(200_000), hard_us: Some(200_000) };
    machine.kernel.limit_real_time(300, low).unwrap();
    let refused = machine.enter(peer(300, USER), FIFO_50).unwrap_err();
    assert_eq!(refused.code, 42);
    assert!(refused.why.contains("RLIMIT_RTTIME 200000 us"), "{}", refused.why);
    assert_eq!(machine.kernel.allowed(300), "0-2".parse().ok(), "it is outside again");
    machine.enter(peer(300, USER), OTHER).unwrap();
}

#[test]
fn of_several_grants_the_first_counts_that_the_machine_allows() {
    let mut machine = Machine::empty();
    let grant = |cpus: &str, priority| Grant {
        uid: USER,
        cpus: cpus.parse().unwrap(),
        policy: Schedule::Fifo { priority },
        partitions: 1,
        until_s: None,
    };
    let spec = Box::new(Spec::of("last".parse().unwrap()));
    let mut run = |name: &str, grants: &[Grant]| {
        let (name, grants, command) = (name.to_owned(), grants.to_vec(), "app".to_owned());
        let (peer, spec, policy) = (peer(200, USER), spec.clone(), Schedule::Fifo { priority: 1 });
        let work = Work::Run { peer, name, spec, grants, policy, command };
        machine.users.carry_out(&machine.shield, 1, work)
    };
    let refused = run("run-0", &[grant("1", 1), grant("2", 2)]).reply.unwrap().unwrap_err();
    let all = "at most fifo:1, in one partition; user 1000 may use CPU 2 with at most fifo:2";
    assert!(refused.code == 29 && refused.why.contains(all), "{}", refused.why);
    let done = run("run-1", &[grant("1", 1), grant("3", 2)]);
    assert_eq!(words(&done.told), ["run-1: made for user 1000: CPU 3, at most fifo:1"]);
}

#[test]
fn a_partition_that_could_not_end_with_its_client_ends_later() {
    let mut machine = Machine::new();
    let patient = machine.shield.clone();
    let at_once = asmp_shield::Patience { lock: Duration::ZERO, ..Default::default() };
    machine.shield = machine.shield.clone().with_patience(at_once);
    let lock = Store::at(machine._dir.path()).lock(Duration::ZERO).unwrap().unwrap();
    let left = machine.users.carry_out(&machine.shield, 1, Work::Left);
    assert!(words(&left.told)[0].contains("cannot be ended (its client is gone)"), "{left:?}");
    drop(lock);
    let told = machine.users.end_over(&patient, 0);
    assert_eq!(words(&told), ["run-1: ended: its client is gone"]);
    assert!(machine.is_as_it_was());
}

#[test]
fn what_cannot_be_given_back_is_said_to_the_user_and_in_the_event() {
    let mut machine = Machine::new();
    machine.kernel.arm(Some(Fault::Hold { below: "/proc/irq/24", errno: libc::EIO }));
    let done = machine.end(USER);
    let reply = done.reply.unwrap().unwrap();
    assert_eq!(reply["code"], 6, "{reply}");
    assert!(reply["notes"].to_string().contains("not given back: "), "{reply}");
    assert!(words(&done.told)[0].contains("not given back: "), "{:?}", done.told);
}

#[test]
fn a_partition_whose_tick_was_proved_is_resized_by_asmp_alone() {
    let mut machine = Machine::empty();
    let spec = Spec { tick: Tick::RequireOff, ..Spec::of("3".parse().unwrap()) };
    let create = Request::Create { name: "motion".into(), spec };
    machine.shield.change(&create, &Caller::now(0, "root", "asmp")).unwrap();
    let mut resize = |name: &str| {
        let request = Request::Resize { name: name.into(), cpus: "2-3".parse().unwrap() };
        let (request, command) = (Box::new(request), "launcher".to_owned());
        let work = Work::Change { peer: peer(7, 0), request, command };
        machine.users.carry_out(&machine.shield, 9, work).reply.unwrap().unwrap_err()
    };
    assert_eq!(resize("motion"), Refused { code: USAGE, why: COUNTS_TICKS.to_owned() });
    assert_eq!(resize("other").code, 32);
    assert_eq!(machine.shield.state().unwrap().partitions[0].cpus, "3".parse().unwrap());
}

#[test]
fn a_request_of_root_is_carried_out_and_answered_in_words() {
    let mut machine = Machine::empty();
    machine.kernel.start(401, 400, "rt-thread", OTHER);
    let mut ask = |request: Request| {
        let work = Work::Change {
            peer: peer(7, 0),
            request: Box::new(request),
            command: "launcher".to_owned(),
        };
        let done = machine.users.carry_out(&machine.shield, 9, work);
        assert!(done.told.is_empty() && done.of_files.is_empty());
        done.reply.unwrap()
    };
    let create = || Request::Create { name: "motion".into(), spec: Spec::of("3".parse().unwrap()) };
    let made: Changed = serde_json::from_value(ask(create()).unwrap()).unwrap();
    assert!(made.transaction == 1 && made.changes > 9, "{made:?}");
    assert_eq!(ask(create()).unwrap_err().code, 31);
    let members = Members { pids: vec![400], ..Members::default() };
    ask(Request::Add { name: "motion".into(), members }).unwrap();
    machine.kernel.set_schedule(401, &FIFO_50).unwrap();
    let made_by = machine.shield.state().unwrap().partitions[0].created_by.clone();
    assert!(made_by.contains("root") && made_by.contains("launcher"), "{made_by}");
    let destroy = |demote| Request::Destroy { name: Some("motion".into()), demote };
    assert_eq!(ask(destroy(false)).unwrap_err().code, 39);
    let ended: Changed = serde_json::from_value(ask(destroy(true)).unwrap()).unwrap();
    let words = "task 401 (rt-thread) left motion as SCHED_OTHER; it was fifo:50";
    assert_eq!(ended.notes, [words]);
    assert!(machine.is_as_it_was());
}

/// What it starts inherits the mark, wherever it is taken.
#[test]
fn a_process_is_marked_before_it_is_real_time_and_only_then() {
    let (machine, came) = entered(|kernel, tid| {
        let most_us = kernel.task(300).unwrap().most_us;
        assert_eq!(most_us, Some(rttime::MARK_US), "as {tid} gets its policy");
    });
    assert_eq!(came, Ok(()));
    assert_eq!(machine.kernel.task(300).unwrap().schedule, FIFO_50);
    let mut machine = Machine::new();
    machine.enter(peer(300, USER), OTHER).unwrap();
    assert_eq!(machine.kernel.task(300).unwrap().most_us, None);
}

#[test]
fn a_thread_that_ends_while_its_process_enters_is_no_error() {
    let (machine, came) = entered(|kernel, tid| {
        if tid == 300 {
            kernel.end(301);
        }
    });
    assert_eq!((came, machine.kernel.task(300).unwrap().schedule), (Ok(()), FIFO_50));
}
