// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary task sets through every test, placement and simulation.

use super::numbers::{Met, index, number, one_in, some};
use asmp_analysis::Chain;
use asmp_analysis::deadline::{Domain, admission, ratio};
use asmp_analysis::holistic::holistic;
use asmp_analysis::place::{By, Room, place};
use asmp_analysis::simulate::{
    Background, Execution, Interrupt, Random, Record, Releases, Run, Simulation, Statistics,
    first_miss, gantt_svg, perfetto_trace, replay, worst_pattern,
};
use asmp_analysis::{
    Arrival, Class, Cost, Effort, Policy, Start, Task, TimeBase, Utilisation, budgets,
    edf_response, fp, np_fp, rm, schedulability, slack,
};

/// A third of the sets are plain, a third are sane, a third is anything.
fn tasks(random: &mut Random) -> Vec<Task> {
    let count = index(random, 7);
    let kind = random.up_to(2);
    let (plain, sane) = (kind == 0, kind < 2);
    let ranked = random.up_to(3) > 0;
    let mut all = Vec::new();
    for at in 0..count {
        let period = if sane { 2 + random.up_to(60) } else { number(random) };
        let cost = if sane { 1 + random.up_to(period / 3) } else { number(random) };
        let mut task = Task::new(format!("t{at} <&\"\u{7}"), cost, period);
        task.arrival = if one_in(random, 2) { Arrival::Sporadic } else { Arrival::Periodic };
        task.priority = (ranked || one_in(random, 2)).then(|| random.next() as u32);
        task.class = if one_in(random, 2) { Class::High } else { Class::Low };
        task.core = one_in(random, 2).then(|| random.up_to(3) as u32);
        task.app = one_in(random, 2).then(|| format!("app{}", random.up_to(2)));
        task.memory_bytes = some(random);
        task.bandwidth = some(random);
        if one_in(random, 4) {
            task.cost = Cost::Measured { ticks: cost, run: "run".to_owned() };
        }
        if !plain {
            if one_in(random, 2) {
                task.deadline_ticks =
                    if sane { 1 + random.up_to(2 * period) } else { number(random) };
            }
            task.offset_ticks =
                one_in(random, 3).then(|| if sane { random.up_to(period) } else { number(random) });
            task.jitter_ticks = if sane { some(random) % 20 } else { some(random) };
            task.blocking_ticks = if sane { some(random) % 9 } else { some(random) };
        }
        all.push(task);
    }
    all
}

fn starts(random: &mut Random) -> Vec<Start> {
    let start = |random: &mut Random| Start {
        task: random.up_to(8) as usize,
        arrival_ticks: number(random),
        release_ticks: number(random),
        held_up_ticks: some(random),
    };
    (0..random.up_to(5)).map(|_| start(random)).collect()
}

/// All tests, placements and simulations of one arbitrary set.
pub fn once(seed: u64, met: &mut Met) {
    let random = &mut Random::new(seed);
    let effort = Effort { steps: 5_000, jobs: 100 };
    let tasks = tasks(random);
    for verdict in [budgets::test(&tasks), rm::liu_layland(&tasks), rm::hyperbolic(&tasks)] {
        met.verdict(&verdict);
    }
    for policy in Policy::ALL {
        let verdict = schedulability(&tasks, policy, &effort);
        met.verdict(&verdict);
        if let Some(counterexample) = verdict.counterexample() {
            let _ =
                replay(&tasks, policy, &counterexample.pattern, counterexample.by_ticks, &effort);
        }
        assert!(serde_json::to_string(&verdict).is_ok());
        let _ = worst_pattern(&tasks, policy, random.up_to(7) as usize);
        let _ = policy.ranks(&tasks);
    }
    let policy = Policy::ALL[index(random, Policy::ALL.len())];
    let _ = replay(&tasks, policy, &starts(random), Some(number(random)), &effort);
    let _ = (fp::analyse(&tasks, policy, &effort), np_fp::analyse(&tasks, &effort));
    let utilisation = Utilisation::of(&tasks);
    let _ = (utilisation.approximate(), utilisation.compare_to_one(&tasks));
    met.worked(edf_response::responses(&tasks, one_in(random, 2), &effort).is_ok());
    let little = Effort { steps: 2_000, jobs: 10 };
    met.worked(slack::slack(&tasks, policy, 2, &little).is_ok());
    let _ = slack::largest_cost(&tasks, index(random, 7), policy, &little);
    let mut domain = Domain::of(random.up_to(4) as u32);
    domain.rt_runtime_us = (random.up_to(3) > 0).then(|| number(random));
    domain.rt_period_us = number(random);
    domain.servers = ratio(some(random), number(random));
    domain.least_period_ns = some(random);
    domain.most_period_ns = number(random);
    let room = Room { memory_bytes: Some(number(random)), bandwidth: Some(number(random)) };
    met.worked(admission(&tasks, &room, &domain, &little).is_ok());
    let by = [By::FirstFit, By::BestFit, By::WorstFit, By::BfdPartitioned][index(random, 4)];
    met.worked(place(&tasks, &[0, 1, 1], by, policy, &room, &little).is_ok());
    let chain = Chain {
        name: "c".to_owned(),
        tasks: (0..random.up_to(3)).map(|_| random.up_to(6) as usize).collect(),
        deadline_ticks: number(random),
    };
    met.worked(holistic(&tasks, std::slice::from_ref(&chain), policy, &little).is_ok());
    simulate(random, &tasks, policy, chain, met);
}

fn simulate(random: &mut Random, tasks: &[Task], policy: Policy, chain: Chain, met: &mut Met) {
    let releases = match random.up_to(2) {
        0 => Releases::Together,
        1 => Releases::Random,
        _ => Releases::Pattern(starts(random)),
    };
    let execution = Execution {
        least_ppm: number(random) as u32,
        overrun_chance_ppm: some(random) as u32,
        overrun_ppm: number(random) as u32,
    };
    let background = [Background {
        name: "b".to_owned(),
        cost_ticks: number(random),
        period_ticks: number(random),
        core: Some(9),
    }];
    let interrupts = [Interrupt {
        name: "i".to_owned(),
        flag_ticks: some(random),
        service_ticks: number(random),
        gap_ticks: if one_in(random, 4) { None } else { Some(number(random)) },
        core: None,
        entry: None,
        most: None,
    }];
    let simulation = Simulation {
        seed: random.next(),
        execution,
        background: &background,
        interrupts: &interrupts,
        chains: &[chain],
        ..Simulation::new(tasks, policy, releases)
    };
    let _ = first_miss(&simulation, number(random), 50);
    let Ok(mut run) = Run::prepare(&simulation) else { return };
    met.worked(true);
    let (mut statistics, mut record) = (Statistics::of(&run), Record::up_to(12));
    let until_ticks = number(random);
    run.go(until_ticks, 60, &mut (&mut statistics, &mut record));
    let _ = (statistics.rows(&run), statistics.misses(&run), statistics.miss_count(&run));
    let trace = perfetto_trace(&run, &record, TimeBase::NANOSECONDS);
    assert!(
        serde_json::from_str::<serde::de::IgnoredAny>(&trace).is_ok(),
        "the trace is JSON: {trace}"
    );
    let picture =
        gantt_svg(&run, &record, until_ticks, "<title> & \"more\"", TimeBase::NANOSECONDS);
    assert!(picture.ends_with("</svg>\n"));
}

/// A trace and a picture of a seed.
pub fn bytes(seed: u64) -> String {
    let tasks =
        [Task::new("a", 3, 10).sporadic(), Task::new("b", 4, 15).jitter(3), Task::new("c", 5, 40)];
    let simulation =
        Simulation { seed, ..Simulation::new(&tasks, Policy::NpEdf, Releases::Random) };
    let mut run = Run::prepare(&simulation).expect("a set");
    let mut record = Record::up_to(1000);
    run.go(1000, 1000, &mut record);
    perfetto_trace(&run, &record, TimeBase::NANOSECONDS)
        + &gantt_svg(&run, &record, 1000, "bytes", TimeBase::NANOSECONDS)
}
