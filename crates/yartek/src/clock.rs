// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The times of a task set in ticks of a board's timer.
//!
//! # Problem
//! A tick is not a whole number of nanoseconds (64 / 83333333 s on one board), so no period is a
//! whole number of ticks. Periods of 500 ms and 2 s that are rounded each by itself are 651042 and
//! 2604167 ticks: no longer one to four. After some hours the order of jobs is not the proved one.
//!
//! # Approach
//! All periods, deadlines and offsets are multiples of their greatest common divisor, the step. The
//! step alone is rounded to ticks, and everything is as many steps as in the file. All ratios are
//! exact, and the set as a whole runs by a clock that is wrong by one known part. Costs have no
//! ratio to keep and are rounded up.
//!
//! A file counts its times in ticks of its own, a [`TimeBase`]. They are named parts here: ticks
//! are those of the board.

use asmp_analysis::{Task, TimeBase};
use asmp_duration::ExactDuration;

/// The longest time on a board: sums of a few such values still fit 64 bits.
pub const MAX_TICKS: u64 = 1 << 62;
/// A clock that is wrong by more is refused.
const MAX_ERROR_PPM: u128 = 100;
const MILLION: u128 = 1_000_000;
const NS_PER_S: u128 = 1_000_000_000;

/// Ticks of a board's timer in a second: a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    numerator: u32,
    denominator: u32,
}

impl Rate {
    /// `None` if either number is 0.
    pub const fn new(numerator: u32, denominator: u32) -> Option<Self> {
        match (numerator, denominator) {
            (0, _) | (_, 0) => None,
            _ => Some(Self { numerator, denominator }),
        }
    }

    /// So many parts of the file's time in ticks, as a fraction: the numerator is below 2^96, the
    /// denominator below 2^126.
    const fn ticks(self, parts: u64, time: TimeBase) -> (u128, u128) {
        let parts_per_s = time.ticks_per_ns() as u128 * NS_PER_S;
        (parts as u128 * self.numerator as u128, parts_per_s * self.denominator as u128)
    }

    /// Ticks that a time of so many parts touches. `None`: more than [`MAX_TICKS`].
    fn ticks_up(self, parts: u64, time: TimeBase) -> Option<u64> {
        let (above, below) = self.ticks(parts, time);
        within(above.div_ceil(below))
    }

    /// Ticks that so many picoseconds touch.
    pub fn ticks_of_ps(self, ps: u64) -> u64 {
        let above = u128::from(ps) * u128::from(self.numerator);
        let ticks = above.div_ceil(u128::from(self.denominator) * NS_PER_S * 1000);
        // Below 2^64: a picosecond is shorter than a tick.
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Whole nanoseconds of so many ticks, rounded up. `None`: 584 years and more.
    pub fn ns_up(self, ticks: u64) -> Option<u64> {
        let ns = u128::from(ticks) * u128::from(self.denominator);
        u64::try_from((ns * NS_PER_S).div_ceil(u128::from(self.numerator))).ok()
    }

    /// The same, rounded down.
    pub fn ns_down(self, ticks: u64) -> Option<u64> {
        let ns = u128::from(ticks) * u128::from(self.denominator);
        u64::try_from(ns * NS_PER_S / u128::from(self.numerator)).ok()
    }

    /// A tick, for people: `768 ns`.
    pub fn show_tick(self) -> String {
        let ps = u128::from(self.denominator) * NS_PER_S * 1000 / u128::from(self.numerator);
        match (ps / 1000, ps % 1000) {
            (0, ps) => format!("{ps} ps"),
            (ns, 0..100) => format!("{ns} ns"),
            (ns, ps) => format!("{ns}.{} ns", ps / 100),
        }
    }
}

fn within(ticks: u128) -> Option<u64> {
    u64::try_from(ticks).ok().filter(|ticks| *ticks <= MAX_TICKS)
}

/// A time of the grid: what it is, whose, and how long, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {key} of {task} ({long})")]
pub struct Given {
    pub key: &'static str,
    pub task: String,
    pub long: String,
}

/// By how much the nearest whole number of ticks is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of {tick}, and the clock would be wrong by {ppm} ppm (100 are allowed)",
    counted(*ticks)
)]
pub struct Off {
    /// The nearest number.
    pub ticks: u64,
    pub tick: String,
    /// Rounded.
    pub ppm: u64,
}

fn counted(ticks: u64) -> String {
    if ticks == 1 { "one tick".to_owned() } else { format!("{ticks} ticks") }
}

/// Why a board's timer cannot count the times of a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    #[error(
        "because of {first} and {second} all times share a step of {step} only, which would be \
         {off}: use multiples of a longer time"
    )]
    Pair { first: Box<Given>, second: Box<Given>, step: String, off: Off },
    #[error("{given} would be {off}: use a longer time, or a board with shorter ticks")]
    Alone { given: Given, off: Off },
    #[error(
        "{given} is below a tick of {tick}: give the cost with all that the task does, or take a \
         board with shorter ticks"
    )]
    ShortCost { given: Given, tick: String },
    #[error("{given} is longer than 2^62 ticks of {tick}: shorten it")]
    TooLong { given: Given, tick: String },
}

impl ClockError {
    /// The time that the error is about; of two times the second.
    pub fn given(&self) -> &Given {
        match self {
            Self::Pair { second, .. } => second,
            Self::Alone { given, .. }
            | Self::ShortCost { given, .. }
            | Self::TooLong { given, .. } => given,
        }
    }
}

/// The times of a task in ticks of the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub period_ticks: u64,
    pub deadline_ticks: u64,
    /// 0 where the file gives none.
    pub offset_ticks: u64,
    /// Rounded up.
    pub cost_ticks: u64,
}

/// How a board counts the times of one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    rate: Rate,
    time: TimeBase,
    /// Of which all periods, deadlines and offsets are multiples.
    step_parts: u64,
    step_ticks: u64,
}

impl Clock {
    /// The clock of a set, and the times of its tasks. Errors: times with too little in common, or
    /// out of range. A set without tasks has a step of 1 s.
    pub fn of(
        tasks: &[Task],
        time: TimeBase,
        rate: Rate,
    ) -> Result<(Self, Vec<Times>), ClockError> {
        let step_parts =
            tasks.iter().flat_map(on_grid).fold(0, |step, (_, parts)| gcd(step, parts));
        let step_parts = if step_parts == 0 { time.ticks_per_ns() } else { step_parts };
        let (step_ticks, is_exact) = rounded(step_parts, time, rate);
        let clock = Self { rate, time, step_parts, step_ticks };
        if !is_exact {
            return Err(clock.refusal(tasks));
        }
        let times = tasks.iter().map(|task| clock.times(task)).collect::<Result<_, _>>()?;
        Ok((clock, times))
    }

    fn times(&self, task: &Task) -> Result<Times, ClockError> {
        let tick = || self.rate.show_tick();
        let [period, deadline, offset] = on_grid(task).map(|(key, parts)| {
            let ticks = u128::from(parts / self.step_parts) * u128::from(self.step_ticks);
            let too_long =
                || ClockError::TooLong { given: self.given(task, key, parts), tick: tick() };
            within(ticks).ok_or_else(too_long)
        });
        let cost_ticks = self.cost("cost", task, task.cost_ticks())?;
        Ok(Times {
            period_ticks: period?,
            deadline_ticks: deadline?,
            offset_ticks: offset?,
            cost_ticks,
        })
    }

    /// A time that a job takes: rounded up. Errors: below a tick, or too long.
    pub(crate) fn cost(
        &self,
        key: &'static str,
        task: &Task,
        parts: u64,
    ) -> Result<u64, ClockError> {
        let (given, tick) = (|| self.given(task, key, parts), || self.rate.show_tick());
        let (above, below) = self.rate.ticks(parts, self.time);
        if above < below {
            return Err(ClockError::ShortCost { given: given(), tick: tick() });
        }
        self.up(parts).ok_or_else(|| ClockError::TooLong { given: given(), tick: tick() })
    }

    /// Ticks that a time of so many parts of the file touches, by a clock that is right. `None`:
    /// more than 2^62 ticks.
    pub fn up(&self, parts: u64) -> Option<u64> {
        self.rate.ticks_up(parts, self.time)
    }

    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The time of which all periods, deadlines and offsets are multiples, for people.
    pub fn show_step(&self) -> String {
        self.time.show(self.step_parts)
    }

    /// The same in ticks.
    pub const fn step_ticks(&self) -> u64 {
        self.step_ticks
    }

    /// By how much all periods are longer than in the file, in millionths; below 0: shorter.
    pub fn error_ppm(&self) -> f64 {
        error_ppm(self.step_parts, self.time, self.rate)
    }

    /// A time of the board, for people.
    pub fn show(&self, ticks: u64) -> String {
        let ns = u128::from(ticks) * u128::from(self.rate.denominator) * NS_PER_S;
        let exact = ExactDuration::fraction_ns(ns, self.rate.numerator.into());
        // Where that is too fine, a nanosecond is nothing.
        let rounded = || ExactDuration::from_ns(self.rate.ns_up(ticks).unwrap_or(u64::MAX));
        exact.unwrap_or_else(rounded).rounded()
    }

    fn given(&self, task: &Task, key: &'static str, parts: u64) -> Given {
        Given { key, task: task.name.clone(), long: self.time.show(parts) }
    }

    /// Names the first time with which the step of all so far is too fine, and the one before it
    /// that has least in common with it. (A step that is fine stays so without the finer times.)
    fn refusal(&self, tasks: &[Task]) -> ClockError {
        let named = |task| on_grid(task).map(|(key, parts)| (task, key, parts));
        let all = || tasks.iter().flat_map(named).filter(|(.., parts)| *parts > 0);
        let is_bad = |parts| !rounded(parts, self.time, self.rate).1;
        let mut step = 0;
        let mut is_too_fine = |parts| {
            step = gcd(step, parts);
            is_bad(step)
        };
        let at = all().position(|(.., parts)| is_too_fine(parts)).unwrap_or(0);
        let last = all().nth(at).unwrap_or((&tasks[0], "period", self.step_parts));
        let before = all().take(at).min_by_key(|(.., parts)| gcd(*parts, last.2));
        let given = |(task, key, parts): (&Task, &'static str, u64)| self.given(task, key, parts);
        match before.filter(|_| !is_bad(last.2)) {
            Some(first) => ClockError::Pair {
                first: given(first).into(),
                second: given(last).into(),
                step: self.time.show(step),
                off: self.off(step),
            },
            None => ClockError::Alone { given: given(last), off: self.off(last.2) },
        }
    }

    fn off(&self, parts: u64) -> Off {
        let (ticks, _) = rounded(parts, self.time, self.rate);
        let ppm = error_ppm(parts, self.time, self.rate).abs().round() as u64;
        Off { ticks, tick: self.rate.show_tick(), ppm }
    }
}

/// The times of a task that must be multiples of the step, in parts.
fn on_grid(task: &Task) -> [(&'static str, u64); 3] {
    [
        ("period", task.period_ticks),
        ("deadline", task.deadline_ticks),
        ("offset", task.offset_ticks.unwrap_or(0)),
    ]
}

/// The nearest number of ticks, and whether it is within [`MAX_ERROR_PPM`].
fn rounded(parts: u64, time: TimeBase, rate: Rate) -> (u64, bool) {
    let (above, below) = rate.ticks(parts, time);
    let rest = above % below;
    let ticks = above / below + u128::from(rest >= below - rest);
    let apart = (ticks * below).abs_diff(above);
    // An excess of a part of `apart` over the quotient, which is rounded down, is an excess of one.
    let is_exact = apart <= above / (MILLION / MAX_ERROR_PPM);
    // Where it does not fit, the time is refused by its length.
    (u64::try_from(ticks).unwrap_or(u64::MAX), is_exact)
}

fn error_ppm(parts: u64, time: TimeBase, rate: Rate) -> f64 {
    let (above, below) = rate.ticks(parts, time);
    let got = u128::from(rounded(parts, time, rate).0) * below;
    let apart = got.abs_diff(above) as f64 / above as f64 * MILLION as f64;
    if got < above { -apart } else { apart }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
