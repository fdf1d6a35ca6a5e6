// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Run directories as `asmp measure` leaves them, written by its own code with values that a test
//! plants.

use asmp_host::Schedule;
use asmp_measure::load::{Load, Size};
use asmp_measure::run::{self, Experiment, Kind, Machine, Provenance, RUN_SCHEMA, Source, Totals};
use asmp_measure::sample::{Sample, Writer};
use std::path::Path;

/// A latency of 1 ms periods on CPU 3 of a guest.
pub fn provenance(kernel: &str, load: Load, kind: Kind) -> Provenance {
    Provenance {
        schema: RUN_SCHEMA,
        tool: "test".into(),
        command_line: vec![],
        experiment: Experiment::Latency,
        kind,
        source: Source::Nanosleep,
        column: None,
        step: None,
        load,
        load_size: Size { per_cpu: 1, cpus: 4 },
        load_commands: vec![],
        load_tool: None,
        load_dir: None,
        flood: Some(false),
        machine: Machine {
            kernel: kernel.into(),
            kernel_version: "#1".into(),
            cpu_model: "a <model> & more".into(),
            online_cpus: "0-3".into(),
            boot_parameters: String::new(),
            hypervisor: Some(true),
        },
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
        not_recorded: Some("a test".into()),
        settings: vec![],
        totals: Totals::default(),
        worst: vec![],
    }
}

pub fn write(dir: &Path, provenance: Provenance, values_ns: impl Iterator<Item = u64>) {
    std::fs::create_dir_all(dir).unwrap();
    let mut writer = Writer::create(&dir.join("samples.bin")).unwrap();
    for (turn, value_ns) in (0..).zip(values_ns) {
        let due_ns = turn * 1_000_000;
        writer.push(Sample { due_ns, value_ns, ..Sample::default() }).unwrap();
    }
    let samples = writer.finish().unwrap().0;
    run::write_provenance(dir, &Provenance { samples, ..provenance }).unwrap();
}
