//! Tests that change CPUs, IRQs and cgroups. They run only inside a guest of the lab (`make vm`); elsewhere
//! each is reported as ignored. The user's own binary is called, and the kernel's files are read.
//!
//! Every test starts from an untouched machine and must leave it equal to its snapshot, byte for byte.

mod guest {
    pub mod ab;
    pub mod containment;
    pub mod crash;
    pub mod device;
    pub mod drift;
    pub mod enter;
    pub mod huge;
    pub mod lab;
    pub mod library;
    pub mod matrix;
    pub mod measure;
    pub mod rows;
    pub mod smt;
    pub mod spaces;
    pub mod tasks;
    pub mod uio;
}

use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let tests = [
        guest::matrix::all(),
        guest::tasks::all(),
        guest::library::all(),
        guest::enter::all(),
        guest::containment::all(),
        guest::drift::all(),
        guest::crash::all(),
        guest::ab::all(),
        guest::measure::all(),
        guest::smt::all(),
        guest::device::all(),
        guest::huge::all(),
        guest::spaces::all(),
        guest::uio::all(),
    ]
    .into_iter()
    .flatten();
    let names = |words: &[String], name: &str| words.iter().any(|word| name.contains(word.as_str()));
    let filter: Vec<String> = arguments.filter.iter().cloned().collect();
    let trials: Vec<Trial> = tests
        .map(|one| {
            let wanted = (filter.is_empty() || names(&filter, one.name)) && !names(&arguments.skip, one.name);
            guest::lab::trial(one, wanted)
        })
        .collect();
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}
