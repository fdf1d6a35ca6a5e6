// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks in partitions: whose record is whose, and the way home after any order of joining, moving
//! and leaving.

use crate::declaration::Declaration;
use crate::fixture::{FIFO_50, FIFO_80, Fake, OTHER, assert_same, create, create_for};
use crate::fixture::{destroy, pid_of};
use crate::membership::{self, Entered, EntryError, Join};
use crate::outcome::Outcome;
use crate::partition::{Refusal, Tick};
use crate::request::{Members, Request};
use crate::shield::{ChangeError, Patience};
use asmp_host::fake::{FakeKernel, FakeTask, Fault};
use asmp_host::store::Store;
use asmp_host::{CpuSet, Kernel};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

impl Fake {
    /// `app` (200, 201 SCHED_FIFO, 202) is of the service /app.service, `other` (300, 301) of the
    /// root group.
    fn with_service() -> Self {
        let kernel = FakeKernel::new();
        kernel.make_dir(Path::new("/sys/fs/cgroup/app.service")).unwrap();
        for (tid, process, name, policy) in [
            (200, 200, "app", OTHER),
            (201, 200, "app-rt", FIFO_80),
            (202, 200, "app-2", OTHER),
            (300, 300, "other", FIFO_50),
            (301, 300, "other-2", OTHER),
        ] {
            kernel.start(tid, process, name, policy);
        }
        for tid in [200, 201, 202] {
            kernel.edit(tid, |task| task.group = "/app.service".into());
        }
        Self::on(kernel)
    }

    /// The same with partitions `a` on CPU 3 and `b` on CPU 2.
    fn with_a_and_b() -> Self {
        let fake = Self::with_service();
        fake.done(&create("a", "3"));
        fake.done(&create("b", "2"));
        fake
    }

    fn group(&self, tid: i32) -> String {
        self.kernel.task(tid).unwrap().group.display().to_string()
    }

    /// A child process, with what it inherits.
    fn fork(&self, tid: i32, parent: i32, name: &str) {
        let of = self.kernel.task(parent).unwrap();
        self.kernel.start(tid, tid, name, of.schedule);
        self.kernel.edit(tid, |task| {
            task.group = of.group;
            task.parent = parent;
        });
    }
}

fn tid(tid: i32) -> Members {
    Members { tids: vec![tid], ..Members::default() }
}

fn add(name: &str, members: Members) -> Request {
    Request::Add { name: name.into(), members }
}

fn remove(name: &str, members: Members) -> Request {
    Request::Remove { name: name.into(), members, demote: false }
}

fn pass(from: &str, to: &str, members: Members) -> Request {
    Request::Move { from: from.into(), to: to.into(), members }
}

/// A file of one partition with one task.
fn file(name: &str, cpus: &str, task: &str) -> Request {
    apply(&[(name, cpus, &[task])])
}

fn apply(partitions: &[(&str, &str, &[&str])]) -> Request {
    let partitions: Vec<String> = partitions
        .iter()
        .map(|(name, cpus, tasks)| {
            let tasks: Vec<String> = tasks.iter().map(|task| format!("{{{task}}}")).collect();
            format!(r#"{{"name":"{name}","cpus":"{cpus}","task":[{}]}}"#, tasks.join(","))
        })
        .collect();
    let text = format!(r#"{{"partition":[{}]}}"#, partitions.join(","));
    let declaration: Declaration = serde_json::from_str(&text).unwrap();
    Request::Apply { declaration }
}

const APP: &str = r#""command":"app""#;
const APP_FIFO: &str = r#""command":"app","policy":"fifo:50""#;

#[test]
fn a_partition_is_made_with_its_first_process_as_in_two_changes() {
    let (one, two) = (Fake::with_service(), Fake::with_service());
    let before = one.kernel.snapshot();
    one.done(&create_for("a", "3", 200));
    two.done(&create("a", "3"));
    two.done(&add("a", pid_of(200)));
    assert_same(&two.kernel.snapshot(), &one.kernel.snapshot(), "in one change");
    assert_eq!(one.kernel.allowed(201), "3".parse().ok());
    // Out of another partition, with the way home.
    one.done(&create_for("b", "2", 200));
    assert_eq!(one.kernel.allowed(201), "2".parse().ok());
    one.done(&destroy("b"));
    assert_eq!(one.group(201), "/app.service");
    one.done(&destroy("a"));
    assert_same(&before, &one.kernel.snapshot(), "at the end");
}

#[test]
fn a_number_used_again_gets_neither_the_home_nor_the_policy_of_the_task_before() {
    let fake = Fake::with_a_and_b();
    fake.done(&file("a", "3", APP_FIFO));
    // All of `app` ends, and the kernel uses its number for a process that is born inside.
    [201, 202].iter().for_each(|tid| fake.kernel.end(*tid));
    fake.kernel.edit(200, |task| {
        task.start_ticks = 9_000;
        task.schedule = FIFO_50;
        task.group = "/asmp/a/rt".into();
        task.command = "later".into();
    });
    // It chose FIFO 50 itself: that is not the policy that the file gave.
    let refused = fake.ask(&destroy("a")).unwrap_err().to_string();
    assert!(refused.contains("task 200 (later, fifo:50) became real-time"), "{refused}");
    fake.done(&remove_forced("a", pid_of(200)));
    assert_eq!((fake.group(200).as_str(), fake.policy(200)), ("/", OTHER));
    fake.done(&add("b", pid_of(200)));
    fake.done(&destroy("b"));
    assert_eq!(fake.group(200), "/");
}

fn remove_forced(name: &str, members: Members) -> Request {
    Request::Remove { name: name.into(), members, demote: true }
}

#[test]
fn a_thread_whose_number_was_a_process_is_moved_as_itself() {
    let fake = Fake::with_a_and_b();
    fake.done(&add("a", pid_of(200)));
    [200, 201, 202].iter().for_each(|tid| fake.kernel.end(*tid));
    fake.kernel.start(200, 300, "other-3", OTHER);
    fake.kernel.edit(200, |task| task.start_ticks = 9_000);
    fake.done(&add("a", tid(200)));
    assert_eq!(fake.group(300), "/asmp/a/rest");
    fake.done(&destroy("a"));
    assert_eq!([200, 300, 301].map(|tid| fake.group(tid)), ["/"; 3]);
}

#[test]
fn a_thread_that_stays_on_system_cpus_gets_no_policy_from_a_file() {
    for policy in [APP_FIFO, r#""unit":"app.service","policy":"fifo:50""#] {
        let fake = Fake::with_a_and_b();
        fake.done(&add("a", tid(202)));
        fake.done(&file("a", "3", policy));
        assert_eq!([200, 201, 202].map(|tid| fake.policy(tid)), [OTHER, FIFO_80, FIFO_50]);
        assert_eq!(fake.group(200), "/asmp/a/rest");
        assert_eq!(fake.done(&file("a", "3", policy)).changes, 0);
        fake.done(&remove("a", tid(202)));
        assert_eq!([200, 201, 202].map(|tid| fake.policy(tid)), [OTHER, FIFO_80, OTHER]);
        assert_eq!([200, 201, 202].map(|tid| fake.group(tid)), ["/app.service"; 3]);
    }
}

#[test]
fn a_thread_and_then_its_process_go_home_together() {
    let fake = Fake::with_a_and_b();
    fake.done(&add("a", tid(202)));
    fake.done(&add("a", pid_of(200)));
    assert_eq!([200, 201, 202].map(|tid| fake.group(tid)), ["/asmp/a/rt"; 3]);
    fake.done(&pass("a", "b", pid_of(200)));
    fake.done(&destroy("a"));
    fake.done(&destroy("b"));
    assert_eq!([200, 201, 202].map(|tid| fake.group(tid)), ["/app.service"; 3]);
    assert_eq!([200, 201, 202].map(|tid| fake.policy(tid)), [OTHER, FIFO_80, OTHER]);
}

#[test]
fn a_process_goes_home_after_the_thread_that_had_joined_has_ended() {
    let fake = Fake::with_a_and_b();
    fake.done(&add("a", tid(202)));
    fake.kernel.end(202);
    fake.kernel.set_file("/proc/self/cgroup", "0::/other.service");
    fake.done(&destroy("a"));
    assert_eq!([200, 201].map(|tid| fake.group(tid)), ["/app.service"; 2]);
}

/// Else they would end with asmpd, whose service they never were a part of.
#[test]
fn tasks_without_a_home_do_not_come_into_a_service() {
    for (caller, goes_to) in
        [("0::/system.slice/asmpd.service", "/"), ("0::/user.slice", "/user.slice")]
    {
        let fake = Fake::with_app();
        for group in ["user.slice", "system.slice", "system.slice/asmpd.service"] {
            fake.kernel.make_dir(&Path::new("/sys/fs/cgroup").join(group)).unwrap();
        }
        fake.done(&create("a", "3"));
        fake.kernel.write(Path::new("/sys/fs/cgroup/asmp/a/rt/cgroup.procs"), b"200").unwrap();
        fake.kernel.set_file("/proc/self/cgroup", caller);
        fake.done(&Request::Destroy { name: Some("a".into()), demote: true });
        assert_eq!(fake.group(200), goes_to, "{caller}");
    }
}

#[test]
fn what_a_process_brought_in_goes_home_after_it_has_left() {
    let leave: [fn() -> Request; 2] = [|| remove("a", pid_of(200)), || pass("a", "b", pid_of(200))];
    for leave in leave {
        let fake = Fake::with_a_and_b();
        fake.done(&file("a", "3", APP_FIFO));
        fake.fork(400, 200, "child");
        fake.fork(401, 400, "grandchild");
        fake.done(&leave());
        fake.done(&remove("a", pid_of(401)));
        assert_eq!((fake.group(401).as_str(), fake.policy(401)), ("/app.service", OTHER));
        fake.done(&destroy("a"));
        fake.done(&destroy("b"));
        assert_eq!((fake.group(400).as_str(), fake.policy(400)), ("/app.service", OTHER));
    }
}

#[test]
fn a_task_that_a_file_passes_on_keeps_its_way_home_and_its_policy_before() {
    let fake = Fake::with_service();
    fake.done(&apply(&[("a", "3", &[]), ("b", "2", &[APP_FIFO])]));
    // `a` stands before `b` in the file, and takes its task.
    fake.done(&apply(&[("a", "3", &[APP]), ("b", "2", &[])]));
    assert_eq!([200, 201, 202].map(|tid| fake.group(tid)), ["/asmp/a/rt"; 3]);
    fake.done(&destroy("a"));
    fake.done(&destroy("b"));
    assert_eq!([200, 201, 202].map(|tid| fake.group(tid)), ["/app.service"; 3]);
    assert_eq!([200, 201, 202].map(|tid| fake.policy(tid)), [OTHER, FIFO_80, OTHER]);
}

#[test]
fn an_unchanged_file_that_names_a_unit_changes_nothing() {
    let fake = Fake::with_service();
    let unit = file("a", "3", r#""unit":"app.service","policy":"fifo:50""#);
    fake.done(&unit);
    assert_eq!([200, 201, 202].map(|tid| fake.policy(tid)), [FIFO_50; 3]);
    assert_eq!(fake.done(&unit).changes, 0);
    assert_eq!([200, 201, 202].map(|tid| fake.policy(tid)), [FIFO_50; 3]);
}

#[test]
fn two_entries_that_mean_one_task_are_refused_with_both_names() {
    let fake = Fake::with_service();
    let unit = r#""unit":"app.service""#;
    let request = apply(&[("a", "3", &[APP_FIFO]), ("b", "2", &[unit])]);
    let error = fake.ask(&request).unwrap_err();
    assert!(matches!(error, ChangeError::Refused(Refusal::BadDeclaration { .. })), "{error}");
    assert_eq!(
        error.to_string(),
        "task 200 (app) matches two entries, command = \"app\" of partition a and \
         unit = \"app.service\" of partition b: remove one of them"
    );
}

#[test]
fn a_name_means_processes_of_root_or_of_the_user_that_the_entry_names() {
    let fake = Fake::with_service();
    fake.kernel.set_file("/etc/passwd", "root:x:0:0::/:/bin/sh\naudio:x:1000:29::/:/bin/sh");
    let jackd = r#""command":"other""#;
    fake.kernel.edit(300, |task| task.uid = 1000);
    let outcome = fake.done(&file("a", "3", jackd));
    assert_eq!(fake.group(300), "/");
    let [left_out] = &outcome.plan.left_out[..] else { panic!("{outcome:?}") };
    assert_eq!(
        left_out.what,
        "a: command = \"other\" matches processes of user 1000, which it does not mean"
    );
    let error = fake.ask(&file("a", "3", r#""command":"other","user":"jane""#)).unwrap_err();
    let says = "partition a: user \"jane\" is not in /etc/passwd: write the number";
    assert!(error.to_string().starts_with(says), "{error}");
    fake.kernel.set_file("/etc/group", "root:x:0:\njane:x:29:");
    let error = fake.ask(&file("a", "3", r#""command":"other","user":"jane""#)).unwrap_err();
    let says = "partition a: user \"jane\" is not in /etc/passwd (it is a group, and a task has";
    assert!(error.to_string().starts_with(says), "{error}");
    for user in [r#""audio""#, "1000"] {
        fake.done(&file("a", "3", &format!(r#"{jackd},"user":{user}"#)));
        assert_eq!(fake.group(300), "/asmp/a/rt");
        fake.done(&destroy("a"));
    }
}

#[test]
fn a_unit_is_one_of_the_system_or_of_the_user_that_the_entry_names() {
    let fake = Fake::with_service();
    let in_group = |group: &str| {
        [300, 301].iter().for_each(|tid| fake.kernel.edit(*tid, |task| task.group = group.into()));
        fake.done(&file("a", "3", r#""unit":"app.service""#));
        let meant = fake.group(300) == "/asmp/a/rt";
        fake.done(&Request::Restore { abandon: false });
        meant
    };
    fake.kernel.edit(300, |task| task.uid = 1000);
    assert!(in_group("/system.slice/app.service"), "a service has any user");
    assert!(in_group("/system.slice/app.service/worker"));
    assert!(!in_group("/user.slice/user-1000.slice/user@1000.service/app.slice/app.service"));
    assert!(!in_group("/system.slice/lxc.service/app.service"));
    let own = "/user.slice/user-1000.slice/user@1000.service/app.slice/app.service";
    [300, 301].iter().for_each(|tid| fake.kernel.edit(*tid, |task| task.group = own.into()));
    fake.done(&file("a", "3", r#""unit":"app.service","user":1000"#));
    assert_eq!([200, 300].map(|tid| fake.group(tid)), ["/app.service", "/asmp/a/rt"]);
}

#[test]
fn partitions_of_a_file_may_pass_their_cpus_on_in_a_ring_or_in_a_row() {
    let fake = Fake::with_service();
    let tasks: [&[&str]; 3] = [&[APP], &[r#""command":"other""#], &[]];
    let apply = |cpus: [&str; 3]| {
        fake.done(&apply(&[
            ("a", cpus[0], tasks[0]),
            ("b", cpus[1], tasks[1]),
            ("c", cpus[2], tasks[2]),
        ]))
    };
    let before = apply(["1", "2", "3"]);
    assert!(before.changes > 0);
    for cpus in [["2", "3", "1"], ["3", "1", "2"], ["2", "1", "3"], ["1", "3", "2"]] {
        apply(cpus);
        let allowed = [200, 300].map(|tid| fake.kernel.allowed(tid).unwrap().to_string());
        assert_eq!(allowed, [cpus[0], cpus[1]]);
        let status = fake.shield.status().unwrap();
        assert!(status.holds(), "{cpus:?}: {status:#?}");
    }
    fake.done(&destroy("c"));
    // CPU 2 is free: `b` goes there in one step, and then `a` to where it was.
    let outcome = apply_two(&fake, "3", "2");
    let was_without = outcome
        .plan
        .steps
        .iter()
        .any(|step| matches!(&step.action, crate::Action::Set { to, .. } if to == "member"));
    assert!(!was_without, "{:#?}", outcome.plan.steps);
    assert_eq!(fake.kernel.isolated().to_string(), "2-3");
}

fn apply_two(fake: &Fake, a: &str, b: &str) -> Outcome {
    fake.done(&apply(&[("a", a, &[APP]), ("b", b, &[r#""command":"other""#])]))
}

const REQUIRED: &str = r#"3","tick":"require-off"#;

#[test]
fn a_tick_is_proved_before_tasks_move_in_or_the_file_is_refused() {
    let fake = Fake::with_service();
    let patience = Patience { tick: Duration::from_millis(600), ..Patience::default() };
    let fake = Fake { shield: fake.shield.clone().with_patience(patience), ..fake };
    let text = fake.kernel.text(Path::new("/proc/interrupts")).unwrap();
    let ends = AtomicBool::new(false);
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in (1..).take_while(|_| !ends.load(Ordering::Relaxed)) {
                let ticks = text.replace("LOC: 0 0 0 0 ", &format!("LOC: 0 0 0 {count} "));
                fake.kernel.set_file("/proc/interrupts", &ticks);
                std::thread::yield_now();
            }
        });
        let answer = fake.ask(&file("a", REQUIRED, APP));
        ends.store(true, Ordering::Relaxed);
        answer
    });
    assert!(matches!(answer, Err(ChangeError::Unproved { .. })), "{answer:?}");
    assert_eq!(fake.group(200), "/app.service");
    fake.kernel.set_file("/proc/interrupts", &text);
    fake.done(&file("a", REQUIRED, APP));
    assert_eq!(fake.group(200), "/asmp/a/rt");
    fake.done(&file("a", REQUIRED, APP));
}

#[test]
fn a_tick_that_cannot_be_proved_because_of_tasks_inside_is_not_claimed() {
    let fake = Fake::with_a_and_b();
    fake.done(&add("a", pid_of(200)));
    let error = fake.ask(&file("a", REQUIRED, APP)).unwrap_err();
    assert!(matches!(error, ChangeError::Unproved { .. }), "{error}");
    assert!(error.to_string().contains("while tasks are in partition a: remove them"), "{error}");
    assert_eq!(fake.shield.state().unwrap().partition("a").unwrap().tick, Tick::Off);
}

fn enter(fake: &Fake, tid: i32) -> Result<Entered, EntryError> {
    let store = Store::at(fake.dir.path());
    membership::find(&*fake.kernel, &store, "a")?.enter(&*fake.kernel, tid, Join::Thread)
}

#[test]
fn a_thread_that_became_real_time_inside_leaves_as_an_ordinary_one() {
    let fake = Fake::with_a_and_b();
    let entered = enter(&fake, 202).unwrap();
    fake.kernel.set_schedule(202, &FIFO_80).unwrap();
    entered.leave(&*fake.kernel).unwrap();
    assert_eq!([200, 201, 202].map(|tid| fake.group(tid)), ["/app.service"; 3]);
    assert_eq!([200, 201, 202].map(|tid| fake.policy(tid)), [OTHER, FIFO_80, OTHER]);
    assert!(fake.shield.state().unwrap().partition("a").unwrap().tasks.is_empty());
}

#[test]
fn a_thread_that_cannot_leave_is_named_and_stays_recorded() {
    let fake = Fake::with_a_and_b();
    let entered = enter(&fake, 202).unwrap();
    let below = "/sys/fs/cgroup/app.service";
    fake.kernel.arm(Some(Fault::Hold { below, errno: libc::EBUSY }));
    let error = entered.leave(&*fake.kernel).unwrap_err().to_string();
    fake.kernel.arm(None);
    assert!(error.starts_with("process 200 stays in partition a: "), "{error}");
    assert!(error.contains("`asmp remove a --pid 200`"), "{error}");
    assert_eq!(fake.shield.state().unwrap().partition("a").unwrap().tasks.len(), 1);
    fake.done(&remove("a", pid_of(200)));
    assert_eq!([200, 201, 202].map(|tid| fake.group(tid)), ["/app.service"; 3]);
}

#[test]
fn no_thread_enters_while_a_change_is_not_undone() {
    let fake = Fake::with_a_and_b();
    assert!(fake.kill(&create("c", "1"), 4, true) && fake.shield.is_interrupted().unwrap());
    let error = enter(&fake, 202).unwrap_err();
    assert!(matches!(error, EntryError::Interrupted), "{error}");
    assert_eq!(fake.group(202), "/app.service");
    fake.done(&Request::Repair { name: None });
    enter(&fake, 202).unwrap();
}

/// Calls of the kernel that a request takes on a machine with a process of so many threads, of
/// which these requests came before.
fn calls(threads: i32, before: &[Request], request: &Request) -> usize {
    let fake = Fake::with_a_and_b();
    (1..threads).for_each(|n| fake.kernel.start(20_000 + n, 200, "worker", OTHER));
    before.iter().for_each(|request| drop(fake.done(request)));
    let start = fake.kernel.calls();
    fake.done(request);
    fake.kernel.calls() - start
}

#[test]
fn joining_and_leaving_take_time_in_proportion_to_what_moves() {
    let join = add("a", pid_of(200));
    let by_file = file("a", "3", APP_FIFO);
    let cases: [(&[Request], Request, usize); 7] = [
        (&[], join.clone(), 11),
        (std::slice::from_ref(&join), destroy("a"), 11),
        (std::slice::from_ref(&join), remove("a", pid_of(200)), 11),
        (std::slice::from_ref(&join), pass("a", "b", pid_of(200)), 11),
        (std::slice::from_ref(&by_file), destroy("a"), 11),
        // Nothing of the large process moves: a fixed number of calls.
        (std::slice::from_ref(&join), remove("a", tid(202)), 1),
        (std::slice::from_ref(&join), destroy("b"), 1),
    ];
    for (before, request, most) in cases {
        let (few, many) = (calls(500, before, &request), calls(5_000, before, &request));
        println!("{request:?}: {few}, {many} calls");
        assert!(many <= few * most + 50, "{request:?}: {few}, {many} calls");
    }
}

/// A generator of numbers, the same in each run (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as usize
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

type Tasks = BTreeMap<i32, (FakeTask, CpuSet)>;

fn tasks(fake: &Fake) -> Tasks {
    let of = |tid| Some((tid, (fake.kernel.task(tid)?, fake.kernel.allowed(tid)?)));
    [200, 201, 202, 300, 301].into_iter().filter_map(of).collect()
}

fn any_request(random: &mut Random) -> Request {
    let name = random.of(&["a", "b"]);
    let other = if name == "a" { "b" } else { "a" };
    let members = match random.below(2) {
        0 => pid_of(random.of(&[200, 300])),
        _ => tid(random.of(&[200, 201, 202, 300, 301])),
    };
    let cpus = |name: &str| if name == "a" { "3" } else { "2" };
    match random.below(10) {
        0..=2 => add(name, members),
        3 | 4 => remove(name, members),
        5 | 6 => pass(name, other, members),
        7 => destroy(name),
        8 => create(name, cpus(name)),
        _ => {
            let policy = random.of(&["", r#","policy":"fifo:50""#, r#","policy":"rr:7""#]);
            let task = random.of(&[
                r#""command":"app""#,
                r#""unit":"app.service""#,
                r#""command":"other""#,
            ]);
            file(name, cpus(name), &format!("{task}{policy}"))
        }
    }
}

#[test]
fn tasks_are_as_they_were_after_any_requests_once_all_partitions_are_gone() {
    let mut done = 0;
    for seed in 1..=300 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let fake = Fake::with_service();
        let before = tasks(&fake);
        fake.done(&create("a", "3"));
        fake.done(&create("b", "2"));
        let mut words = Vec::new();
        for _ in 0..12 {
            let request = any_request(&mut random);
            let answer = fake.ask(&request);
            done += usize::from(answer.is_ok());
            words.push(format!("{request:?} -> {:?}", answer.err().map(|e| e.to_string())));
            let system_real_time = tasks(&fake).into_iter().find(|(tid, (task, _))| {
                task.schedule.is_real_time()
                    && !task.group.ends_with("rt")
                    && task.schedule != before[tid].0.schedule
            });
            assert!(system_real_time.is_none(), "seed {seed}: {system_real_time:#?} {words:#?}");
            let status = fake.shield.status().unwrap();
            assert!(status.holds(), "seed {seed}: {words:#?} {status:#?}");
            // Refused or done: an unfinished change would stay in the journal.
            assert!(!fake.shield.is_interrupted().unwrap(), "seed {seed}: {words:#?}");
        }
        let answer = fake.ask(&Request::Destroy { name: None, demote: false });
        words.push(format!("destroy all -> {:?}", answer.err().map(|e| e.to_string())));
        let after = tasks(&fake);
        for (tid, task) in &before {
            assert_eq!(after.get(tid), Some(task), "seed {seed}, task {tid}: {words:#?}");
        }
    }
    assert!(done > 1_000, "only {done} changes");
}

#[test]
fn a_process_that_moves_while_it_waits_for_the_lock_enters_no_second_partition() {
    let fake = Fake::with_a_and_b();
    let entrance = fake.shield.entrance("b").unwrap();
    let held = fake.store.lock(Duration::ZERO).unwrap().unwrap();
    let kernel = fake.kernel.clone();
    let enters = std::thread::spawn(move || entrance.enter(&*kernel, 300, Join::Process).map(drop));
    // It waits for the lock, or comes later: it must see where the process is then.
    std::thread::sleep(Duration::from_millis(100));
    fake.kernel.place(300, "/asmp/a/rt", None);
    fake.kernel.place(301, "/asmp/a/rt", None);
    drop(held);
    let refused = enters.join().unwrap().unwrap_err();
    assert!(matches!(refused, EntryError::InAnotherPartition { .. }), "{refused}");
    assert_eq!(fake.group(300), "/asmp/a/rt");
}

#[test]
fn a_member_that_another_program_moved_out_comes_back_when_it_is_added_or_declared_again() {
    let pid = || Members { pids: vec![200], ..Members::default() };
    let again =
        [add("a", pid()), add("a", tid(201)), file("a", "3", APP), file("a", "3", APP_FIFO)];
    for (at, again) in again.into_iter().enumerate() {
        for to in ["/sys/fs/cgroup", "/sys/fs/cgroup/app.service"] {
            let fake = Fake::with_a_and_b();
            match at {
                1 => fake.done(&add("a", tid(201))),
                _ => fake.done(&add("a", pid())),
            };
            fake.write(&format!("{to}/cgroup.procs"), "200");
            assert_eq!(fake.allowed(201), "0-1", "{again:?}");
            fake.done(&again);
            assert_eq!(fake.allowed(201), "3", "{again:?}, {to}");
            if at == 3 {
                assert_eq!(fake.policy(202), FIFO_50, "{to}");
            }
            let status = fake.status();
            assert!(status.holds(), "{again:?}, {to}: {status:#?}");
        }
    }
}
