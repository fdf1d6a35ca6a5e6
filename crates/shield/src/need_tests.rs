// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs by need on a machine in memory: what is read of it, what is kept, and what a file with
//! needs does when it is applied again.

use crate::choose::{Chosen, Need};
use crate::declaration::{Declaration, Declared, IrqName};
use crate::outcome::Outcome;
use crate::partition::{Refusal, Smt, State, Tick};
use crate::request::{Caller, Cpus, Members, Request, Spec};
use crate::shield::{ChangeError, Shield};
use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_host::{CpuSet, Kernel, Schedule};
use std::sync::Arc;

struct Scene {
    kernel: Arc<FakeKernel>,
    shield: Shield,
    _dir: tempfile::TempDir,
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn caller() -> Caller {
    Caller::now(0, "root", "test")
}

fn need(count: usize, near: &str) -> Need {
    let near = Some(near.to_owned()).filter(|near| !near.is_empty());
    Need { count, near, whole_cores: false }
}

fn create(name: &str, need: Need) -> Request {
    Request::Create { name: name.to_owned(), spec: Spec::needing(need) }
}

fn named(name: &str, cpus: &str) -> Declared {
    Declared {
        mode: crate::Mode::Isolated,
        name: name.to_owned(),
        cpus: Some(cpus.parse().unwrap()),
        count: None,
        near: None,
        whole_cores: false,
        irqs: Vec::new(),
        irq_priority: None,
        tick: Tick::Off,
        smt: Smt::Idle,
        strict: false,
        without: Vec::new(),
        tasks: Vec::new(),
    }
}

fn asks(name: &str, count: usize, near: &str) -> Declared {
    let near = Some(IrqName::Name(near.to_owned())).filter(|_| !near.is_empty());
    Declared { cpus: None, count: Some(count), near, ..named(name, "0") }
}

impl Scene {
    fn on(kernel: FakeKernel) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let kernel = Arc::new(kernel);
        let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
        Self { kernel, shield, _dir: dir }
    }

    /// 16 CPUs: nodes 0-3,8-11 and 4-7,12-15; eth1 is on the second.
    fn server() -> Self {
        let scene = Self::on(FakeKernel::large(16, 8));
        scene.kernel.set_file("/sys/class/net/eth1/device/local_cpulist", "4-7,12-15");
        scene.kernel.set_file("/sys/class/net/eth0/device/local_cpulist", "0-3,8-11");
        scene.kernel.set_file("/sys/class/net/lo/mtu", "65536");
        for cache in ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"] {
            scene.kernel.share_cache(&set(cache));
        }
        scene
    }

    fn change(&self, request: &Request) -> Result<Outcome, ChangeError> {
        self.shield.change(request, &caller())
    }

    fn refused(&self, request: &Request) -> Refusal {
        let planned = self.shield.plan(request, &caller()).unwrap_err();
        match self.change(request).unwrap_err() {
            ChangeError::Refused(refusal) => {
                assert_eq!(planned.to_string(), refusal.to_string());
                refusal
            }
            other => panic!("{other}"),
        }
    }

    #[track_caller]
    fn creates(&self, name: &str, need: Need) -> String {
        let request = create(name, need);
        let planned = self.shield.plan(&request, &caller()).unwrap().1.chosen;
        let outcome = self.change(&request).unwrap();
        assert_eq!(planned, outcome.plan.chosen, "plan and create choose the same");
        self.cpus(&outcome.state, name)
    }

    fn cpus(&self, state: &State, name: &str) -> String {
        state.partition(name).unwrap().cpus.to_string()
    }

    #[track_caller]
    fn applies(&self, partitions: &[Declared], cpus: &[&str]) -> Vec<Chosen> {
        let declaration = Declaration { partitions: partitions.to_vec() };
        let apply = Request::Apply { declaration };
        let outcome = self.change(&apply).unwrap();
        let got: Vec<String> =
            partitions.iter().map(|one| self.cpus(&outcome.state, &one.name)).collect();
        assert_eq!(got, cpus);
        let again = self.change(&apply).unwrap();
        assert_eq!(again.changes, 0, "applied again: {:?}", again.plan.steps);
        assert_eq!(again.state.partitions, outcome.state.partitions);
        assert!(again.plan.chosen.iter().all(|chosen| chosen.kept), "{:?}", again.plan.chosen);
        outcome.plan.chosen
    }
}

#[test]
fn cpus_are_near_what_is_named() {
    for (near, cpus) in [
        ("", "14-15"),
        ("eth1", "14-15"),
        ("eth0", "10-11"),
        ("node0", "10-11"),
        // Lines without a node: one of half of the machine, and one of CPU 2.
        ("5", "10-11"),
        ("nvme0q2", "10-11"),
    ] {
        let scene = Scene::server();
        assert_eq!(scene.creates("a", need(2, near)), cpus, "{near}");
        let status = scene.shield.status().unwrap();
        assert_eq!(status.partitions[0].violations, []);
        assert_eq!(scene.kernel.isolated().len(), 4, "their siblings idle");
    }
}

#[test]
fn what_is_no_place_is_refused_with_what_there_is() {
    let scene = Scene::server();
    let refused = |near: &str| scene.refused(&create("a", need(1, near)));
    for near in ["eth7", "node2", "4711", "../eth1"] {
        let refusal = refused(near);
        let Refusal::UnknownPlace { name, known } = &refusal else { panic!("{refusal}") };
        assert_eq!(name, near);
        assert!(known.starts_with("nodes node0, node1; network interfaces eth0, eth1; "));
        assert!(!refusal.to_string().contains('\n'));
    }
    assert!(matches!(refused("lo"), Refusal::VirtualPlace { .. }));
    // A node of memory alone.
    scene.kernel.set_file("/sys/devices/system/node/node2/cpulist", "");
    let refusal = refused("node2");
    assert!(matches!(refusal, Refusal::EmptyPlace { .. }), "{refusal}");
    scene.kernel.remove_file("/sys/devices/system/node/node2/cpulist");
    assert!(scene.shield.state().unwrap().partitions.is_empty());
}

#[test]
fn a_device_of_which_no_place_is_known_is_near_every_cpu_and_the_plan_says_so() {
    let scene = Scene::server();
    scene.kernel.set_file("/sys/class/net/end0/device/uevent", "");
    let chosen = scene.shield.plan(&create("a", need(1, "end0")), &caller()).unwrap().1.chosen;
    let why = "as near to end0 (where it is, is not known) as every CPU; node 1";
    assert!(chosen[0].choice.reasons[0].why.starts_with(why), "{chosen:?}");
}

#[test]
fn cpus_of_others_are_not_chosen_and_a_refusal_says_whose_they_are() {
    let scene = Scene::on(FakeKernel::new());
    assert_eq!(scene.creates("a", need(1, "")), "3");
    // Of another program: exclusive ones cannot be had, others are asked for.
    scene.kernel.make_group("/vm", &set("2"), &set("2"));
    assert_eq!(scene.creates("b", need(1, "")), "1");
    let refusal = scene.refused(&create("c", need(2, "")));
    let Refusal::TooFewCpus { count: 2, most, free, held } = refusal else { panic!("{refusal}") };
    // The group's CPU stays with the system, so CPU 0 need not.
    assert_eq!((most, free), (1, set("0")));
    assert_eq!(held, "; partition a has CPU 3; partition b has CPU 1; group /vm has CPU 2");
}

#[test]
fn cpus_that_groups_of_others_ask_for_come_last() {
    let scene = Scene::on(FakeKernel::new());
    scene.kernel.make_group("/docker", &set("2-3"), &set(""));
    scene.kernel.start(300, 300, "web", Schedule::Other { nice: 0 });
    scene.kernel.place(300, "/docker", None);
    assert_eq!(scene.creates("a", need(1, "")), "1");
    scene.kernel.set_online(2, false);
    let outcome = scene.change(&create("b", need(1, ""))).unwrap();
    assert_eq!(scene.cpus(&outcome.state, "b"), "3");
    assert!(!outcome.plan.affected.is_empty());
}

#[test]
fn a_file_with_needs_changes_nothing_when_it_is_applied_again() {
    let scene = Scene::server();
    let file = [asks("a", 2, "eth1"), asks("b", 1, ""), named("c", "15"), asks("d", 1, "eth0")];
    // Those that name their CPUs get them first.
    let chosen = scene.applies(&file, &["12-13", "14", "15", "11"]);
    assert!(chosen.iter().all(|chosen| !chosen.kept));
    assert_eq!(chosen.iter().map(|one| &*one.partition).collect::<Vec<_>>(), ["a", "b", "d"]);
    // Another is made and goes: the others keep theirs, though better ones are free.
    scene.change(&Request::Destroy { name: Some("c".to_owned()), demote: false }).unwrap();
    let rest = [asks("a", 2, "eth1"), asks("b", 1, ""), asks("d", 1, "eth0")];
    scene.applies(&rest, &["12-13", "14", "11"]);
    // What changes is what changed in the file.
    scene.applies(&[asks("a", 3, "eth1"), asks("b", 1, "eth0")], &["12-13,15", "10"]);
    scene.applies(&[asks("b", 1, ""), named("e", "10")], &["14", "10"]);
}

#[test]
fn a_partition_of_a_file_moves_where_its_cpus_no_longer_satisfy_its_need() {
    let scene = Scene::server();
    scene.applies(&[asks("a", 2, "")], &["14-15"]);
    scene.applies(&[asks("a", 2, "eth0")], &["10-11"]);
    let whole = |count| Declared { whole_cores: true, ..asks("a", count, "eth0") };
    scene.applies(&[whole(2)], &["3,11"]);
    scene.applies(&[whole(4)], &["2-3,10-11"]);
    // All that is near is taken; then it is free again.
    scene.applies(&[named("b", "4-7"), asks("a", 1, "eth1")], &["4-7", "11"]);
    scene.change(&Request::Destroy { name: Some("b".to_owned()), demote: false }).unwrap();
    let chosen = scene.applies(&[asks("a", 1, "eth1")], &["15"]);
    assert!(!chosen[0].kept);
}

#[test]
fn a_partition_does_not_follow_an_irq_line_that_has_no_node() {
    let scene = Scene::server();
    let goes_to = |cpu: &str| {
        for file in ["smp_affinity_list", "effective_affinity_list"] {
            scene.kernel.set_file(&format!("/proc/irq/4/{file}"), cpu);
        }
    };
    goes_to("7");
    scene.applies(&[asks("a", 2, "4")], &["14-15"]);
    goes_to("2");
    let chosen = scene.applies(&[asks("a", 2, "4")], &["14-15"]);
    let reason = &chosen[0].choice.reasons[0].why;
    assert!(reason.contains("; the partition stays where it is"), "{reason}");
    // More CPUs are a new choice.
    scene.applies(&[asks("a", 3, "4")], &["3,10-11"]);
}

#[test]
fn two_that_want_the_same_place_come_to_rest() {
    let scene = Scene::server();
    scene.change(&create("x", need(3, "eth1"))).unwrap();
    scene.change(&create("y", need(1, "eth1"))).unwrap();
    assert_eq!(scene.kernel.isolated(), set("4-7,12-15"));
    let file = [asks("a", 2, "eth1"), asks("b", 2, "eth1")];
    scene.applies(&file, &["10-11", "1,9"]);
    scene.change(&Request::Destroy { name: Some("x".to_owned()), demote: false }).unwrap();
    // Nearer CPUs are free: both move there, once.
    scene.applies(&file, &["14-15", "5,13"]);
}

#[test]
fn a_file_says_either_which_cpus_or_how_many() {
    let both = Declared { count: Some(1), ..named("a", "3") };
    let near = Declared { near: Some(IrqName::Number(4)), ..named("a", "3") };
    let whole = Declared { whole_cores: true, ..named("a", "3") };
    let none = Declared { cpus: None, ..named("a", "3") };
    for (declared, says) in [
        (both, "either cpus or count"),
        (near, "near and whole_cores go with count"),
        (whole, "near and whole_cores go with count"),
        (none, "cpus or count is missing"),
        (asks("a", 0, ""), "count = 0"),
    ] {
        let error = Declaration { partitions: vec![declared] }.check().unwrap_err().reason;
        assert!(error.starts_with("partition a: ") && error.contains(says), "{error}");
    }
}

#[test]
fn a_request_crosses_a_socket_with_its_need() {
    let spec = Spec::needing(Need { whole_cores: true, ..need(2, "eth1") });
    let request = Request::Create { name: "a".to_owned(), spec };
    let text = serde_json::to_string(&request).unwrap();
    let says = r#""cpus":{"count":2,"near":"eth1","whole_cores":true}"#;
    assert!(text.contains(says), "{text}");
    assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
    let old = r#"{"request":"create","name":"a","spec":{"cpus":"2-3"}}"#;
    let Request::Create { spec, .. } = serde_json::from_str(old).unwrap() else { panic!() };
    assert_eq!(spec.cpus, Cpus::Named("2-3".parse().unwrap()));
    for wrong in [r#"{"count":2,"far":"x"}"#, "3", r#""three""#] {
        let text = old.replace(r#""2-3""#, wrong);
        assert!(serde_json::from_str::<Request>(&text).is_err(), "{wrong}");
    }
}

#[test]
fn a_partition_moves_off_a_cpu_that_is_offline() {
    let small = || (Scene::on(FakeKernel::new()), 3, "2", "2");
    // With SMT siblings, which idle.
    let server = || (Scene::server(), 15, "14", "6,14");
    let scenes: [&dyn Fn() -> (Scene, u32, &'static str, &'static str); 2] = [&small, &server];
    for (scene, has_task) in scenes.iter().flat_map(|scene| [(scene, false), (scene, true)]) {
        for apply in [false, true] {
            let (scene, offline, to, isolated) = scene();
            assert_eq!(scene.creates("a", need(1, "")), offline.to_string());
            if has_task {
                scene.kernel.start(300, 300, "app", Schedule::Fifo { priority: 80 });
                let members = Members { pids: vec![300], ..Members::default() };
                scene.change(&Request::Add { name: "a".to_owned(), members }).unwrap();
            }
            scene.kernel.set_online(offline, false);
            let resize = Request::Resize { name: "a".to_owned(), cpus: to.parse().unwrap() };
            let declaration = Declaration { partitions: vec![asks("a", 1, "")] };
            let request = if apply { Request::Apply { declaration } } else { resize };
            let outcome = scene.change(&request).unwrap();
            assert_eq!(scene.cpus(&outcome.state, "a"), to, "task: {has_task}, apply: {apply}");
            assert_eq!(scene.kernel.isolated(), set(isolated));
        }
    }
}
