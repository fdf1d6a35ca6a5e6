// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::sample::Writer;

/// A latency of 1 ms periods on CPU 3 of a guest.
pub fn provenance() -> Provenance {
    let machine = Machine {
        kernel: "7.2".into(),
        kernel_version: String::new(),
        cpu_model: String::new(),
        online_cpus: "0-3".into(),
        boot_parameters: String::new(),
        hypervisor: Some(true),
    };
    Provenance {
        schema: RUN_SCHEMA,
        tool: "test".into(),
        command_line: vec![],
        experiment: Experiment::Latency,
        kind: Kind::Partition,
        source: Source::Nanosleep,
        column: None,
        step: None,
        load: Load::Mixed,
        load_size: Size { per_cpu: 1, cpus: 4 },
        load_commands: vec![],
        load_tool: None,
        load_dir: None,
        flood: Some(false),
        machine,
        cpu: Some(3),
        schedule: Some(Schedule::Fifo { priority: 80 }),
        memory_locked: Some(true),
        cpu_latency_held: Some(true),
        period_ns: Some(1_000_000),
        warm_up_samples: 0,
        started_s: 1,
        duration_ns: 1,
        samples: 0,
        lost: 0,
        overruns: 0,
        lost_records: 0,
        partial: None,
        work_ns: None,
        base_ns: None,
        not_recorded: None,
        settings: vec![],
        totals: Totals::default(),
        worst: vec![],
    }
}

/// Writes a run of these latencies; a late one skips the instants that it missed.
fn write(dir: &Path, provenance: Provenance, latencies_ns: &[u64]) {
    std::fs::create_dir_all(dir).unwrap();
    let mut writer = Writer::create(&dir.join("samples.bin")).unwrap();
    let mut due_ns = 1000;
    for value_ns in latencies_ns {
        writer.push(Sample { due_ns, value_ns: *value_ns, ..Sample::default() }).unwrap();
        due_ns += 1_000_000 * (1 + value_ns.saturating_sub(1) / 1_000_000);
    }
    let samples = writer.finish().unwrap().0;
    write_provenance(dir, &Provenance { samples, ..provenance }).unwrap();
}

#[test]
fn a_run_counts_the_instants_that_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), provenance(), &[10_000, 40_000_000, 12_000]);
    let run = Run::read(dir.path()).unwrap();
    let summary = run.summary();
    assert_eq!((summary.instants, summary.samples, summary.missed), (42, 3, Some(39)));
    assert_eq!((summary.lost, summary.max_ns), (0, Some(40_000_000)));
    assert_eq!(run.samples().unwrap().len(), 3);
    // Overhead has turns and no instants.
    let base_ns = Some(BaseTime { before_ns: 11_000, after_ns: 12_000, rounds: 1 });
    let overhead = Provenance { experiment: Experiment::Overhead, base_ns, ..provenance() };
    write(&dir.path().join("overhead"), overhead, &[10_000, 40_000_000, 12_000]);
    let run = Run::read(&dir.path().join("overhead")).unwrap();
    assert_eq!((run.latencies.instants(), run.latencies.missed()), (3, 0));
    assert_eq!(run.latencies.min_ns(), Some(0));
    assert_eq!((run.latencies.max_ns(), run.system_max_ns), (Some(39_989_000), Some(0)));
}

#[test]
fn a_log_is_read_in_place_of_the_samples_if_it_has_as_many() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), provenance(), &[10_000, 12_000]);
    let log = |latencies: &Latencies| {
        let mut log = hlog::Writer::new(Vec::new(), std::time::UNIX_EPOCH).unwrap();
        log.second(0, None, latencies).unwrap();
        log.exact(None, latencies).unwrap();
        std::fs::write(dir.path().join("hist.hlog"), log.finish().unwrap()).unwrap();
    };
    let other = Latencies::of([7, 8]);
    log(&other);
    assert_eq!(Run::read(dir.path()).unwrap().latencies, other);
    // A full disk has cut the log.
    log(&Latencies::of([7]));
    assert_eq!(Run::read(dir.path()).unwrap().latencies, Latencies::of([10_000, 12_000]));
    log(&Latencies::of([7, 8, 9]));
    let refused = Run::read(dir.path()).unwrap_err().to_string();
    assert!(refused.ends_with("hist.hlog: 3 samples, and run.json says 2"), "{refused}");
    std::fs::remove_file(dir.path().join("samples.bin")).unwrap();
    let refused = Run::read(dir.path()).unwrap_err().to_string();
    assert!(refused.ends_with("hist.hlog: 3 samples, and run.json says 2"), "{refused}");
    std::fs::write(dir.path().join("hist.hlog"), "garbage\n").unwrap();
    assert!(matches!(Run::read(dir.path()), Err(RunError::Log { .. })));
}

#[test]
fn a_fifo_in_the_place_of_a_file_of_a_run_is_refused() {
    for name in RUN_FILES {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), provenance(), &[5, 7]);
        let path = dir.path().join(name);
        let _ = std::fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = Run::read(dir.path()).unwrap_err().to_string();
        assert!(refused.ends_with(&format!("{name}: not a regular file")), "{refused}");
    }
}

#[test]
fn a_worst_that_is_longer_than_the_longest_is_refused_but_of_a_run_that_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut worst = Outlier {
        index: 1,
        at_ns: None,
        value_ns: 12_000,
        handler_ns: None,
        cause: String::new(),
        records: Vec::new(),
    };
    let read = |worst: &Outlier, partial: Option<&str>, name: &str| {
        let (worst, partial) = (vec![worst.clone()], partial.map(str::to_owned));
        let provenance = Provenance { worst, partial, ..provenance() };
        write(&dir.path().join(name), provenance, &[10_000, 12_000]);
        Run::read(&dir.path().join(name))
    };
    assert!(read(&worst, None, "right").is_ok());
    worst.value_ns = 12_001;
    let refused = read(&worst, None, "wrong").unwrap_err().to_string();
    let words = "its worst took 12001 ns, and the longest of its log 12000 ns";
    assert!(refused.ends_with(words), "{refused}");
    assert!(read(&worst, Some("the disk is full"), "cut").is_ok());
}

#[test]
fn a_run_that_lost_its_histograms_names_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let lost = |schema: u32| {
        write(dir.path(), Provenance { schema, ..provenance() }, &[5, 7]);
        assert!(Run::read(dir.path()).is_ok(), "it has its samples");
        std::fs::remove_file(dir.path().join("samples.bin")).unwrap();
        Run::read(dir.path()).unwrap_err().to_string()
    };
    for (schema, name) in [(RUN_SCHEMA, "hist.hlog"), (2, "hist.hlog"), (1, "samples.bin")] {
        let refused = lost(schema);
        assert!(refused.contains(&format!("{name}: No such file")), "{schema}: {refused}");
    }
}

#[test]
fn an_import_has_no_policy_though_an_older_one_wrote_one() {
    let read = |source: Source, schedule: Option<Schedule>| {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), Provenance { source, schedule, ..provenance() }, &[5]);
        Run::read(dir.path()).unwrap().provenance.schedule
    };
    let other = Some(Schedule::Other { nice: 0 });
    assert_eq!(read(Source::Import, other), None);
    assert_eq!(read(Source::Import, None), None);
    assert_eq!(read(Source::Nanosleep, other), other);
}

#[test]
fn a_run_of_the_first_version_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), Provenance { schema: 1, ..provenance() }, &[5, 7]);
    assert!(!std::fs::read_to_string(dir.path().join("run.json")).unwrap().contains("column"));
    assert_eq!(Run::read(dir.path()).unwrap().latencies, Latencies::of([5, 7]));
    let newer = Provenance { schema: RUN_SCHEMA + 1, ..provenance() };
    write_provenance(dir.path(), &newer).unwrap();
    let refused = Run::read(dir.path()).unwrap_err();
    assert!(matches!(refused, RunError::Schema { found: 4, .. }));
    assert!(refused.to_string().contains("schema 4, but this asmp reads 1 to 3"), "{refused}");
}

#[test]
fn a_run_that_has_the_papers_names_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("MIX-Aoff");
    write(&at, Provenance { schema: 2, ..provenance() }, &[5, 7]);
    let text = std::fs::read_to_string(at.join("run.json")).unwrap();
    let old = text.replace("\"partition\"", "\"Aoff\"").replace("\"mixed\"", "\"MIX\"");
    assert_ne!(old, text);
    std::fs::write(at.join("run.json"), old).unwrap();
    let [run] = Run::read_all(dir.path()).unwrap().runs.try_into().unwrap();
    assert_eq!(run.name(), "mixed/partition");
    assert_eq!(run.latencies, Latencies::of([5, 7]));
}

#[test]
fn what_is_no_run_is_named_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("first/mixed-partition"), provenance(), &[1]);
    write(&at("second/mixed-partition"), provenance(), &[2]);
    write(&at("second/killed"), provenance(), &[2]);
    std::fs::remove_file(at("second/killed/run.json")).unwrap();
    std::fs::create_dir(at("notes")).unwrap();
    let found = Run::read_all(dir.path()).unwrap();
    assert_eq!(found.runs.len(), 2);
    let refused: Vec<String> = found.refused.iter().map(ToString::to_string).collect();
    assert!(refused[0].contains("notes holds no run"), "{refused:?}");
    assert!(refused[1].contains("second/killed is not a run"), "{refused:?}");
    assert!(matches!(Run::read_all(&at("notes")), Err(RunError::NoProvenance { .. })));
    assert!(matches!(Run::read_all(&at("second/killed")), Err(RunError::NoProvenance { .. })));
    assert!(matches!(Run::read_all(&at("nothing")), Err(RunError::Io { .. })));
}
