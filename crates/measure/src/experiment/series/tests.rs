// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A series on a machine in files, with a conductor that writes down what it is asked.

use super::*;
use crate::experiment::ConductorError;
use crate::run::Run;
use std::cell::RefCell;
use std::time::Duration;

/// Writes down what it is asked, and refuses one thing.
#[derive(Default)]
struct Scripted {
    asked: RefCell<Vec<String>>,
    refuses: &'static str,
}

impl Scripted {
    fn ask(&self, what: String) -> std::result::Result<(), ConductorError> {
        let refused = !self.refuses.is_empty() && what.starts_with(self.refuses);
        self.asked.borrow_mut().push(what);
        if refused { Err(format!("no {}", self.refuses).into()) } else { Ok(()) }
    }
}

impl Conductor for Scripted {
    fn may_arrange(&self) -> std::result::Result<(), ConductorError> {
        self.ask("arrange".to_owned())
    }
    fn check(&self, cpu: Cpu, places: &[Place]) -> std::result::Result<(), ConductorError> {
        self.ask(format!("check {cpu} {}", places.len()))
    }
    fn reserve(&self, timerlat: bool) -> std::result::Result<(), ConductorError> {
        self.ask(format!("reserve {timerlat}"))
    }
    fn enter(&self, wanted: &Arrangement) -> std::result::Result<Vec<String>, ConductorError> {
        self.ask(format!("enter {:?}", wanted.place))?;
        Ok(vec!["a setting".to_owned()])
    }
    fn admit(&self, _tid: i32) -> std::result::Result<(), ConductorError> {
        self.ask("admit".to_owned())
    }
    fn leave(&self) -> std::result::Result<(), ConductorError> {
        self.ask("leave".to_owned())
    }
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

struct Unwatched;
impl Observer for Unwatched {}

fn series(kind: Kind, dir: PathBuf) -> Series {
    Series {
        kinds: vec![kind],
        loads: vec![Load::Idle],
        load_factor: None,
        cpu: 0,
        priority: 1,
        warm_up: 1,
        counts_missed: false,
        dir,
        load_dir: None,
        samples_too: false,
        no_events: Some("a test".to_owned()),
        flooder: PathBuf::new(),
        tool: "a test".to_owned(),
        command_line: Vec::new(),
        memory_locked: false,
        cpu_latency_held: false,
    }
}

fn measured(kind: Kind, refuses: &'static str) -> (Result<Completion>, Vec<String>, Vec<Run>) {
    let (root, kernel) = machine();
    let conductor = Scripted { refuses, ..Scripted::default() };
    let series = series(kind, root.path().join("runs"));
    let period = Duration::from_micros(200);
    let latency = Measurement::Latency { samples: 5, period, source: None, flood: false };
    let session = Session::new(&kernel, &conductor, &Unwatched, latency, &series);
    let completion = session.and_then(|session| session.run());
    let runs = Run::read_all(&series.dir).unwrap_or_default().runs;
    for dir in std::fs::read_dir(&series.dir).into_iter().flatten().flatten() {
        assert!(!dir.path().join("run.json.spare").exists(), "its room was given back");
    }
    (completion, conductor.asked.into_inner(), runs)
}

fn machine() -> (tempfile::TempDir, asmp_host::Linux) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "7.2\n"),
        ("proc/sys/kernel/version", "#1\n"),
        ("proc/self/status", "Uid:\t0\t0\t0\t0\n"),
        ("proc/self/mountinfo", ""),
        ("proc/cmdline", "quiet\n"),
        ("proc/irq/1/smp_affinity_list", "0\n"),
        ("proc/interrupts", "  CPU0\n  1:  1  IO-APIC 1-edge i8042\n"),
        ("sys/devices/system/cpu/possible", "0-3\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
    ] {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let linux = asmp_host::Linux::below(root.path());
    (root, linux)
}

#[test]
fn a_run_is_written_with_what_the_conductor_set_and_the_arrangement_is_taken_back() {
    let (completion, asked, runs) = measured(Kind::Normal, "");
    assert_eq!(completion.unwrap(), Completion::Complete);
    assert_eq!(asked, ["arrange", "check 0 1", "enter Unchanged", "leave"]);
    let [run] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((run.latencies.samples(), run.name().as_str()), (5, "idle/normal"));
    assert_eq!(run.provenance.settings, ["a setting"]);
    // From the first instant to the end of the last sample, and nothing before or after.
    let (instants, period_ns) = (run.latencies.instants(), 200_000);
    let duration_ns = run.provenance.duration_ns;
    let span_ns = (instants - 1) * period_ns..=instants * period_ns;
    assert!(span_ns.contains(&duration_ns), "{duration_ns} ns, {instants} instants");
}

/// Ends a series at once.
struct Impatient;
impl Observer for Impatient {
    fn is_stopped(&self) -> bool {
        true
    }
}

#[test]
fn a_run_that_is_ended_in_the_first_sleep_is_written_and_its_arrangement_taken_back() {
    let (root, kernel) = machine();
    let conductor = Scripted::default();
    let dir = root.path().join("runs");
    let hour = Duration::from_secs(3600);
    let latency = Measurement::Latency { samples: 5, period: hour, source: None, flood: false };
    let series = series(Kind::Normal, dir);
    let session = Session::new(&kernel, &conductor, &Impatient, latency, &series).unwrap();
    let case = Case {
        kind: Kind::Normal,
        source: Source::Nanosleep,
        without: Vec::new(),
        step: None,
        name: "one".to_owned(),
    };
    // Without a load; one that runs has no part in this.
    let goes_on = |_, _| true;
    let mut idle = Running::start(&kernel, Load::Idle, session.size, root.path(), goes_on);
    let idle = idle.as_mut().unwrap().as_mut().unwrap();
    let (dir, provenance) = session.one(Load::Idle, &case, None, idle).unwrap();
    assert_eq!(provenance.partial.as_deref(), Some("interrupted"));
    assert_eq!((provenance.samples, provenance.duration_ns), (0, 0));
    assert_eq!(conductor.asked.borrow().last().map(String::as_str), Some("leave"));
    assert_eq!(Run::read(&dir).unwrap().provenance, provenance);
}

#[test]
fn a_run_whose_cpu_goes_offline_says_so() {
    let (root, kernel) = machine();
    let conductor = Scripted::default();
    let latency = Measurement::Latency {
        samples: 5,
        period: Duration::from_millis(1),
        source: None,
        flood: false,
    };
    let series = Series { cpu: 3, ..series(Kind::Normal, root.path().join("runs")) };
    let session = Session::new(&kernel, &conductor, &Unwatched, latency, &series).unwrap();
    std::fs::create_dir_all(root.path().join("proc/77/task/77")).unwrap();
    let of = |online: &str, runs_on: Cpu, samples: u64| {
        std::fs::write(root.path().join("sys/devices/system/cpu/online"), online).unwrap();
        // Field 39 of proc(5).
        let stat = format!("77 (asmp-probe) S {}{runs_on} 80 1\n", "0 ".repeat(35));
        std::fs::write(root.path().join("proc/77/task/77/stat"), stat).unwrap();
        session.left_its_cpu(77, Reached { samples, missed: 0, is_over: false })
    };
    assert_eq!(of("0-3\n", 3, 1), None);
    assert_eq!(of("0-3\n", 1, 0), None, "it is still on its way there");
    assert_eq!(of("0-2\n", 1, 1).as_deref(), Some("CPU 3 went offline"));
    let back = of("0-3\n", 1, 1).unwrap();
    assert!(back.contains("left CPU 3"), "it was away for less than a look: {back}");
}

#[test]
fn a_run_is_kept_also_where_its_arrangement_cannot_be_taken_back() {
    let (completion, asked, runs) = measured(Kind::Normal, "leave");
    assert!(matches!(completion, Err(ExperimentError::NotRestored(_))), "{completion:?}");
    assert_eq!(asked.last().map(String::as_str), Some("leave"));
    let [run] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((run.latencies.samples(), run.provenance.partial.as_deref()), (5, None));
}

#[test]
fn a_run_that_fails_before_it_has_measured_leaves_nothing_and_its_name_is_free() {
    let (root, kernel) = machine();
    let conductor = Scripted { refuses: "admit", ..Scripted::default() };
    let period = Duration::from_micros(200);
    let latency = Measurement::Latency { samples: 5, period, source: None, flood: false };
    let series = series(Kind::Partition, root.path().join("runs"));
    for _ in 0..2 {
        let session = Session::new(&kernel, &conductor, &Unwatched, latency, &series).unwrap();
        let error = session.run().unwrap_err();
        assert_eq!(error.to_string(), "no admit");
        assert_eq!(std::fs::read_dir(&series.dir).unwrap().count(), 0);
        drop(session);
        assert!(!series.dir.exists());
    }
    // What another program has put there stays.
    let session = Session::new(&kernel, &conductor, &Unwatched, latency, &series).unwrap();
    std::fs::create_dir(series.dir.join("idle-partition")).unwrap();
    drop(session);
    assert!(series.dir.join("idle-partition").exists());
}

#[test]
fn a_run_never_takes_a_directory_that_is_there() {
    let (root, kernel) = machine();
    let conductor = Scripted::default();
    let period = Duration::from_micros(200);
    let latency = Measurement::Latency { samples: 5, period, source: None, flood: false };
    let series = series(Kind::Normal, root.path().join("runs"));
    let session = Session::new(&kernel, &conductor, &Unwatched, latency, &series).unwrap();
    let taken = series.dir.join("idle-normal");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("hist.hlog"), "another's").unwrap();
    assert!(session.run().unwrap_err().to_string().contains("idle-normal: "));
    assert_eq!(std::fs::read_to_string(taken.join("hist.hlog")).unwrap(), "another's");
    assert_eq!(std::fs::read_dir(&series.dir).unwrap().count(), 1);
}

#[test]
fn what_is_named_twice_is_refused() {
    assert!(once(&[Load::Idle, Load::Mixed, Load::Cpu]).is_ok());
    let refused = once(&[Load::Mixed, Load::Idle, Load::Mixed]).unwrap_err();
    assert_eq!(refused.to_string(), "mixed is named twice");
    let refused = once(&[Kind::Normal, Kind::Normal]).unwrap_err();
    assert_eq!(refused.to_string(), "normal is named twice");
}

#[test]
fn what_the_machine_has_once_is_reserved_before_anything_is_made() {
    let (completion, asked, runs) = measured(Kind::Fifo, "reserve");
    let error = completion.unwrap_err();
    assert_eq!(error.to_string(), "no reserve");
    assert_eq!((asked, runs.len()), (words(&["arrange", "check 0 1", "reserve false"]), 0));
}

#[test]
fn what_a_failed_run_has_changed_is_taken_back_and_its_own_error_is_shown() {
    for refuses in ["enter", "admit"] {
        let (completion, asked, runs) = measured(Kind::Partition, refuses);
        let error = completion.unwrap_err();
        assert!(matches!(error, ExperimentError::Conductor(_)), "{error}");
        assert_eq!(error.to_string(), format!("no {refuses}"));
        assert_eq!(asked.last().map(String::as_str), Some("leave"), "{asked:?}");
        assert!(runs.is_empty());
    }
    let (completion, asked, _) = measured(Kind::Partition, "check");
    assert!(completion.is_err(), "{completion:?}");
    assert_eq!(asked, ["arrange", "check 0 1"], "nothing was touched");
}

/// The kernel refuses tasks there, and a flooder that was refused ended the series.
#[test]
fn a_load_leaves_out_the_cpus_of_partitions_but_not_the_measured_one() {
    let (root, kernel) = machine();
    let mounts = "25 1 0:23 / /cg rw - cgroup2 cgroup2 rw\n";
    std::fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
    std::fs::create_dir(root.path().join("cg")).unwrap();
    let of = |isolated: &str, measured| {
        std::fs::write(root.path().join("cg/cpuset.cpus.isolated"), isolated).unwrap();
        load_cpus(&Facts::read(&kernel).unwrap(), measured).to_string()
    };
    assert_eq!([of("\n", 3), of("2\n", 3), of("2-3\n", 3)], ["0-3", "0-1,3", "0-1,3"]);
    std::fs::remove_file(root.path().join("cg/cpuset.cpus.isolated")).unwrap();
    assert_eq!(load_cpus(&Facts::read(&kernel).unwrap(), 3).to_string(), "0-3", "not known");
}

#[test]
fn a_task_as_it_is_needs_nothing_that_only_root_may_arrange() {
    let (completion, asked, runs) = measured(Kind::Normal, "arrange");
    assert_eq!(completion.unwrap(), Completion::Complete);
    assert_eq!(asked, ["arrange", "enter Unchanged", "leave"]);
    assert_eq!(runs.len(), 1);
    for kind in [Kind::Fifo, Kind::FifoIrq, Kind::Partition, Kind::PartitionTick] {
        let (completion, asked, runs) = measured(kind, "arrange");
        assert_eq!(completion.unwrap_err().to_string(), "no arrange", "{kind}");
        assert_eq!((asked, runs.len()), (words(&["arrange"]), 0), "{kind}: nothing was touched");
    }
}
