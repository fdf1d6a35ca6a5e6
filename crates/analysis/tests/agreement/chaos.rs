//! Arbitrary input for every public function: nothing may panic, overflow or run away. Kept as a loop that a seed decides,
//! so that what once failed can be tried again.

use asmp_analysis::chain::{Chain, holistic};
use asmp_analysis::deadline::{Domain, admission};
use asmp_analysis::place::{By, Room, place};
use asmp_analysis::simulate::{
    Background, Execution, Interrupt, Random, Record, Releases, Run, Simulation, Statistics, first_miss,
    gantt, perfetto, replay, worst_pattern,
};
use asmp_analysis::{
    Arrival, Class, Cost, Effort, Policy, Start, Task, budgets, edf_response, file, fp, np_fp, rm, slack,
    units,
};

/// Small, ordinary, extreme: what arithmetic trips over.
fn number(random: &mut Random) -> u64 {
    match random.up_to(11) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => 1 << random.up_to(63),
        4 => (1 << random.up_to(63)) - 1,
        5 => random.next(),
        6 => random.up_to(1 << 60),
        7 | 8 => random.up_to(1_000_000_000),
        _ => 1 + random.up_to(50),
    }
}

fn some(random: &mut Random) -> u64 {
    if random.up_to(2) == 0 { number(random) } else { 0 }
}

fn tasks(random: &mut Random) -> Vec<Task> {
    let count = random.up_to(6) as usize;
    let sane = random.up_to(2) > 0;
    let mut all = Vec::new();
    for at in 0..count {
        let period = if sane { 2 + random.up_to(60) } else { number(random) };
        let cost = if sane { 1 + random.up_to(period / 4) } else { number(random) };
        let mut task = Task::new(format!("t{at} <&\"\u{7}"), cost, period);
        if random.up_to(1) == 0 {
            task.deadline_ns = if sane { 1 + random.up_to(2 * period) } else { number(random) };
        }
        if random.up_to(3) == 0 {
            task.cost = Cost::Measured { ns: cost, run: "run".to_owned() };
        }
        task.arrival = if random.up_to(1) == 0 { Arrival::Sporadic } else { Arrival::Periodic };
        task.offset_ns =
            (random.up_to(2) == 0).then(|| if sane { random.up_to(period) } else { number(random) });
        task.jitter_ns = if sane { some(random) % 20 } else { some(random) };
        task.blocking_ns = if sane { some(random) % 9 } else { some(random) };
        task.priority = (random.up_to(4) > 0).then(|| random.next() as u32);
        task.class = if random.up_to(1) == 0 { Class::High } else { Class::Low };
        task.core = (random.up_to(1) == 0).then(|| random.up_to(3) as u32);
        task.app = (random.up_to(1) == 0).then(|| format!("app{}", random.up_to(2)));
        task.memory_bytes = some(random);
        task.bandwidth = some(random);
        all.push(task);
    }
    all
}

fn starts(random: &mut Random) -> Vec<Start> {
    let start = |random: &mut Random| Start {
        task: random.up_to(8) as usize,
        arrival_ns: number(random),
        release_ns: number(random),
        held_up_ns: some(random),
    };
    (0..random.up_to(5)).map(|_| start(random)).collect()
}

/// All tests, placements and simulations of one arbitrary set, and all parsers on one arbitrary text.
pub fn once(seed: u64) {
    let random = &mut Random::new(seed);
    let effort = Effort { steps: 20_000, jobs: 300 };
    let tasks = tasks(random);
    let _ = (budgets::test(&tasks), rm::liu_layland(&tasks), rm::hyperbolic(&tasks));
    for policy in Policy::ALL {
        let verdict = slack::test(&tasks, policy, &effort);
        let _ = serde_json::to_string(&verdict);
        let _ = fp::analyse(&tasks, policy, &effort);
        let _ = worst_pattern(&tasks, policy, random.up_to(7) as usize);
        let _ = replay(&tasks, policy, &starts(random), Some(number(random)), &effort);
        let _ = policy.to_string().parse::<Policy>();
    }
    let policy = Policy::ALL[random.up_to(6) as usize];
    let _ = np_fp::analyse(&tasks, &effort);
    let _ = edf_response::responses(&tasks, random.up_to(1) == 0, &effort);
    let little = Effort { steps: 2_000, jobs: 10 };
    let _ = slack::slack(&tasks, policy, 2, &little);
    let mut domain = Domain::of(random.up_to(4) as u32);
    domain.rt_runtime_us = (random.up_to(3) > 0).then(|| number(random));
    domain.rt_period_us = number(random);
    domain.server_ns = (random.up_to(1) == 0).then(|| (number(random), number(random)));
    domain.least_period_ns = some(random);
    domain.most_period_ns = number(random);
    let _ = admission(&tasks, &domain, &little);
    let room = Room { memory_bytes: Some(number(random)), bandwidth: Some(number(random)) };
    for by in [By::FirstFit, By::BestFit, By::WorstFit, By::BfdPartitioned] {
        let _ = place(&tasks, &[0, 1, 1], by, policy, &room, &little);
    }
    let chain = Chain {
        name: "c".to_owned(),
        tasks: (0..random.up_to(3)).map(|_| random.up_to(6) as usize).collect(),
        deadline_ns: number(random),
    };
    let _ = holistic(&tasks, std::slice::from_ref(&chain), policy, &little);
    simulate(random, &tasks, policy, chain);
    parse(random);
}

fn simulate(random: &mut Random, tasks: &[Task], policy: Policy, chain: Chain) {
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
        cost_ns: number(random),
        period_ns: number(random),
        core: Some(9),
    }];
    let interrupts = [Interrupt {
        name: "i".to_owned(),
        flag_ns: some(random),
        service_ns: number(random),
        gap_ns: number(random),
        core: None,
    }];
    let simulation = Simulation {
        seed: random.next(),
        execution,
        background: &background,
        interrupts: &interrupts,
        chains: &[chain],
        ..Simulation::new(tasks, policy, releases)
    };
    let _ = first_miss(&simulation, number(random), 200);
    let Ok(mut run) = Run::prepare(&simulation) else { return };
    let (mut statistics, mut record) = (Statistics::of(&run), Record::up_to(200));
    let until_ns = number(random);
    run.go(until_ns, 300, &mut (&mut statistics, &mut record));
    let _ = (statistics.rows(&run), statistics.misses(&run), statistics.miss_count(&run));
    let trace = perfetto::trace(&run, &record);
    assert!(serde_json::from_str::<serde_json::Value>(&trace).is_ok(), "the trace is JSON: {trace}");
    let picture = gantt::svg(&run, &record, until_ns, "<title> & \"more\"");
    assert!(picture.ends_with("</svg>\n"));
}

const WORDS: [&str; 44] = [
    "[[task]]\n",
    "[[chain]]\n",
    "[[background]]\n",
    "[[interrupt]]\n",
    "[room]\n",
    "name",
    "cost",
    "measured",
    "period",
    "sporadic",
    "deadline",
    "offset",
    "jitter",
    "blocking",
    "priority",
    "class",
    "core",
    "app",
    "memory",
    "tasks",
    "gap",
    "service",
    " = ",
    "\"20 ms\"",
    "\"a\"",
    "\"high\"",
    "7",
    "-1",
    "[\"a\"]",
    "\n",
    ",",
    "#",
    "\"",
    "500 ms",
    "20us",
    "1.5 s",
    "18446744073709551615",
    "0",
    "µs",
    "\u{0}",
    "name,cost,period\n",
    "a,1,2\n",
    "999999999 h",
    ".",
];

fn parse(random: &mut Random) {
    let mut text = String::new();
    for _ in 0..random.up_to(40) {
        text.push_str(WORDS[random.up_to(WORDS.len() as u64 - 1) as usize]);
    }
    let _ = units::parse_ns(&text);
    let _ = file::from_toml(&text, &|run| Ok(run.len() as u64));
    let _ = file::from_csv(&text, &file::no_measurement);
    let ns = number(random);
    assert_eq!(units::parse_ns(&units::show_ns(ns)), Ok(ns));
}

/// A trace and a picture of a seed.
pub fn bytes(seed: u64) -> String {
    let tasks = [Task::new("a", 3, 10).sporadic(), Task::new("b", 4, 15).jitter(3), Task::new("c", 5, 40)];
    let simulation = Simulation { seed, ..Simulation::new(&tasks, Policy::NpEdf, Releases::Random) };
    let mut run = Run::prepare(&simulation).expect("a set");
    let mut record = Record::up_to(1000);
    run.go(1000, 1000, &mut record);
    perfetto::trace(&run, &record) + &gantt::svg(&run, &record, 1000, "bytes")
}
