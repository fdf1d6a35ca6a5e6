// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A board counts the times of random files with exact ratios, or refuses the file; a model that
//! knows no step and no file says the same.

use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::simulate::Random;
use asmp_analysis::{Task, TimeBase, Workload};
use asmp_yartek::{Clock, ClockError, MAX_TICKS, Rate, Times};
use std::fmt::Write as _;

/// The PIT of a ColdFire, 83.333333 MHz / 64.
const PIT: (u32, u32) = (83_333_333, 64);
const RATES: [(u32, u32); 6] =
    [PIT, (25_000_000, 1), (10_000_000, 1), (1_000_000_000, 1), (32_768, 1), (1_000_000, 7)];

fn rate((numerator, denominator): (u32, u32)) -> Rate {
    Rate::new(numerator, denominator).expect("above 0")
}

/// A time in seconds: a fraction.
type Seconds = (u128, u128);

/// A task as the generator wrote it: period, deadline, offset, cost.
type Written = [Seconds; 4];

/// A time in some spelling, and its value.
fn time(random: &mut Random, longest_us: u64) -> (String, Seconds) {
    let n = 1 + random.up_to(longest_us - 1);
    match random.up_to(11) {
        0 => (format!("{n} ns"), (n.into(), 1_000_000_000)),
        1 => {
            let rate = [44_100_u32, 48_000, 96_000, 50, 60][random.up_to(4) as usize];
            (format!("{n}/{rate} s"), (n.into(), rate.into()))
        }
        2 => {
            let hertz = [50, 60, 100, 144, 44_100, 1_000_000][random.up_to(5) as usize];
            (format!("{hertz} Hz"), (1, hertz))
        }
        // On a grid that sets share.
        3..=6 => {
            let ms = (1 + random.up_to(19)) * 100;
            (format!("{ms} ms"), (ms.into(), 1000))
        }
        7..=9 => {
            let tenths = 1 + random.up_to(999);
            (format!("{}.{} ms", tenths / 10, tenths % 10), (tenths.into(), 10_000))
        }
        _ => (format!("{n} us"), (n.into(), 1_000_000)),
    }
}

fn random_file(random: &mut Random) -> (String, Vec<Written>) {
    let (mut text, mut tasks) = (String::new(), Vec::new());
    for at in 0..=random.up_to(5) {
        let (period, period_s) = time(random, 1_000_000);
        let (cost, cost_s) = time(random, 100);
        let _ = writeln!(text, "[[task]]\nname = 't{at}'\ncost = '{cost}'\nperiod = '{period}'");
        let mut written = [period_s, period_s, (0, 1), cost_s];
        for (key, at) in [("deadline", 1), ("offset", 2)] {
            if random.up_to(2) == 0 {
                let (other, other_s) = time(random, 1_000_000);
                let _ = writeln!(text, "{key} = '{other}'");
                written[at] = other_s;
            }
        }
        tasks.push(written);
    }
    (text, tasks)
}

/// The longest time of which all are whole multiples. Divides by halving (Stein), and counts in
/// seconds, not in parts of the file.
fn common(of: &[Seconds]) -> Seconds {
    fn halving(mut a: u128, mut b: u128) -> u128 {
        if a == 0 || b == 0 {
            return a | b;
        }
        let twos = (a | b).trailing_zeros();
        a >>= a.trailing_zeros();
        while b != 0 {
            b >>= b.trailing_zeros();
            (a, b) = (a.min(b), a.abs_diff(b));
        }
        a << twos
    }
    let below = of.iter().fold(1, |all, (_, below)| all / halving(all, *below) * below);
    (of.iter().fold(0, |all, (n, d)| halving(all, n * (below / d))), below)
}

/// By how many ppm `ticks` of a rate differ from a time: above 100, or not?
fn is_off(ticks: u128, (s, per_s): Seconds, (numerator, denominator): (u32, u32)) -> bool {
    let (is, should) = (ticks * per_s * u128::from(denominator), s * u128::from(numerator));
    is.abs_diff(should) * 10_000 > should
}

/// What the model knows of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    exact: u64,
    too_fine: u64,
    short: u64,
}

fn check(seed: u64, seen: &mut Seen) {
    let random = &mut Random::new(seed);
    let (text, written) = random_file(random);
    let per_s = RATES[random.up_to(RATES.len() as u64 - 1) as usize];
    let workload = from_toml(&text, &no_measurement)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    let answer = Clock::of(&workload.tasks, workload.time, rate(per_s));
    let at = || format!("seed {seed}, {per_s:?} ticks per s: {answer:?}\n{text}");
    let all: Vec<Seconds> =
        written.iter().flat_map(|task| &task[..3]).copied().filter(|(s, _)| *s > 0).collect();
    let (step, step_below) = common(&all);
    let step_ticks = step * u128::from(per_s.0);
    let step_ticks_below = step_below * u128::from(per_s.1);
    // The nearest two numbers of ticks are wrong, or one of them is not.
    let below = step_ticks / step_ticks_below;
    let is_too_fine = [below, below + 1].iter().all(|n| is_off(*n, (step, step_below), per_s));
    let costs = written.iter().map(|task| task[3]);
    let is_short =
        costs.clone().any(|(s, below)| s * u128::from(per_s.0) < below * u128::from(per_s.1));
    match &answer {
        Ok((clock, times)) => {
            assert!(!is_too_fine && !is_short, "{}", at());
            let ticks =
                |times: &Times| [times.period_ticks, times.deadline_ticks, times.offset_ticks];
            let pairs: Vec<(u64, Seconds)> = times
                .iter()
                .zip(&written)
                .flat_map(|(times, task)| ticks(times).into_iter().zip(task[..3].iter().copied()))
                .collect();
            let (first, (first_s, first_below)) = pairs[0];
            for (ticks, (s, below)) in &pairs {
                let (one, other) =
                    (u128::from(*ticks) * first_s * below, u128::from(first) * s * first_below);
                assert_eq!(one, other, "a ratio: {}", at());
                assert!(*s == 0 || !is_off((*ticks).into(), (*s, *below), per_s), "{}", at());
            }
            let ratio = clock.step_ticks() as f64 * step_ticks_below as f64 / step_ticks as f64;
            let stated = (ratio - 1.0) * 1e6;
            assert!((stated - clock.error_ppm()).abs() < 1e-3, "{stated}: {}", at());
            for (times, (s, below)) in times.iter().zip(costs) {
                let (needs, has) = (s * u128::from(per_s.0), below * u128::from(per_s.1));
                let ticks = u128::from(times.cost_ticks);
                assert!((ticks - 1) * has < needs && needs <= ticks * has, "a cost: {}", at());
            }
            seen.exact += 1;
        }
        Err(ClockError::Pair { .. } | ClockError::Alone { .. }) => {
            assert!(is_too_fine, "{}", at());
            seen.too_fine += 1;
        }
        Err(ClockError::ShortCost { .. }) => {
            assert!(is_short && !is_too_fine, "{}", at());
            seen.short += 1;
        }
        Err(ClockError::TooLong { .. }) => panic!("no time is that long: {}", at()),
    }
}

#[test]
fn a_random_file_is_refused_or_counted_with_exact_ratios() {
    let files =
        std::env::var("YARTEK_FILES").map_or(5000, |files| files.parse().expect("a number"));
    let mut seen = Seen::default();
    for seed in 0..files {
        check(seed, &mut seen);
    }
    println!("{files} files: {seen:?}");
    let least = [seen.exact, seen.too_fine, seen.short * 5];
    assert!(least.iter().all(|count| *count > files / 20), "lopsided: {seen:?}");
}

fn of(text: &str, per_s: (u32, u32)) -> Result<(Clock, Vec<Times>), ClockError> {
    let Workload { tasks, time, .. } = from_toml(text, &no_measurement).expect("a task set");
    Clock::of(&tasks, time, rate(per_s))
}

fn file(tasks: &[(&str, &str)]) -> String {
    let task = |(at, (cost, period)): (usize, &(&str, &str))| {
        format!("[[task]]\nname = 't{at}'\ncost = '{cost}'\nperiod = '{period}'\n")
    };
    tasks.iter().enumerate().map(task).collect()
}

#[test]
fn the_robot_on_the_coldfire_has_the_figures_of_its_timer() {
    let robot = include_str!("../../../examples/analysis/robot.toml");
    let (clock, times) = of(robot, PIT).expect("a clock");
    assert_eq!((clock.show_step().as_str(), clock.step_ticks()), ("100 ms", 130_208));
    assert_eq!(format!("{:+.1}", clock.error_ppm()), "-2.6");
    let periods: Vec<u64> = times.iter().map(|times| times.period_ticks).collect();
    assert_eq!(periods[0] * 4, periods[9], "500 ms and 2 s");
    assert_eq!(times[0].cost_ticks, 26_042, "20 ms are 26041.67 ticks");
    assert_eq!(rate(PIT).show_tick(), "768 ns");
}

#[test]
fn a_refusal_names_the_two_times_that_force_a_fine_step() {
    let text = file(&[("1 ms", "500 ms"), ("1 ms", "1 s"), ("1 ms", "500.001 ms")]);
    assert_eq!(
        of(&text, PIT).expect_err("1 us is no whole number of ticks").to_string(),
        "because of the period of t0 (500 ms) and the period of t2 (500.001 ms) all times share a \
         step of 1 us only, which would be one tick of 768 ns, and the clock would be wrong by \
         232000 ppm (100 are allowed): use multiples of a longer time"
    );
    let text = file(&[("1 ms", "500 ms"), ("1 ms", "1 s")]) + "offset = '3 us'\n";
    let refused = of(&text, PIT).expect_err("3 us are no whole number of ticks").to_string();
    assert!(
        refused.starts_with("the offset of t1 (3 us) would be 4 ticks of 768 ns, "),
        "{refused}"
    );
    // No two of them are too fine: 6, 10 and 15 ms have 1 ms in common.
    let slow = (1000, 2);
    assert!(of(&file(&[("2 ms", "6 ms"), ("2 ms", "10 ms")]), slow).is_ok());
    let refused = of(&file(&[("2 ms", "6 ms"), ("2 ms", "10 ms"), ("2 ms", "15 ms")]), slow);
    let refused = refused.expect_err("half a tick").to_string();
    assert!(refused.contains("t0 (6 ms)") || refused.contains("t2 (15 ms)"), "{refused}");
}

#[test]
fn a_cost_below_a_tick_and_a_period_beyond_2_to_62_ticks_are_refused() {
    let short = file(&[("767 ns", "100 ms")]);
    let refused = of(&short, PIT).expect_err("below a tick").to_string();
    assert!(
        refused.starts_with("the cost of t0 (767 ns) is below a tick of 768 ns: "),
        "{refused}"
    );
    assert!(of(&file(&[("769 ns", "100 ms")]), PIT).is_ok());
    // Longer than a file may have: the reader takes 2^60.
    let long = |parts| {
        let tasks = [Task::new("long", 1 << 40, parts)];
        Clock::of(&tasks, TimeBase::NANOSECONDS, rate((1_000_000_000, 1)))
    };
    let (_, times) = long(MAX_TICKS).expect("the longest");
    assert_eq!(times[0].period_ticks, MAX_TICKS);
    let refused = long(MAX_TICKS + 1).expect_err("too long").to_string();
    assert!(refused.starts_with("the period of long (") && refused.contains("2^62"), "{refused}");
}

#[test]
fn costs_of_the_kernel_are_rounded_up_to_ticks() {
    let pit = rate(PIT);
    assert_eq!(
        [0, 1, 768_000, 768_001, 32_000 * 1126].map(|ps| pit.ticks_of_ps(ps)),
        [0, 1, 1, 2, 47]
    );
    assert_eq!(
        [0, 1, 130_208].map(|ticks| pit.ns_up(ticks)),
        [Some(0), Some(769), Some(99_999_745)]
    );
    assert_eq!(
        [0, 1, 130_208].map(|ticks| pit.ns_down(ticks).expect("short")),
        [0, 768, 99_999_744]
    );
    assert_eq!(Rate::new(0, 1).or(Rate::new(1, 0)), None);
}
