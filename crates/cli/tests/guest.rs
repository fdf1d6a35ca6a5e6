//! Tests that change CPUs, IRQs and cgroups. They run only inside a guest of the lab (`make vm`); elsewhere
//! each is reported as ignored. The user's own binary is called, and the kernel's files are read.
//!
//! Every test starts from an untouched machine and must leave it equal to its snapshot, byte for byte.

mod guest {
    pub mod ab;
    pub mod crash;
    pub mod drift;
    pub mod lab;
    pub mod matrix;
    pub mod tasks;
}

use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = Vec::new();
    for one in [
        guest::matrix::all(),
        guest::tasks::all(),
        guest::drift::all(),
        guest::crash::all(),
        guest::ab::all(),
    ]
    .into_iter()
    .flatten()
    {
        trials.push(guest::lab::trial(one));
    }
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}
