// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that change CPUs, IRQs and cgroups. They run only inside a guest of the lab (`make vm`),
//! which each test declares. Elsewhere this binary checks those declarations, and `guest guests
//! [ci|nightly]` lists the guests that are booted. The user's own binary is called, and the
//! kernel's files are read. In a guest, `guest snapshots` compares the machine for a script.
//!
//! Every test starts from an untouched machine and must leave it equal to its snapshot, byte for
//! byte.

mod guest {
    pub mod ab;
    pub mod asked;
    pub mod containment;
    pub mod crash;
    pub mod deadlines;
    pub mod debugfs;
    pub mod declared;
    pub mod device;
    pub mod drift;
    pub mod enter;
    pub mod files;
    pub mod granted;
    pub mod guests;
    pub mod held;
    pub mod histograms;
    pub mod hotplug;
    pub mod huge;
    pub mod inside;
    pub mod kept;
    pub mod killer;
    pub mod lab;
    pub mod large;
    pub mod library;
    pub mod line;
    pub mod lost;
    pub mod matrix;
    pub mod measure;
    pub mod others;
    pub mod persistent;
    pub mod planted;
    pub mod quiet;
    pub mod random;
    pub mod rows;
    pub mod sharing;
    pub mod smt;
    pub mod snapshot;
    pub mod soak;
    pub mod spaces;
    pub mod stranger;
    pub mod tasks;
    pub mod tracer;
    pub mod uio;
    pub mod watchdog;
    pub mod web;
}

use guest::guests::{Boot, Guest, Tier};
use guest::lab::{TIMES, Test};
use libtest_mimic::{Arguments, Conclusion, Trial};

fn all() -> Vec<Test> {
    let tests = [
        guest::snapshot::sees::all(),
        guest::matrix::all(),
        guest::tasks::all(),
        guest::inside::all(),
        guest::deadlines::all(),
        guest::library::all(),
        guest::enter::all(),
        guest::containment::all(),
        guest::drift::all(),
        guest::held::all(),
        guest::persistent::all(),
        guest::asked::all(),
        guest::files::all(),
        guest::web::all(),
        guest::kept::all(),
        guest::granted::all(),
        guest::lost::all(),
        guest::crash::all(),
        guest::random::all(),
        guest::hotplug::all(),
        guest::others::all(),
        guest::stranger::all(),
        guest::quiet::all(),
        guest::ab::all(),
        guest::measure::all(),
        guest::planted::all(),
        guest::histograms::all(),
        guest::smt::all(),
        guest::sharing::all(),
        guest::line::all(),
        guest::large::all(),
        guest::soak::all(),
        guest::device::all(),
        guest::huge::all(),
        guest::spaces::all(),
        guest::tracer::all(),
        guest::uio::all(),
    ];
    tests.into_iter().flatten().collect()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, tier] = &words[..]
        && word == "guests"
    {
        let tier = Tier::of(tier).expect("ci or nightly");
        tier.guests().iter().for_each(|guest| println!("{guest}"));
        return;
    }
    if words == ["snapshots"] && guest::lab::guest().is_some() {
        return guest::snapshot::serve();
    }
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    match guest::lab::guest() {
        Some(guest) => in_guest(guest, &arguments).exit(),
        None => libtest_mimic::run(&arguments, guest::declared::all()).exit(),
    }
}

/// Runs what this guest is for. What a filter names is run whatever it declares.
fn in_guest(guest: Guest, arguments: &Arguments) -> Conclusion {
    let tier = guest::lab::tier();
    let all = all();
    let count = all.len();
    let is = |word: &str, name: &str| match arguments.exact {
        true => name == word,
        false => name.contains(word),
    };
    let names = |words: &[String], name: &str| words.iter().any(|word| is(word, name));
    let filter: Vec<String> = arguments.filter.iter().cloned().collect();
    let wanted = |test: &Test| match filter.is_empty() {
        true => test.runs_in(guest, tier),
        false => names(&filter, &test.name),
    };
    let here = all.into_iter().filter(|test| wanted(test) && !names(&arguments.skip, &test.name));
    let trials: Vec<Trial> = here.map(Test::trial).collect();
    let elsewhere = count - trials.len();
    guest::watchdog::start();
    if guest.boot == Boot::Persistent {
        guest::persistent::record();
    }
    // Before asmp is called for the first time.
    drop(guest::snapshot::snapshot());
    let conclusion = libtest_mimic::run(arguments, trials);
    let mut times = std::mem::take(&mut *TIMES.lock().expect("all tests are over"));
    times.sort();
    let seconds: f64 = times.iter().map(|(time, _)| time.as_secs_f64()).sum();
    for (time, name) in times.iter().rev().take(8) {
        println!("{:6.1} s  {name}", time.as_secs_f64());
    }
    println!(
        "{guest}: {} passed, {} failed, {} skipped, {elsewhere} elsewhere, {seconds:.0} s in tests",
        conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored
    );
    conclusion
}
