// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time of planning and of verifying grows no faster than the machine. Times are those of this
//! thread on its CPU, so that what else the machine does counts as little as possible;
//! `examples/plan_time.rs` prints the figures of a release build.

use crate::partition::{State, System};
use crate::plan::{Base, Plan, plan};
use crate::request::{Caller, Request, Spec};
use crate::shield::Shield;
use crate::verify::verify;
use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_host::{CpuSet, CpuSpec, Facts, Kernel};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

/// Half of the CPUs of a large machine, planned and applied.
struct Scene {
    kernel: Arc<FakeKernel>,
    untouched: Facts,
    base: Base,
    plan: Plan,
    /// The machine and its state with the partition in force.
    facts: Facts,
    state: State,
}

impl Scene {
    fn of(cpus: u32, irq_lines: u32) -> Self {
        let kernel = Arc::new(FakeKernel::large(cpus, irq_lines));
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
        let untouched = Facts::read(&*kernel).unwrap();
        let base = Base::of(&untouched).unwrap();
        let upper: CpuSet = (cpus / 4..cpus / 2).collect();
        let spec = Spec { irqs: vec!["5".into()], ..Spec::of(CpuSpec::List(upper)) };
        let create = Request::Create { name: "a".into(), spec };
        let outcome = shield.change(&create, &Caller::now(0, "root", "test")).unwrap();
        let (plan, state) = (outcome.plan, outcome.state);
        let facts = Facts::read(&*kernel).unwrap();
        Self { kernel, untouched, base, plan, facts, state }
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
    check("Facts::read", shortest(|s| Facts::read(&*s.kernel).unwrap(), small, large));
    check("plan of create", shortest(Scene::create, small, large));
    check("plan of destroy", shortest(Scene::destroy, small, large));
    check("the plan as JSON", shortest(|s| serde_json::to_string(&s.plan).unwrap(), small, large));
    let status = |s: &Scene| verify(&*s.kernel, &s.facts, &s.base, &s.state, false).unwrap();
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
    let status =
        |facts: &Facts| verify(&*scene.kernel, facts, &scene.base, &scene.state, false).unwrap();
    assert_eq!(status(&scene.facts).partitions[0].violations, []);
    assert!(scene.create().steps.len() > 1_500);
    scene.kernel.set_file("/proc/irq/2003/smp_affinity_list", "128-511");
    let violations = status(&Facts::read(&*scene.kernel).unwrap()).partitions[0].violations.clone();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].what.starts_with("/proc/irq/2003/"), "{violations:?}");
}
