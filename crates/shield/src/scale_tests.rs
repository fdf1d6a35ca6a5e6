// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time of planning and of verifying grows no faster than the machine. Times are those of this
//! thread on its CPU, so that what else the machine does counts as little as possible;
//! `examples/plan_time.rs` prints the figures of a release build.

use crate::fixture::{Fake, destroy};
use crate::partition::{State, System};
use crate::plan::{Base, Plan, plan};
use crate::request::{Caller, Members, Request, Spec};
use crate::shield::Shield;
use crate::verify::verify;
use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_host::{CpuSet, CpuSpec, Facts, Kernel, Schedule};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

/// Half of the CPUs of a large machine, planned and applied.
struct Scene {
    fake: Fake,
    untouched: Facts,
    base: Base,
    plan: Plan,
    /// The machine and its state with the partition in force.
    facts: Facts,
    state: State,
}

impl Scene {
    fn of(cpus: u32, irq_lines: u32) -> Self {
        let fake = Fake::on(FakeKernel::large(cpus, irq_lines));
        let untouched = Facts::read(&*fake.kernel).unwrap();
        let base = Base::of(&untouched).unwrap();
        let upper: CpuSet = (cpus / 4..cpus / 2).collect();
        let spec = Spec { irqs: vec!["5".into()], ..Spec::of(CpuSpec::List(upper)) };
        let create = Request::Create { name: "a".into(), spec };
        let outcome = fake.done(&create);
        let (plan, state) = (outcome.plan, outcome.state);
        let facts = Facts::read(&*fake.kernel).unwrap();
        Self { fake, untouched, base, plan, facts, state }
    }

    fn create(&self) -> Plan {
        plan(
            &self.untouched,
            &self.base,
            &State::default(),
            self.state.partitions.clone(),
            System::default(),
        )
    }

    fn destroy(&self) -> Plan {
        plan(&self.facts, &self.base, &self.state, Vec::new(), System::default())
    }
}

/// Nanoseconds that this thread has had on a CPU; `None` without CONFIG_SCHED_INFO.
fn on_cpu_ns() -> Option<u64> {
    // The kernel adds up what a thread has had when the thread gives way.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// What `work` costs once.
pub(crate) fn cost<T>(work: &impl Fn() -> T) -> Duration {
    let (start, before) = (std::time::Instant::now(), on_cpu_ns());
    black_box(work());
    let by_kernel =
        before.zip(on_cpu_ns()).map(|(before, after)| Duration::from_nanos(after - before));
    by_kernel.unwrap_or_else(|| start.elapsed())
}

/// The shortest of `ROUNDS` runs on a small and on a large machine, which take turns: another
/// program that fills the caches or slows the CPU down slows down both.
fn shortest<T>(work: impl Fn(&Scene) -> T, small: &Scene, large: &Scene) -> (Duration, Duration) {
    const ROUNDS: usize = 7;
    let rounds: Vec<_> =
        (0..ROUNDS).map(|_| (cost(&|| work(small)), cost(&|| work(large)))).collect();
    (rounds.iter().map(|r| r.0).min().unwrap(), rounds.iter().map(|r| r.1).min().unwrap())
}

/// What is timed: the reading of the machine, the plan to and from half of it, and the status.
///
/// `least`: the times over which the large machine is the larger. Three times as much is allowed
/// for deeper trees, colder caches and neighbours; a square would be `least` times as much.
#[track_caller]
fn assert_linear(least: u32, small: &Scene, large: &Scene) {
    let check = |what: &str, (small, large): (Duration, Duration)| {
        println!("{what}: {small:?}, {large:?}");
        let most = least * 3;
        assert!(large <= small * most, "{what}: {large:?} is more than {most} times {small:?}");
    };
    check("Facts::read", shortest(|s| Facts::read(&*s.fake.kernel).unwrap(), small, large));
    check("plan of create", shortest(Scene::create, small, large));
    check("plan of destroy", shortest(Scene::destroy, small, large));
    check("the plan as JSON", shortest(|s| serde_json::to_string(&s.plan).unwrap(), small, large));
    let status = |s: &Scene| verify(&*s.fake.kernel, &s.facts, &s.base, &s.state, false).unwrap();
    check("verify", shortest(status, small, large));
}

#[test]
fn ten_times_as_many_irq_lines_take_no_more_than_linear_time() {
    assert_linear(10, &Scene::of(512, 200), &Scene::of(512, 2_000));
}

#[test]
fn ten_times_as_many_cpus_take_no_more_than_linear_time() {
    assert_linear(10, &Scene::of(52, 40), &Scene::of(520, 40));
}

#[test]
fn the_partition_of_a_large_machine_is_as_promised_and_a_drifted_line_is_found() {
    let scene = Scene::of(512, 2_000);
    let kernel = &*scene.fake.kernel;
    let status = |facts: &Facts| verify(kernel, facts, &scene.base, &scene.state, false).unwrap();
    assert_eq!(status(&scene.facts).partitions[0].violations, []);
    assert!(scene.create().steps.len() > 1_500);
    kernel.set_file("/proc/irq/2003/smp_affinity_list", "128-511");
    let violations = status(&Facts::read(kernel).unwrap()).partitions[0].violations.clone();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].what.starts_with("/proc/irq/2003/"), "{violations:?}");
}

#[test]
fn a_large_machine_is_as_it_was_after_its_partition() {
    let scene = Scene::of(512, 2_000);
    let changes = scene.fake.done(&destroy("a")).changes;
    assert!(changes > 1_500, "only {changes}");
    scene.fake.is_untouched("destroyed");
}

/// A process of `threads` threads, which goes into a partition and comes back with its end.
fn process_comes_and_goes(threads: i32) -> impl Fn() {
    let kernel = Arc::new(FakeKernel::new());
    for tid in 1_000..1_000 + threads {
        kernel.start(tid, 1_000, "app", Schedule::Fifo { priority: 1 });
    }
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
    let ask = move |request: &Request| {
        let _kept = &dir;
        shield.change(request, &Caller::now(0, "root", "test")).unwrap();
    };
    move || {
        ask(&Request::Create { name: "a".into(), spec: Spec::of("3".parse().unwrap()) });
        let members = Members { pids: vec![1_000], ..Members::default() };
        ask(&Request::Add { name: "a".into(), members });
        assert_eq!(kernel.allowed(999 + threads).unwrap().to_string(), "3");
        ask(&Request::Destroy { name: Some("a".into()), demote: false });
        assert_eq!(kernel.allowed(999 + threads).unwrap().to_string(), "0-3");
    }
}

#[test]
fn ten_times_as_many_threads_come_and_go_in_no_more_than_linear_time() {
    const ROUNDS: usize = 3;
    let (small, large) = (process_comes_and_goes(500), process_comes_and_goes(5_000));
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (cost(&small), cost(&large))).collect();
    let small = rounds.iter().map(|round| round.0).min().unwrap();
    let large = rounds.iter().map(|round| round.1).min().unwrap();
    println!("a process of 500 and of 5,000 threads: {small:?}, {large:?}");
    assert!(large <= small * 30, "{large:?} is more than 30 times {small:?}");
}
