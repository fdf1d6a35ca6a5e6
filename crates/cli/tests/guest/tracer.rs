// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two users of the kernel's tracer timerlat. A write to its settings kills the threads of user
//! space that wait for it, so the second one must not make any.

use super::guests::{Boot, On};
use super::lab::{Process, Test, asmp, binary, read, test, until};
use super::measure::{fresh, traces};
use super::spaces::no_timerlat;
use asmp_measure::run::Run;
use std::fs;
use std::path::Path;

pub fn all() -> Vec<Test> {
    let timerlat = |name, run: fn()| {
        test(name, run).on(On::OnePerSeries).booted(&[Boot::Bare]).lacks(no_timerlat)
    };
    vec![
        timerlat("measure refuses a second measurement and completes the first", second),
        timerlat("measure leaves timerlat to another tool that runs it", another_tool),
    ]
}

/// A measurement that has started the tracer by now.
fn at_work(dir: &str, samples: &str) -> Process {
    let words = ["measure", "latency", "--kinds", "Aoff", "--source", "timerlat", "--quiet"];
    let more = ["--samples", samples, "--period", "1ms", "-o", dir];
    let measure =
        Process::start(&binary().display().to_string(), &[&words[..], &more[..]].concat());
    let prefix = format!("asmp-timerlat-{}-", measure.id());
    until("the tracer runs", || {
        let names = fs::read_dir("/sys/kernel/tracing/instances").expect("instances").flatten();
        let ours = names.filter(|one| one.file_name().to_string_lossy().starts_with(&prefix));
        // The instance is made and goes while we look.
        let mut tracers =
            ours.filter_map(|one| fs::read_to_string(one.path().join("current_tracer")).ok());
        tracers.any(|tracer| tracer.trim() == "timerlat")
    });
    measure
}

/// The one run of a series.
fn run_in(dir: &str) -> Run {
    let mut runs = Run::read_all(Path::new(dir)).expect("runs").runs;
    assert_eq!(runs.len(), 1, "{dir}");
    runs.remove(0)
}

fn second() {
    let before = traces();
    let (first, other) = (fresh("first"), fresh("second"));
    let mut measure = at_work(&first, "10000");
    let during = traces();
    for line in [
        "latency --kinds Rb --cpu 2",
        "latency --kinds Rb --cpu 2 --source nanosleep",
        "spaces --kinds N --cpu 2",
    ] {
        asmp(&format!("measure {line} -o {other}")).code(55).says("another `asmp measure`");
        assert!(!Path::new(&other).exists(), "{line}: nothing was made");
        assert_eq!(traces(), during, "{line}");
    }
    // What needs neither the tracer nor the home of interrupts goes on beside it.
    let line = "measure latency --kinds N --cpu 2 --source nanosleep --samples 50 --quiet";
    asmp(&format!("{line} -o {other}")).done();
    assert_eq!(measure.0.wait().expect("it ends").code(), Some(0));
    let run = run_in(&first);
    assert_eq!((run.provenance.samples, run.provenance.partial), (10_000, None));
    asmp("status").done().says("no partition");
    assert_eq!(traces(), before, "trace instances and timerlat's settings");
    // Killed outright it leaves no lock, and status names what it leaves.
    let mut measure = at_work(&fresh("first"), "1000000");
    measure.0.kill().expect("kill -9");
    measure.0.wait().expect("it ends");
    asmp("status").code(7).says("killed before it could clean up");
    let line = "measure latency --kinds Rb --cpu 2 --source timerlat --samples 50 --quiet";
    asmp(&format!("{line} -o {}", fresh("second"))).done();
    assert_eq!(traces(), before, "trace instances and timerlat's settings");
    asmp("restore").done();
}

/// An instance of another tool in which timerlat runs, as rtla makes one.
struct Lab;

const LAB: &str = "/sys/kernel/tracing/instances/lab";

impl Lab {
    fn begin() -> Self {
        fs::create_dir(LAB).expect("an instance");
        fs::write(format!("{LAB}/current_tracer"), "timerlat").expect("timerlat starts");
        Self
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::write(format!("{LAB}/current_tracer"), "nop");
        let _ = fs::remove_dir(LAB);
    }
}

fn another_tool() {
    let before = traces();
    let dir = fresh("beside");
    let lab = Lab::begin();
    for line in ["latency --kinds Rb --source timerlat", "spaces --kinds N"] {
        asmp(&format!("measure {line} -o {dir}")).code(55).says("\"lab\"").says("rtla");
        assert!(!Path::new(&dir).exists(), "{line}: nothing was made");
        assert_eq!(read(format!("{LAB}/current_tracer")), "timerlat");
        assert_eq!(traces(), before, "{line}: timerlat's settings");
    }
    drop(lab);
    asmp(&format!("measure latency --kinds Rb --source timerlat --samples 50 -o {dir} --quiet"))
        .done();
}
