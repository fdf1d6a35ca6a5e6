// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The deciding half of this crate, against machines made of plain values.

use crate::declaration::{self, Declaration};
use crate::partition::{Aspect, Original, Partition, Refusal, Smt, State, System, Tick, shielded};
use crate::plan::{Action, Base, IfRefused, Step, plan};
use crate::request::{Caller, Members, Request, Spec};
use crate::rules::{Subject, Wish, check_machine, create, destroy, remove_task, resize};
use crate::target::targets;
use asmp_host::cgroup::Hierarchy;
use asmp_host::facts::Cpus;
use asmp_host::irq::Irq;
use asmp_host::sharing::Sharing;
use asmp_host::task::{Member, Task, TaskId};
use asmp_host::tracefs::timerlat;
use asmp_host::{CpuSet, CpuSpec, Facts, knob};
use std::collections::BTreeMap;

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// Four CPUs, two lines, everything that a partition needs.
fn machine() -> Facts {
    let irq = |number, name: &str, cpus: &str| Irq {
        number,
        actions: vec![name.to_owned()],
        per_cpu: false,
        affinity: set(cpus),
        affinity_text: cpus.to_owned(),
    };
    let settings = [
        (knob::default_irq_affinity(), "f"),
        (knob::workqueue_cpus(), "f"),
        (knob::watchdog_cpus(), "0"),
        (knob::timer_migration(), "1"),
        (knob::deadline_server_runtime("fair", 3), "50000000"),
        (knob::deadline_server_runtime("fair", 2), "50000000"),
        (knob::frequency_governor(3), "schedutil"),
    ];
    Facts {
        sharing: Sharing::default(),
        work_asked: None,
        release: "7.2.13".into(),
        architecture: "x86_64".into(),
        lockdown: None,
        contained_pids: false,
        preempt_rt: true,
        root: true,
        systemd: false,
        command_line: String::new(),
        cpus: Cpus {
            possible: set("0-7"),
            online: set("0-3"),
            nohz_full: set("1-3"),
            tick_can_stop: true,
            boot_isolated: CpuSet::new(),
            core_of: (0..4).map(|cpu| (cpu, CpuSet::from_iter([cpu]))).collect(),
            governor_of: BTreeMap::new(),
        },
        cgroups: Hierarchy {
            mount: Some("/sys/fs/cgroup".into()),
            controllers: vec!["cpuset".into()],
            controllers_of_children: vec![],
            service: "asmp-holder.service",
            cpuset_users: vec![],
            cpuset_v1: None,
            is_group: false,
            isolated: Some(CpuSet::new()),
        },
        irqs: vec![irq(24, "eth0-rx-0", "0-3"), irq(25, "eth0-tx-0", "3"), irq(26, "sda", "0-1")],
        settings: settings.into_iter().map(|(knob, text)| (knob.path, text.to_owned())).collect(),
    }
}

fn wish(name: &str, cpus: &str) -> Wish {
    let caller = Caller { time_s: 0, ..Caller::now(0, "root", "test") };
    let cpus: CpuSpec = cpus.parse().unwrap();
    Wish::new(name, cpus.clone(), &Spec::of(cpus), &caller, None)
}

fn wish_with(name: &str, cpus: &str, edit: impl FnOnce(&mut Spec)) -> Wish {
    let mut wish = wish(name, cpus);
    edit(&mut wish.spec);
    wish
}

fn with(facts: &Facts, partitions: &[(&str, &str)]) -> State {
    partitions.iter().fold(State::default(), |state, (name, cpus)| State {
        partitions: create(facts, &state, &wish(name, cpus)).unwrap(),
        ..state
    })
}

#[test]
fn every_unfit_machine_is_refused_for_its_own_reason() {
    let refused = |change: fn(&mut Facts)| {
        let mut facts = machine();
        change(&mut facts);
        check_machine(&facts).unwrap_err()
    };
    assert_eq!(refused(|facts| facts.cgroups.mount = None), Refusal::NoCgroupV2);
    assert_eq!(refused(|facts| facts.cgroups.controllers.clear()), Refusal::NoCpuset);
    assert!(matches!(
        refused(|facts| facts.cgroups.cpuset_v1 = Some("/sys/fs/cgroup/cpuset".into())),
        Refusal::CpusetV1 { .. }
    ));
    assert!(matches!(
        refused(|facts| {
            facts.release = "6.1.0-30-amd64".into();
            facts.cgroups.isolated = None;
        }),
        Refusal::KernelTooOld { .. }
    ));
}

#[test]
fn a_backported_partition_counts_more_than_the_version() {
    let mut facts = machine();
    facts.release = "5.14.0-500.el9".into();
    assert!(check_machine(&facts).is_ok());
}

#[test]
fn every_unfit_wish_is_refused_for_its_own_reason() {
    let facts = machine();
    let state = with(&facts, &[("a", "3")]);
    let refused = |wish: Wish| create(&facts, &state, &wish).unwrap_err();
    assert!(matches!(refused(wish("b", "9")), Refusal::UnknownCpus { .. }));
    assert!(matches!(refused(wish("b", "5")), Refusal::OfflineCpus { .. }));
    // `last` is the last that is free; `N` is the last there is, as in the kernel's lists.
    assert!(matches!(refused(wish("b", "2-N")), Refusal::TakenCpus { .. }));
    assert!(matches!(
        create(&facts, &State::default(), &wish("b", "all")),
        Err(Refusal::LastCpu { .. })
    ));
    assert!(matches!(refused(wish("b", "2-3")), Refusal::TakenCpus { .. }));
    assert!(matches!(refused(wish("b", "0-2")), Refusal::LastCpu { .. }));
    assert!(matches!(refused(wish("b/c", "2")), Refusal::BadName { .. }));
    for name in ["..", "holder", "cgroup.procs", "", "é"] {
        assert!(matches!(refused(wish(name, "2")), Refusal::BadName { .. }), "{name}");
    }
    assert!(matches!(refused(wish("a", "2")), Refusal::NameTaken { .. }));
    let irqs = vec!["eth1".to_owned()];
    assert!(matches!(
        refused(wish_with("b", "2", |spec| spec.irqs = irqs)),
        Refusal::UnknownIrq { .. }
    ));
    let required = wish_with("b", "0", |spec| spec.tick = Tick::RequireOff);
    assert!(matches!(refused(required), Refusal::TickNotCandidate { .. }));
    assert_eq!(destroy(&state, "b").unwrap_err().to_string(), "no partition b: known are: a");
    let none = destroy(&State::default(), "b").unwrap_err();
    assert_eq!(none.to_string(), "no partition b: there are none");
    assert!(matches!(
        resize(&facts, &state, "a", &"0-3".parse().unwrap()).unwrap_err(),
        Refusal::LastCpu { .. }
    ));
}

#[test]
fn cpus_that_somebody_else_isolated_are_refused_but_not_those_of_isolcpus() {
    let mut facts = machine();
    facts.cgroups.isolated = Some(set("3"));
    let made = |facts: &Facts| create(facts, &State::default(), &wish("a", "3"));
    assert!(matches!(made(&facts), Err(Refusal::ForeignIsolated { .. })));
    facts.cpus.boot_isolated = set("3");
    assert!(made(&facts).is_ok());
}

#[test]
fn smt_siblings_go_out_of_use_with_their_core() {
    let mut facts = machine();
    facts.cpus.core_of =
        BTreeMap::from([(0, set("0-1")), (1, set("0-1")), (2, set("2-3")), (3, set("2-3"))]);
    let made = |state: &State, wish: &Wish| create(&facts, state, wish);
    let idle = made(&State::default(), &wish("a", "3")).unwrap();
    assert_eq!((idle[0].cpus.to_string(), idle[0].idle_cpus.to_string()), ("3".into(), "2".into()));
    let shared = wish_with("a", "3", |spec| spec.smt = Smt::Share);
    assert!(made(&State::default(), &shared).unwrap()[0].idle_cpus.is_empty());
    let state = State { partitions: made(&State::default(), &shared).unwrap(), ..State::default() };
    assert!(matches!(made(&state, &wish("b", "2")), Err(Refusal::Sibling { .. })));
    let state = with(&facts, &[("a", "2-3")]);
    assert!(matches!(
        made(&state, &wish("b", "1")),
        Err(Refusal::Sibling { cpu: 1, sibling: 0, .. })
    ));
}

#[test]
fn settings_are_a_function_of_originals_and_partitions_only() {
    let facts = machine();
    let both = with(&facts, &[("a", "3"), ("b", "2")]);
    let other_order = with(&facts, &[("b", "2"), ("a", "3")]);
    let none = BTreeMap::new();
    assert_eq!(
        targets(&facts, &both.partitions, &System::default(), &none),
        targets(&facts, &other_order.partitions, &System::default(), &none)
    );

    let all = targets(&facts, &both.partitions, &System::default(), &none);
    let wanted = |knob| all.get(&knob).map(|target| target.wanted.as_str());
    assert_eq!(wanted(knob::irq_affinity(24)), Some("0-1"));
    assert_eq!(
        wanted(knob::irq_affinity(25)),
        Some("0-1"),
        "a line bound to shielded CPUs goes to the system"
    );
    assert_eq!(wanted(knob::irq_affinity(26)), None, "a line that is elsewhere stays as it is");
    assert_eq!(wanted(knob::watchdog_cpus()), None);
    assert_eq!(wanted(knob::default_irq_affinity()), Some("3"));
    assert!(targets(&facts, &[], &System::default(), &none).is_empty());
}

#[test]
fn an_irq_stays_away_wherever_others_move_it_within_the_system() {
    let facts = machine();
    let state = with(&facts, &[("a", "3")]);
    let all = targets(&facts, &state.partitions, &System::default(), &BTreeMap::new());
    let knob = knob::irq_affinity(24);
    assert!(all[&knob].is_met_by(&knob, "1"));
    assert!(!all[&knob].is_met_by(&knob, "1,3"));
}

#[test]
fn destroying_the_last_partition_plans_every_original_byte_and_the_groups_in_reverse() {
    let mut facts = machine();
    let base = Base::of(&facts).unwrap();
    let mut state = with(&facts, &[("a", "3")]);
    let knob = knob::irq_affinity(24);
    let original = Original::of(&knob, "0,1-3".into(), &facts.cpus);
    state.originals.insert(knob.path.clone(), original);
    facts.irqs[0].affinity_text = "0-2".into();
    let steps = plan(&facts, &base, &state, vec![], System::default()).steps;
    let restores = |step: &Step| match &step.action {
        Action::Set { knob: set, to, .. } => *set == knob && to == "0,1-3",
        _ => false,
    };
    assert!(steps.iter().any(restores));
    let removed: Vec<String> = steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::RemoveGroup { path, .. } => {
                Some(path.file_name()?.to_string_lossy().into_owned())
            }
            _ => None,
        })
        .collect();
    assert_eq!(removed, ["rest", "rt", "a", "asmp"]);
}

#[test]
fn a_line_asked_for_by_name_must_come_and_others_may_refuse_to_go() {
    let facts = machine();
    let base = Base::of(&facts).unwrap();
    let irqs = vec!["24".to_owned()];
    let after =
        create(&facts, &State::default(), &wish_with("a", "3", |spec| spec.irqs = irqs)).unwrap();
    let plan = plan(&facts, &base, &State::default(), after, System::default());
    let of = |irq: u32| {
        let knob = knob::irq_affinity(irq);
        plan.steps
            .iter()
            .find(|step| matches!(&step.action, Action::Set { knob: set, .. } if *set == knob))
            .unwrap()
    };
    assert_eq!(of(24).if_refused, IfRefused::Abort);
    assert_eq!(of(25).if_refused, IfRefused::Name);
}

#[test]
fn lines_that_each_cpu_has_for_itself_are_no_part_of_a_plan() {
    let mut facts = machine();
    facts.irqs[0].per_cpu = true;
    let after = create(&facts, &State::default(), &wish("a", "3")).unwrap();
    let targets = targets(&facts, &after, &System::default(), &BTreeMap::new());
    assert!(!targets.contains_key(&knob::irq_affinity(24)));
    assert!(targets.contains_key(&knob::irq_affinity(25)));
    let irqs = vec!["eth0".to_owned()];
    let refused = create(&facts, &State::default(), &wish_with("b", "3", |spec| spec.irqs = irqs));
    let refusal = refused.unwrap_err();
    assert!(matches!(refusal, Refusal::PerCpuIrq { .. }), "{refusal}");
}

#[test]
fn groups_lie_below_the_service_that_holds_them_whatever_it_is_called() {
    let mut facts = machine();
    facts.systemd = true;
    let dir = |facts: &Facts| Base::of(facts).unwrap().in_tree().display().to_string();
    assert_eq!(dir(&facts), "/asmp.slice/asmp-holder.service");
    facts.cgroups.service = "asmp.service";
    assert_eq!(dir(&facts), "/asmp.slice/asmp.service");
    facts.systemd = false;
    assert_eq!(dir(&facts), "/asmp");
}

#[test]
fn cpus_are_given_up_before_others_take_them() {
    let facts = machine();
    let base = Base::of(&facts).unwrap();
    let state = with(&facts, &[("a", "2-3"), ("b", "1")]);
    let mut after: Vec<Partition> = state.partitions.clone();
    after[0].cpus = set("2");
    after[1].cpus = set("1,3");
    let plan = plan(&facts, &base, &state, after, System::default());
    let writes: Vec<(String, String)> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Set { knob, to, .. } if knob.path.ends_with("rt/cpuset.cpus.exclusive") => {
                Some((knob.path.iter().nth(5)?.to_string_lossy().into_owned(), to.clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(writes, [("a".to_owned(), "2".to_owned()), ("b".to_owned(), "1,3".to_owned())]);
    assert_eq!(shielded(&plan.after).to_string(), "1-3");
}

#[test]
fn what_this_boot_cannot_do_is_said_with_its_cure() {
    let mut facts = machine();
    facts.cpus.nohz_full = CpuSet::new();
    let base = Base::of(&facts).unwrap();
    let after = create(&facts, &State::default(), &wish("a", "3")).unwrap();
    let cannot = plan(&facts, &base, &State::default(), after, System::default()).cannot;
    assert!(cannot.iter().any(|cannot| cannot.cure.contains("nohz_full=3")), "{cannot:?}");
}

#[test]
fn a_priority_of_handlers_that_are_no_threads_is_said_with_its_cure() {
    let said = |facts: &Facts, irqs: &[&str]| {
        let irqs = irqs.iter().map(|irq| (*irq).to_owned()).collect();
        let wish = wish_with("a", "3", |spec| {
            spec.irqs = irqs;
            spec.irq_priority = Some(90);
        });
        let after = create(facts, &State::default(), &wish).unwrap();
        let base = Base::of(facts).unwrap();
        let plan = plan(facts, &base, &State::default(), after, System::default());
        plan.cannot.iter().any(|cannot| {
            cannot.what == "a: the handlers of IRQ lines are no threads: none gets priority 90"
                && cannot.cure.contains("threadirqs")
        })
    };
    let mut facts = machine();
    assert!(!said(&facts, &["24"]), "PREEMPT_RT");
    facts.preempt_rt = false;
    assert!(said(&facts, &["24"]));
    assert!(!said(&facts, &[]), "no line is named");
    facts.command_line = "quiet threadirqs".into();
    assert!(!said(&facts, &["24"]));
}

#[test]
fn timers_are_kept_at_home_where_the_kernel_would_move_them() {
    let wanted = |facts: &Facts, without: &[Aspect]| {
        let wish = wish_with("a", "3", |spec| spec.without = without.to_vec());
        let after = create(facts, &State::default(), &wish).unwrap();
        let targets = targets(facts, &after, &System::default(), &BTreeMap::new());
        targets.get(&knob::timer_migration()).map(|target| target.wanted.clone())
    };
    let mut facts = machine();
    assert_eq!(wanted(&facts, &[]).as_deref(), Some("0"));
    assert_eq!(wanted(&facts, &[Aspect::Timers]), None);
    // The tick of CPU 3 cannot stop: its timers are its own anyway.
    facts.cpus.nohz_full = "1-2".parse().unwrap();
    assert_eq!(wanted(&facts, &[]), None);
}

#[test]
fn a_thread_that_leaves_goes_to_where_its_process_came_from() {
    let facts = machine();
    let mut state = with(&facts, &[("a", "3")]);
    let id = |tid| TaskId { tid, start_ticks: 1 };
    state.partitions[0].tasks = vec![Member {
        task: id(70),
        command: "axis".into(),
        alone: false,
        process: None,
        from: "/user.slice".into(),
        apart: vec![],
        entered: None,
        real_time: vec![],
        policy: None,
    }];
    let thread = Task {
        id: id(77),
        process: 70,
        parent: 1,
        command: "axis".into(),
        kernel_thread: false,
        bound: false,
        allowed_cpus: set("3"),
        group: "/asmp/a/rt".into(),
        zombie: false,
    };
    fn leaves(state: &mut State, task: &Task, process: TaskId) {
        remove_task(state, "a", Subject { task, alone: true, lineage: &[process] }).unwrap();
    }
    leaves(&mut state, &thread, id(70));
    let home = |tid| {
        let found = state.partitions[0].tasks.iter().find(|placed| placed.task == id(tid));
        found.map(|placed| placed.from.display().to_string())
    };
    assert_eq!(home(77).as_deref(), Some("/user.slice"));
    let stranger = Task { id: id(78), process: 78, ..thread };
    leaves(&mut state, &stranger, id(78));
    let root = state.partitions[0].tasks.iter().find(|placed| placed.task == id(78)).unwrap();
    assert_eq!(root.from, std::path::Path::new("/"), "born inside: its parent is unknown");
}

#[test]
fn every_request_crosses_a_socket_unchanged() {
    let spec = || Spec { tick: Tick::RequireOff, ..Spec::of("last:2".parse().unwrap()) };
    let name = || "motion".to_owned();
    let members = Members { pids: vec![7], tids: vec![8], irqs: vec!["eth0".into()], force: false };
    let owner = Some(TaskId { tid: 7, start_ticks: 9 });
    let task = declaration::DeclaredTask {
        command: Some("jackd".into()),
        unit: None,
        user: Some(declaration::UserName::Name("audio".into())),
        policy: Some("fifo:80".parse().unwrap()),
    };
    let declared = declaration::Declared {
        mode: crate::Mode::Isolated,
        name: name(),
        cpus: Some("all-but 0".parse().unwrap()),
        count: None,
        near: None,
        whole_cores: false,
        irqs: vec![declaration::IrqName::Number(24), declaration::IrqName::Name("eth1".into())],
        irq_priority: Some(90),
        tick: Tick::Keep,
        smt: Smt::Share,
        strict: true,
        without: vec![Aspect::Timers],
        tasks: vec![task],
    };
    let requests = [
        Request::Create { name: name(), spec: spec() },
        Request::Run { name: name(), spec: spec(), owner },
        Request::EndRun { name: name(), owner },
        Request::Exec {
            name: name(),
            process: TaskId { tid: 7, start_ticks: 9 },
            command: "app".into(),
        },
        Request::Destroy { name: None, demote: true },
        Request::Resize { name: name(), cpus: "0xc".parse().unwrap() },
        Request::Add { name: name(), members: members.clone() },
        Request::Remove { name: name(), members: members.clone(), demote: false },
        Request::Move { from: name(), to: "audio".into(), members },
        Request::Apply { declaration: Declaration { partitions: vec![declared] } },
        Request::Repair { name: Some(name()) },
        Request::Restore { abandon: false },
        Request::System(System {
            irq_home: Some(set("0-1")),
            timerlat: Some(timerlat::Settings {
                handler: timerlat::Handler::User,
                period_us: 1000,
                cpus: set("3"),
            }),
        }),
    ];
    for request in requests {
        let text = serde_json::to_string(&request).unwrap();
        let back: Request = serde_json::from_str(&text).unwrap();
        assert_eq!(back, request, "{text}");
        let more = text.replacen('{', "{\"surprise\":1,", 1);
        let read = serde_json::from_str::<Request>(&more);
        assert!(read.is_err(), "an unknown field is refused: {more}");
    }
}

#[test]
fn only_root_passes_an_edge_for_root() {
    let caller = |uid| Caller::now(uid, "somebody", "asmp create");
    assert!(caller(0).must_be_root().is_ok());
    assert_eq!(caller(1000).must_be_root(), Err(Refusal::NotRoot));
}
