// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers, virtual machines and pinned tasks of others: each that loses CPUs to a partition is
//! named.

use crate::apply::Refused;
use crate::fixture::{Fake, REPAIR, add, create, destroy, root, set};
use crate::partition::Refusal;
use crate::request::{Members, Request, Spec};
use crate::shield::ChangeError;
use asmp_host::fake::FakeKernel;
use asmp_host::{Facts, Kernel, Schedule, task};

fn strict(name: &str, cpus: &str) -> Request {
    let spec = Spec { strict: true, ..Spec::of(cpus.parse().unwrap()) };
    Request::Create { name: name.into(), spec }
}

impl Fake {
    /// A process of `threads` threads in `group`.
    fn start(&self, pid: i32, command: &str, threads: i32, group: &str, affinity: Option<&str>) {
        for tid in pid..pid + threads {
            self.kernel.start(tid, pid, command, Schedule::Other { nice: 0 });
            self.kernel.place(tid, group, affinity.map(set));
        }
    }

    /// Who `create NAME --cpus CPUS` affects by its plan and by its outcome.
    fn affected_by(&self, request: &Request) -> Vec<String> {
        let (_, planned) = self.shield.plan(request, &root()).unwrap();
        let outcome = self.shield.change(request, &root()).unwrap();
        assert_eq!(planned.affected, outcome.plan.affected);
        planned.affected.iter().map(ToString::to_string).collect()
    }

    fn affected_now(&self) -> Vec<String> {
        self.shield.status().unwrap().affected.iter().map(ToString::to_string).collect()
    }

    fn refusal(&self, request: &Request) -> String {
        let before = self.kernel.snapshot();
        let refusal = self.shield.change(request, &root()).unwrap_err();
        assert_eq!(before, self.kernel.snapshot());
        refusal.to_string()
    }
}

#[test]
fn a_container_that_asks_for_the_cpus_is_named_by_plan_create_and_status() {
    let fake = Fake::on(FakeKernel::new());
    fake.kernel.make_group("/docker/web", &set("2"), &set(""));
    fake.kernel.make_group("/docker/db", &set("1-2"), &set(""));
    fake.kernel.make_group("/docker/far", &set("1"), &set(""));
    fake.kernel.make_group("/docker/any", &set("0-3"), &set(""));
    fake.kernel.make_group("/docker/dead", &set("2"), &set(""));
    fake.start(200, "nginx", 2, "/docker/web", None);
    fake.start(210, "postgres", 1, "/docker/db", None);
    fake.start(220, "far", 1, "/docker/far", None);
    fake.start(230, "any", 1, "/docker/any", None);
    let both = [
        "group /docker/db (1 task) asks for CPU 1-2 and loses CPU 2",
        "group /docker/web (2 tasks) asks for CPU 2 and loses all of them: it runs on other CPUs \
         meanwhile",
    ];
    assert!(fake.affected_now().is_empty());
    assert_eq!(fake.affected_by(&create("a", "2")), both);
    assert_eq!(fake.affected_now(), both);
    // Another partition takes nothing from them.
    assert!(fake.affected_by(&create("b", "3")).is_empty());
}

#[test]
fn a_group_below_a_container_counts_for_itself() {
    let fake = Fake::on(FakeKernel::new());
    fake.kernel.make_group("/vm", &set(""), &set(""));
    fake.kernel.make_group("/vm/vcpu0", &set("3"), &set(""));
    fake.kernel.make_group("/vm/vcpu0/inner", &set(""), &set(""));
    fake.start(300, "qemu", 1, "/vm", None);
    fake.start(310, "vcpu0", 1, "/vm/vcpu0/inner", None);
    let says = fake.affected_by(&create("a", "3"));
    assert_eq!(says.len(), 1, "{says:?}");
    assert!(says[0].starts_with("group /vm/vcpu0 (1 task) asks for CPU 3"), "{says:?}");
}

#[test]
fn threads_pinned_to_the_cpus_alone_are_named_with_their_process() {
    let fake = Fake::on(FakeKernel::new());
    fake.start(400, "qemu", 1, "/", None);
    for (tid, cpus) in [(401, "2"), (402, "3"), (403, "1-2")] {
        fake.kernel.start(tid, 400, "CPU/KVM", Schedule::Other { nice: 0 });
        fake.kernel.place(tid, "/", Some(set(cpus)));
    }
    fake.start(500, "evil\u{1b}[31m\n", 1, "/", Some("3"));
    let says = fake.affected_by(&create("a", "2-3"));
    assert_eq!(says.len(), 2, "{says:?}");
    assert!(says[0].starts_with("process 400 (qemu) (2 tasks) asks for CPU 2-3"), "{says:?}");
    assert!(says[1].starts_with("process 500 (evil?[31m?) (1 task)"), "{says:?}");
}

#[test]
fn strict_refuses_what_would_drive_others_away() {
    let fake = Fake::on(FakeKernel::new());
    fake.kernel.make_group("/docker/web", &set("2"), &set(""));
    fake.start(200, "nginx", 2, "/docker/web", None);
    fake.start(210, "pinned", 1, "/", Some("2"));
    let refusal = fake.refusal(&strict("a", "2"));
    assert!(refusal.contains("group /docker/web (2 tasks)"), "{refusal}");
    assert!(refusal.contains("and 1 more"), "{refusal}");
    fake.shield.plan(&strict("a", "2"), &root()).unwrap_err();
}

#[test]
fn a_group_in_the_way_is_named_where_the_kernel_only_says_einval() {
    let fake = Fake::on(FakeKernel::new());
    fake.kernel.make_group("/overlaps", &set("2"), &set(""));
    let refusal = fake.refusal(&create("a", "2-3"));
    assert!(refusal.contains("/overlaps beside it asks for CPU 2"), "{refusal}");

    let fake = Fake::on(FakeKernel::new());
    fake.kernel.make_group("/owner", &set(""), &set("2"));
    let refusal = fake.refusal(&create("a", "2-3"));
    assert!(refusal.starts_with("group /owner has CPU 2 exclusively:"), "{refusal}");
}

#[test]
fn a_group_that_isolates_the_cpus_is_named() {
    let fake = Fake::on(FakeKernel::new());
    fake.kernel.make_group("/theirs", &set(""), &set("3"));
    let file = "/sys/fs/cgroup/theirs/cpuset.cpus.partition";
    fake.kernel.write(file.as_ref(), b"isolated").unwrap();
    let refusal = fake.refusal(&create("a", "3"));
    assert!(refusal.starts_with("group /theirs has CPU 3 exclusively:"), "{refusal}");
}

#[test]
fn cpusets_of_cgroup_v1_are_refused_with_their_mount() {
    let fake = Fake::on(FakeKernel::new());
    let mountinfo = "/proc/self/mountinfo";
    let v2 = fake.kernel.text(mountinfo.as_ref()).unwrap();
    let v1 = "30 1 0:30 / /mnt/v1 rw - cgroup none rw,cpuset";
    fake.kernel.set_file(mountinfo, &format!("{v2}\n{v1}"));
    for request in [create("a", "3"), strict("a", "3"), Request::Repair { name: None }] {
        let refusal = fake.refusal(&request);
        assert!(refusal.starts_with("cgroup v1 at /mnt/v1 holds the cpuset controller: "));
        assert!(refusal.contains("unmount it") && !refusal.contains('\n'), "{refusal}");
    }
    let planned = fake.shield.plan(&create("a", "3"), &root()).unwrap_err();
    assert!(planned.to_string().contains("/mnt/v1"), "{planned}");
    assert!(fake.shield.status().unwrap().partitions.is_empty());
    let items = crate::doctor::Examination::of(&*fake.kernel).unwrap();
    assert!(items.lacks_something());
    let item = items.items.iter().find(|item| item.what == "cpuset controller in v2").unwrap();
    assert_eq!(item.found, "held by cgroup v1 at /mnt/v1");
    fake.kernel.set_file(mountinfo, &v2);
    assert!(fake.affected_by(&create("a", "3")).is_empty());
}

#[test]
fn the_last_process_of_a_scope_stays_there_without_force() {
    let fake = Fake::on(FakeKernel::new());
    fake.shield.change(&create("a", "3"), &root()).unwrap();
    let scope = "/machine.slice/libpod-1.scope";
    fake.kernel.make_group(&format!("{scope}/container"), &set(""), &set(""));
    fake.start(600, "app", 2, &format!("{scope}/container"), None);
    let task = task::read(&*fake.kernel, 600).unwrap();
    let mut facts = Facts::read(&*fake.kernel).unwrap();
    let check = |facts: &Facts| {
        crate::neighbours::keep_scopes(&*fake.kernel, facts, std::iter::once(&task))
    };
    check(&facts).unwrap();
    facts.systemd = true;
    let refusal = check(&facts).unwrap_err();
    assert!(matches!(refusal, Refusal::EmptiesScope { tid: 600, .. }), "{refusal}");
    // Somebody else stays behind.
    fake.start(700, "conmon", 1, scope, None);
    check(&facts).unwrap();
    fake.kernel.place(700, "/", None);

    fake.kernel.set_file("/run/systemd/system", "");
    let add = |force| {
        let members = Members { pids: vec![600], force, ..Members::default() };
        fake.shield.plan(&Request::Add { name: "a".into(), members }, &root())
    };
    let refused = add(false).unwrap_err();
    assert!(matches!(refused, ChangeError::Refused(Refusal::EmptiesScope { .. })), "{refused}");
    add(true).unwrap();
}

#[test]
fn a_scope_is_read_once_however_many_tasks_leave_it() {
    let calls = |leaving: i32| {
        let fake = Fake::on(FakeKernel::new());
        let scope = "/machine.slice/libpod-1.scope";
        fake.kernel.make_group(scope, &set(""), &set(""));
        fake.kernel.boot_systemd(&[]);
        (600..=600 + leaving).for_each(|pid| fake.start(pid, "app", 1, scope, None));
        let facts = Facts::read(&*fake.kernel).unwrap();
        let tasks: Vec<_> =
            (600..600 + leaving).map(|pid| task::read(&*fake.kernel, pid).unwrap()).collect();
        let before = fake.kernel.calls();
        crate::neighbours::keep_scopes(&*fake.kernel, &facts, tasks.iter()).unwrap();
        fake.kernel.calls() - before
    };
    assert!(calls(1) > 0);
    assert_eq!(calls(100), calls(1));
}

/// Without it the service would end, and systemd would remove the groups of all partitions.
#[test]
fn the_process_that_keeps_the_groups_under_systemd_joins_no_partition() {
    let fake = Fake::on(FakeKernel::new());
    fake.kernel.boot_systemd(&[]);
    fake.ask(&create("a", "3")).unwrap();
    fake.start(400, "sleep", 1, "/asmp.slice/asmp-holder.service/holder", None);
    let members = Members { pids: vec![400], force: true, ..Members::default() };
    let refused = fake.ask(&Request::Add { name: "a".into(), members }).unwrap_err();
    let is_named = matches!(refused, ChangeError::Refused(Refusal::Holder { tid: 400 }));
    assert!(is_named, "{refused}");
}

/// Three tasks with 80 % of a CPU each were admitted to four CPUs. 6.12 forbids to read the bound.
#[test]
fn cpus_that_deadline_tasks_of_the_system_have_booked_are_not_taken() {
    for release in ["6.12.107", "7.2.13"] {
        let mut fake = Fake::with_app();
        for (name, value) in [
            ("osrelease", release),
            ("sched_rt_runtime_us", "950000"),
            ("sched_rt_period_us", "1000000"),
        ] {
            fake.kernel.set_file(&format!("/proc/sys/kernel/{name}"), value);
        }
        let (runtime_ns, period_ns) = (80_000_000, 100_000_000);
        let deadline = Schedule::Deadline { runtime_ns, deadline_ns: period_ns, period_ns };
        for tid in [300, 301, 302] {
            fake.kernel.start(tid, tid, "control", deadline);
        }
        fake.untouched = fake.kernel.snapshot();
        let refused = fake.ask(&create("a", "2-3")).unwrap_err().to_string();
        let begin =
            "SCHED_DEADLINE tasks of the system (task 300, control and 2 more) have booked 240 %";
        assert!(refused.starts_with(begin), "{refused}");
        assert!(refused.contains("and CPU 0-1 would have 1"), "{refused}");
        fake.is_untouched("refused");
        // Three CPUs carry them; so do two where one of them is inside.
        let outcome = fake.done(&create("a", "3"));
        let of_servers = |refused: &&Refused| refused.reason.contains("server");
        assert_eq!(outcome.refused.iter().find(of_servers), None, "{release}");
        let wider = Request::Resize { name: "a".into(), cpus: "2-3".parse().unwrap() };
        assert!(fake.ask(&wider).is_err());
        fake.done(&add("a", 300));
        fake.done(&wider);
    }
}

/// Any user can nest groups so deep that no program can open files in them from the root.
#[test]
fn a_task_whose_group_has_too_long_a_path_comes_back_to_another_one() {
    // The kernel tells the first path, and a piece of the second.
    for bytes in [4090, 5000] {
        let fake = Fake::after(&[create("a", "3")]);
        fake.kernel.start(400, 400, "deep", Schedule::Other { nice: 0 });
        fake.kernel.place(400, &format!("/{}", "d".repeat(bytes - 1)), None);
        fake.done(&add("a", 400));
        assert_eq!(fake.allowed(400), "3");
        assert!(fake.status().holds());
        fake.done(&REPAIR);
        fake.done(&destroy("a"));
        assert_eq!(fake.allowed(400), "0-3", "{bytes}");
    }
}
