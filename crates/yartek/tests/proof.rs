// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is proved of a board holds there: random sets at the edge of acceptance meet their
//! deadlines in a model of the board that counts nanoseconds, with the kernel's choice of jobs.

use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::simulate::{Interrupt, Random};
use asmp_analysis::{Effort, Outcome, Task, Workload};
use asmp_yartek::{Board, Edf, Late, Next, Proof, Refusal, Table, prove};

/// A tick of 1 us, D = 20 + 2 n us, handlers of 15 us, arrivals of 26 + 2 n us, a clock that
/// interrupts each 2 ms for 5 us.
const SLOW: &str = "
name = 'slow'
machine = []
compiler = 'cc'
flags = []
processor = 'none'
machine_package = ''
serial = []
elf_machine = 0
masking = { instructions = [], except = [], port_functions = [] }
ticks_per_s_num = 1000000
ticks_per_s_den = 1
flash_bytes = 1
ram_bytes = 1
dispatch_a_instructions = 200
dispatch_b_instructions = 20
handler_instructions = 150
arrive_a_instructions = 260
arrive_b_instructions = 20
clock_interrupt_ticks = 2000
clock_interrupt_instructions = 50
instruction_ps = 100000
";
const TICK_NS: u64 = 1000;
const HANDLER_NS: u64 = 15_000;
const CLOCK_NS: u64 = 5000;

fn slow() -> Board {
    toml::from_str(SLOW).expect("a board")
}

fn proved(workload: &Workload, board: &Board) -> Result<(Table, Proof), Refusal> {
    let table = Table::of(workload, board.rate())?;
    let proof = prove(workload, &table, board, &Effort::default())?;
    Ok((table, proof))
}

fn of(text: &str) -> Workload {
    from_toml(text, &no_measurement).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_robot_is_proved_on_each_board_with_a_little_more_load() {
    let robot = of(include_str!("../../../examples/analysis/robot.toml"));
    for board in Board::all() {
        let (table, proof) = proved(&robot, &board).expect("a table");
        assert_eq!((proof.outcome(), proof.doubt(&table)), (Outcome::Schedulable, None));
        let (alone, whole) = (proof.utilisation, proof.whole_utilisation);
        assert!((0.4829..0.4835).contains(&alone), "{alone}");
        assert!((0.0001..0.01).contains(&(whole - alone)), "{alone} {whole}");
    }
}

#[test]
fn each_cost_holds_a_tick_the_dispatch_and_its_handlers() {
    let task = "[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '100 ms'\n";
    let with = |lines: &str| {
        let workload = of(&format!("{task}{lines}"));
        let (_, proof) = proved(&workload, &slow()).expect("a table");
        proof.tasks[0].cost_ticks()
    };
    let line = |limit: &str| format!("[[interrupt]]\nname = 'i'\nservice = '1 us'\n{limit}\n");
    // 1000 + 1 + 22, and one interrupt of the clock.
    let alone = 1028;
    assert_eq!(with(""), alone);
    assert_eq!(with(&line("gap = '1 s'")), alone + 15);
    // 1223, and 20 of handlers that have begun: 12 gaps of 100 us, 13 handlers.
    assert_eq!(with(&line("gap = '100 us'")), alone + 13 * 15);
    // 1208 alone are 11 gaps, with 20 of handlers that have begun 12.
    assert_eq!(with(&line("gap = '102 us'")), alone + 13 * 15);
    assert_eq!(with(&line("most = 3")), alone + 3 * 15);
    assert_eq!(with(&line("gap = '100 us'\nmost = 3")), alone + 3 * 15);
    assert_eq!(with(&line("gap = '1 s'\nmost = 3")), alone + 15);
    assert_eq!(with(&line("gap = '1 s'\nflag = '7 us'")), alone + 22);
    // Handlers take more than all of the CPU.
    assert!(with(&line("gap = '14 us'")) > 100_000);
}

#[test]
fn each_arrival_of_a_sporadic_task_is_a_handler_of_every_job() {
    let with = |other: &str| {
        let task = "[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '100 ms'\n";
        let other = format!("[[task]]\nname = 'b'\ncost = '50 us'\n{other}\n");
        let (_, proof) = proved(&of(&format!("{task}{other}")), &slow()).expect("a table");
        proof.tasks[0].cost_ticks()
    };
    // 1000 + 1 + 24, and one interrupt of the clock.
    assert_eq!(with("period = '400 us'"), 1030);
    // 1120, and 35 of handlers that have begun: two gaps, three arrivals.
    assert_eq!(with("sporadic = '400 us'"), 1030 + 3 * 30);
    assert_eq!(with("sporadic = '50 ms'"), 1030 + 30);
}

#[test]
fn a_cost_grows_no_further_than_its_most() {
    let file =
        |most: &str| of(&format!("[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '9 ms'\n{most}\n"));
    let extra = |most: &str| {
        let (_, proof) = proved(&file(most), &slow()).expect("a table");
        proof.extra_ticks[0].expect("known")
    };
    // 1000 + 1 + 22, and as many interrupts of the clock as fall into 9 ms.
    assert_eq!(extra(""), 9000 - 1023 - 5 * 5);
    // One of them, or two.
    assert_eq!(extra("most = '1500 us'"), 1500 - 1028);
    assert_eq!(extra("most = '1028 us'"), 0);
    assert_eq!(extra("most = '3 ms'"), 3000 - 1023 - 2 * 5);
    assert_eq!(extra("most = '20 ms'"), extra(""));
}

#[test]
fn a_most_that_stops_jobs_which_are_right_is_refused() {
    let file = |most: u64| {
        of(&format!("[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '9 ms'\nmost = '{most} us'\n"))
    };
    assert!(proved(&file(1028), &slow()).is_ok());
    let refusal = proved(&file(1027), &slow()).expect_err("too short").to_string();
    assert_eq!(
        refusal,
        "task a: most: interrupts included, a job may take 1.028 ms: give that or more"
    );
}

#[test]
fn a_set_that_misses_is_refused_with_its_run() {
    let file = |cost: &str| {
        of(&format!(
            "[[task]]\nname = 'control'\ncost = '3 ms'\nperiod = '10 ms'\n\
             [[task]]\nname = 'logger'\ncost = '{cost}'\nperiod = '100 ms'\n"
        ))
    };
    let (table, proof) = proved(&file("9 ms"), &slow()).expect("a table");
    assert_eq!(proof.outcome(), Outcome::NotSchedulable);
    let doubt = proof.doubt(&table).expect("a run");
    assert!(
        doubt.starts_with("job 0 of control, released at 1 us, is due at 10.001 ms"),
        "{doubt}"
    );
    assert!(doubt.ends_with("when logger starts a tick before the others"), "{doubt}");
    // By the file alone 7 ms would do: not with the kernel.
    let (_, proof) = proved(&file("7 ms"), &slow()).expect("a table");
    assert_eq!(proof.outcome(), Outcome::NotSchedulable);
    assert!((proof.utilisation - 0.37).abs() < 1e-9);
    let (_, proof) = proved(&file("6900 us"), &slow()).expect("a table");
    assert_eq!(proof.outcome(), Outcome::Schedulable);
}

#[test]
fn a_cost_may_grow_by_what_is_said_and_no_more() {
    let board = slow();
    let (mut grown, mut with_handlers) = (0, 0);
    for seed in 0..40 {
        let random = &mut Random::new(seed);
        let set = scaled(&random_set(random), 300);
        let (table, proof) = proved(&set, &board).expect("a table");
        for (at, extra) in proof.extra_ticks.iter().enumerate() {
            let Some(extra) = *extra else { continue };
            let accepts = |ticks: u64| {
                let mut longer = set.clone();
                let task = &mut longer.tasks[at];
                let cost_ns = (table.tasks[at].times.cost_ticks + ticks) * TICK_NS;
                task.cost = task.cost.with_ticks(cost_ns);
                let (_, proof) = proved(&longer, &board).expect("a table");
                proof.outcome() == Outcome::Schedulable
            };
            assert!(accepts(extra), "seed {seed}: {at} {extra}: {set:?}");
            assert!(!accepts(extra + 1), "seed {seed}: {at} {extra}: {set:?}");
            grown += 1;
            let whole = proof.report.cpus[0].extra_ticks[at].expect("known, too");
            with_handlers += usize::from(whole > extra);
        }
    }
    println!("{grown} costs grown, of {with_handlers} the room is less with handlers");
    assert!(grown > 50 && with_handlers > 20, "{grown} {with_handlers}");
}

fn random_set(random: &mut Random) -> Workload {
    let count = 2 + random.up_to(5);
    let task = |at| {
        let period_ns = (4 + random.up_to(16)) * 1_000_000;
        let cost_ns = 50_000 + random.up_to(period_ns / count);
        let shorter = if random.up_to(1) == 0 { random.up_to(3) * 500_000 } else { 0 };
        Task::new(format!("t{at}"), cost_ns, period_ns).deadline(period_ns - shorter)
    };
    let tasks = (0..count).map(task).collect();
    let lines = random.up_to(3);
    let line = |at| Interrupt {
        name: format!("i{at}"),
        flag_ticks: 0,
        service_ticks: 1,
        gap_ticks: (random.up_to(3) > 0).then(|| 100_000 + random.up_to(3_000_000)),
        core: None,
        entry: None,
        most: Some(1 + random.up_to(4) as u32),
    };
    let interrupts = (0..lines).map(line).collect();
    Workload { interrupts, ..Workload::of(tasks) }
}

/// The same with costs of so many thousandths.
fn scaled(workload: &Workload, milli: u64) -> Workload {
    let scale = |task: &Task| Task {
        cost: task.cost.with_ticks((task.cost_ticks() * milli / 1000).max(TICK_NS)),
        ..task.clone()
    };
    Workload { tasks: workload.tasks.iter().map(scale).collect(), ..workload.clone() }
}

/// Handlers that come as soon as they may, or a little later.
struct Source {
    next_ns: u64,
    gap_ns: u64,
    handler_ns: u64,
    most: u64,
    unserved: u64,
}

struct Model<'a> {
    sources: Vec<Source>,
    random: &'a mut Random,
}

impl Model<'_> {
    /// When work is done that begins at an instant and takes so long without handlers.
    fn end_ns(&mut self, from_ns: u64, long_ns: u64) -> u64 {
        let mut end_ns = from_ns + long_ns;
        loop {
            let open = self.sources.iter_mut().filter(|source| source.unserved < source.most);
            let Some(first) = open.min_by_key(|source| source.next_ns) else { return end_ns };
            if first.next_ns >= end_ns {
                return end_ns;
            }
            end_ns += first.handler_ns;
            first.unserved += 1;
            // Bursts: mostly no later than it may.
            let late_ns = if self.random.up_to(9) == 0 { self.random.up_to(500_000) } else { 0 };
            first.next_ns = first.next_ns.max(from_ns) + first.gap_ns + late_ns;
        }
    }

    /// The background serves all until then; a handler may run at that instant.
    fn idle(&mut self, until_ns: u64) -> u64 {
        let mut free_ns = until_ns;
        for source in &mut self.sources {
            source.unserved = 0;
            let before_ns = self.random.up_to(source.handler_ns);
            if source.next_ns + before_ns < until_ns {
                // It has just begun.
                free_ns += source.handler_ns - before_ns;
                source.unserved = 1;
                source.next_ns = until_ns - before_ns + source.gap_ns;
            }
        }
        free_ns
    }
}

/// The longest excess over a deadline of a run.
fn worst_excess_ns(workload: &Workload, table: &Table, random: &mut Random) -> i64 {
    let task = |task: &asmp_yartek::TableTask| asmp_yartek::Task {
        period_ticks: task.times.period_ticks,
        offset_ticks: random.up_to(task.times.period_ticks),
        deadline_ticks: task.times.deadline_ticks,
        budget_ticks: task.times.cost_ticks,
        is_sporadic: false,
        late: Late::Finish,
    };
    let set: Vec<asmp_yartek::Task> = table.tasks.iter().map(task).collect();
    let dispatch_ns = (20 + 2 * set.len() as u64) * TICK_NS;
    let source = |line: &Interrupt| Source {
        next_ns: 0,
        gap_ns: line.gap_ticks.unwrap_or(1),
        handler_ns: HANDLER_NS,
        most: line.most.map_or(u64::MAX, u64::from),
        unserved: 0,
    };
    let mut sources: Vec<Source> = workload.interrupts.iter().map(source).collect();
    let clock =
        Source { next_ns: 0, gap_ns: 2_000_000, handler_ns: CLOCK_NS, most: u64::MAX, unserved: 0 };
    sources.push(clock);
    let mut edf = Edf::new(&set, 100);
    let mut model = Model { sources, random };
    let (mut now_ns, mut worst) = (0, i64::MIN);
    for _ in 0..400 {
        match edf.next(now_ns / TICK_NS) {
            Next::Run(job) => {
                let cost_ns = workload.tasks[job.task as usize].cost_ticks();
                now_ns = model.end_ns(now_ns, dispatch_ns + cost_ns);
                let due_ns = job.deadline_ticks * TICK_NS;
                worst = worst.max(now_ns as i64 - due_ns as i64);
                assert!(edf.ended(&job, now_ns / TICK_NS));
            }
            Next::Idle(at) => {
                let at_ns = at.expect("periodic tasks") * TICK_NS;
                now_ns = model.idle(at_ns.max(now_ns));
            }
            Next::NotBegun(job) => panic!("no task faults: {job:?}"),
        }
    }
    worst
}

#[test]
fn what_is_accepted_at_the_edge_misses_no_deadline_on_a_model_of_the_board() {
    let board = slow();
    let (mut sets, mut near) = (0, 0);
    for seed in 0..150 {
        let random = &mut Random::new(seed);
        let set = random_set(random);
        let accepts = |milli: u64| {
            proved(&scaled(&set, milli), &board)
                .is_ok_and(|(_, proof)| proof.outcome() == Outcome::Schedulable)
        };
        // The largest costs that are accepted.
        let (mut low, mut high) = (0, 4000);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if accepts(middle) { low = middle } else { high = middle }
        }
        if low == 0 {
            continue;
        }
        sets += 1;
        let edge = scaled(&set, low);
        let (table, _) = proved(&edge, &board).expect("accepted");
        let worst = (0..20).map(|_| worst_excess_ns(&edge, &table, random)).max();
        let worst = worst.expect("runs");
        assert!(worst <= 0, "seed {seed}: {worst} ns late: {edge:?}");
        near += usize::from(worst > -150_000);
    }
    println!("{sets} sets at the edge, of {near} a job ended within 150 us of its deadline");
    assert!(sets > 100 && near > 5, "{sets} {near}");
}
