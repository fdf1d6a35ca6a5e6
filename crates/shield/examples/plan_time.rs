// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long deciding takes on large machines, made of plain values (nothing here touches the machine):
//! `cargo run --release -p asmp-shield --example plan_time`. Times in ms, the best of ten.

use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_host::{CpuSet, Facts};
use asmp_shield::apply::{Way, apply};
use asmp_shield::plan::{Base, Plan, plan};
use asmp_shield::request::{Wish, create};
use asmp_shield::verify::verify;
use asmp_shield::{Smt, State, Tick};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() {
    println!("cpus   lines  facts    request  plan     json     verify   destroy");
    for (cpus, lines) in [(512, 200), (512, 500), (512, 1000), (512, 2000), (128, 2000), (256, 2000)] {
        let kernel = FakeKernel::large(cpus, lines);
        let untouched = Facts::read(&kernel).unwrap();
        let base = Base::of(&untouched).unwrap();
        let none = State::default();
        let wish = wish(cpus);
        let after = create(&untouched, &none, &wish).unwrap();
        let made = plan(&untouched, &base, &none, after.clone(), None);
        let state = applied(&kernel, &untouched, &base, &made);
        let facts = Facts::read(&kernel).unwrap();
        let times = [
            best(|| Facts::read(&kernel).unwrap()),
            best(|| create(&untouched, &none, &wish).unwrap()),
            best(|| plan(&untouched, &base, &none, after.clone(), None)),
            best(|| serde_json::to_string(&made).unwrap()),
            best(|| verify(&kernel, &facts, &base, &state, false).unwrap()),
            best(|| plan(&facts, &base, &state, Vec::new(), None)),
        ];
        print!("{cpus:5} {lines:6}");
        times.iter().for_each(|time| print!(" {:8.3}", time.as_secs_f64() * 1e3));
        println!("  ({} steps)", made.steps.len());
    }
}

/// Takes the steps of a plan; the state that holds then.
fn applied(kernel: &FakeKernel, facts: &Facts, base: &Base, plan: &Plan) -> State {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut journal = Store::at(dir.path()).journal("journal").unwrap();
    let applied = apply(kernel, facts, base, plan, &mut Way::new(&mut journal)).unwrap();
    State { partitions: plan.after.clone(), originals: applied.originals, ..State::default() }
}

/// The upper half of each socket's cores.
fn wish(cpus: u32) -> Wish {
    let upper: CpuSet = (cpus / 4..cpus / 2).collect();
    Wish {
        name: "a".into(),
        cpus: upper.to_string().parse().unwrap(),
        irqs: vec!["5".into()],
        irq_priority: None,
        tick: Tick::Off,
        smt: Smt::Idle,
        without: Vec::new(),
        strict: false,
        created_s: 0,
        created_by: "plan_time".into(),
        owner: None,
    }
}

fn best<T>(work: impl Fn() -> T) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        black_box(work());
        best = best.min(start.elapsed());
        if best > Duration::from_secs(1) {
            break;
        }
    }
    best
}
