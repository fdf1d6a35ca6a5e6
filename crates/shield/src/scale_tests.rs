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

/// The shortest of several runs.
fn shortest<T>(work: impl Fn() -> T) -> Duration {
    let one = || {
        let (start, before) = (std::time::Instant::now(), on_cpu_ns());
        black_box(work());
        let by_kernel =
            before.zip(on_cpu_ns()).map(|(before, after)| Duration::from_nanos(after - before));
        by_kernel.unwrap_or_else(|| start.elapsed())
    };
    (0..3).map(|_| one()).min().unwrap()
}

/// What is timed: the reading of the machine, the plan to and from half of it, and the status.
fn times(scene: &Scene) -> [(&'static str, Duration); 5] {
    let Scene { kernel, base, facts, state, plan, .. } = scene;
    [
        ("Facts::read", shortest(|| Facts::read(&**kernel).unwrap())),
        ("plan of create", shortest(|| scene.create())),
        ("plan of destroy", shortest(|| scene.destroy())),
        ("the plan as JSON", shortest(|| serde_json::to_string(plan).unwrap())),
        ("verify", shortest(|| verify(&**kernel, facts, base, state, false).unwrap())),
    ]
}

/// `reading`: the factor for reading the machine, whose texts grow with CPUs times lines.
#[track_caller]
fn assert_at_most(factor: u32, reading: u32, small: &Scene, large: &Scene) {
    for ((what, small), (_, large)) in times(small).into_iter().zip(times(large)) {
        println!("{what}: {small:?}, {large:?}");
        let factor = if what == "Facts::read" { reading } else { factor };
        assert!(large <= small * factor, "{what}: {large:?} is more than {factor} times {small:?}");
    }
}

#[test]
fn two_thousand_irq_lines_take_at_most_ten_times_as_long_as_two_hundred() {
    assert_at_most(10, 15, &Scene::of(512, 200), &Scene::of(512, 2_000));
}

#[test]
fn ten_times_as_many_cpus_take_no_more_than_linear_time() {
    // Half as much again for deeper trees and colder caches; a square would be a hundred times.
    assert_at_most(15, 15, &Scene::of(52, 40), &Scene::of(520, 40));
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
