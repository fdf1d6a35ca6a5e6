// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long deciding takes on large machines, made of plain values (nothing here touches the
//! machine): `cargo run --release -p asmp-shield --example plan_time`. Times in ms, the best of
//! ten.

use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_host::{CpuSet, CpuSpec, Facts, Kernel};
use asmp_shield::System;
use asmp_shield::plan::{Base, plan};
use asmp_shield::verify::verify;
use asmp_shield::{Caller, Request, Shield, Spec, State};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    println!("             all of            its parts:                         all of");
    println!("cpus   lines  plan     facts    create   destroy  JSON     verify   status");
    for (cpus, lines) in
        [(512, 200), (512, 500), (512, 1000), (512, 2000), (128, 2000), (256, 2000)]
    {
        let kernel = Arc::new(FakeKernel::large(cpus, lines));
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
        let caller = Caller::now(0, "root", "plan_time");
        let (none, untouched) = (State::default(), Facts::read(&*kernel).unwrap());
        let base = Base::of(&untouched).unwrap();

        let create = create(cpus);
        let whole_plan = best(|| shield.plan(&create, &caller).unwrap());
        let made = shield.change(&create, &caller).unwrap();
        let (plan_made, state) = (made.plan, made.state);
        let facts = Facts::read(&*kernel).unwrap();
        let after = &state.partitions;
        let times = [
            whole_plan,
            best(|| Facts::read(&*kernel).unwrap()),
            best(|| plan(&untouched, &base, &none, after.clone(), System::default())),
            best(|| plan(&facts, &base, &state, Vec::new(), System::default())),
            best(|| serde_json::to_string(&plan_made).unwrap()),
            best(|| verify(&*kernel, &facts, &base, &state, false).unwrap()),
            best(|| shield.status().unwrap()),
        ];
        print!("{cpus:5} {lines:6}");
        times.iter().for_each(|time| print!(" {:8.3}", time.as_secs_f64() * 1e3));
        println!("  ({} steps)", plan_made.steps.len());
    }
}

/// The upper half of the cores.
fn create(cpus: u32) -> Request {
    let upper: CpuSet = (cpus / 4..cpus / 2).collect();
    let spec = Spec { irqs: vec!["5".into()], ..Spec::of(CpuSpec::List(upper)) };
    Request::Create { name: "a".into(), spec }
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
