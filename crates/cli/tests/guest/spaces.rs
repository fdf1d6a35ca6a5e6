// SPDX-License-Identifier: Apache-2.0 OR MIT
//! measure spaces: one event handled in the kernel and in an address space of its own. What is
//! checked is what holds of any machine: who was measured, every activation in its order, and that
//! none is missing.

use super::guests::{Boot, On};
use super::lab::{
    Process, Test, allowed, asmp, binary, kernel_threads, policy, read, stressors, test, until,
};
use super::measure::{fresh, traces};
use asmp_measure::run::{Run, Source};
use std::fs;
use std::path::Path;
use std::process::Command;

pub fn all() -> Vec<Test> {
    let timerlat =
        |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Bare]).lacks(no_timerlat);
    vec![
        timerlat("measure spaces has each activation whole and in its order", each_activation),
        timerlat(
            "measure spaces killed outright leaves no thread and no setting of the tracer",
            killed_outright,
        ),
        timerlat(
            "measure spaces gives the kernel's thread the priority and the cpu of ours",
            kernel_thread,
        ),
        test("measure spaces: the load cache has a flooder on each cpu of the system", flooders)
            .on(On::RtAndNot)
            .booted(&[Boot::Bare]),
        test("measure spaces refuses a kernel without timerlat", refused)
            .on(On::NotRt)
            .booted(&[Boot::Bare])
            .lacks(has_timerlat),
    ]
}

fn timerlat_there() -> bool {
    read("/sys/kernel/tracing/available_tracers").split_whitespace().any(|name| name == "timerlat")
}

pub fn no_timerlat() -> Option<&'static str> {
    (!timerlat_there()).then_some("no timerlat in this kernel")
}

fn has_timerlat() -> Option<&'static str> {
    timerlat_there().then_some("this kernel has timerlat")
}

const SAMPLES: u64 = 500;
const PERIOD_NS: u64 = 2_003_000;

fn each_activation() {
    let dir = fresh("spaces");
    let before = traces();
    let line = format!(
        "measure spaces --kinds normal,fifo --load idle --samples {SAMPLES} --samples-too -o {dir} \
         --quiet"
    );
    asmp(&line).done().says("cost of the address space: median").says("user - thread");
    assert_eq!(traces(), before, "trace instances and timerlat's settings");
    for kind in ["normal", "fifo"] {
        let of = |place: &str| {
            Run::read(&Path::new(&dir).join(format!("idle-{kind}-{place}"))).expect("a run")
        };
        let (kernel, user, program) = (of("kernel"), of("user"), of("program"));
        assert_eq!(kernel.provenance.source, Source::TimerlatKernel);
        assert_eq!(user.provenance.source, Source::Timerlat);
        assert_eq!(program.provenance.source, Source::Nanosleep);
        assert_eq!(kernel.provenance.schedule, user.provenance.schedule);
        for run in [&kernel, &user] {
            let (name, provenance) = (run.dir.display(), &run.provenance);
            let samples = run.samples().expect("samples");
            assert_eq!((provenance.samples, samples.len() as u64), (SAMPLES, SAMPLES), "{name}");
            assert_eq!(
                (provenance.lost, provenance.lost_records),
                (0, 0),
                "{name}: nothing is lost"
            );
            assert_eq!(provenance.partial, None, "{name}");
            for (at, sample) in samples.iter().enumerate() {
                let (irq_ns, thread_ns) =
                    (sample.handler_ns.expect("irq"), sample.thread_ns.expect("thread"));
                let handled_ns = sample.value_ns;
                assert!(
                    0 < irq_ns && irq_ns <= thread_ns && thread_ns <= handled_ns,
                    "{name} {at}: {sample:?}"
                );
            }
            // The event of a kernel thread is handled when the thread runs; of a user thread later.
            let later =
                samples.iter().filter(|sample| Some(sample.value_ns) > sample.thread_ns).count();
            assert_eq!(later as u64, if run.is_of_kernel_thread() { 0 } else { SAMPLES }, "{name}");
            // Every instant from the first to the last is a sample or an overrun.
            let ends = [samples.first(), samples.last()].map(|one| one.expect("samples").due_ns);
            let instants = (SAMPLES - 1 + provenance.overruns) * PERIOD_NS;
            let off_ns = (ends[1] - ends[0]).abs_diff(instants);
            assert!(off_ns < PERIOD_NS / 2, "{name}: {off_ns} ns off the grid of {instants} ns");
            let took_ns = provenance.duration_ns;
            assert!(took_ns + PERIOD_NS / 2 > instants, "{name}: {took_ns} ns");
            assert!(samples.windows(2).all(|two| two[0].due_ns < two[1].due_ns), "{name}");
        }
    }
    asmp(&format!("measure report {dir} -o {dir}/report.html")).done().says("idle      kernel");
    assert!(read(format!("{dir}/report.html")).contains("<h3>Event to handler, idle/fifo</h3>"));
    // Numbers mean the same in both: the kernel thread is no other run of the user's.
    asmp(&format!("measure compare {dir} {dir}")).done().says("worst +0.000 us (one run each)");
}

/// A comparison that goes on, with the kernel's thread at work.
fn at_work(dir: &str) -> (Process, u32) {
    let words = [
        "measure",
        "spaces",
        "--load",
        "idle",
        "--samples",
        "1000000",
        "--samples-too",
        "--quiet",
        "-o",
        dir,
    ];
    let measure = Process::start(&binary().display().to_string(), &words);
    let samples = format!("{dir}/idle-fifo-kernel/samples.bin");
    until("samples are written", || fs::metadata(&samples).is_ok_and(|file| file.len() > 60_000));
    let threads = kernel_threads("timerlat/");
    assert_eq!(threads.len(), 1, "{threads:?}");
    assert_eq!(threads[0].1, "timerlat/3");
    (measure, threads[0].0)
}

fn kernel_thread() {
    let dir = fresh("spaces-thread");
    let before = traces();
    let (mut measure, tid) = at_work(&dir);
    assert!(
        policy(tid).contains("SCHED_FIFO") && policy(tid).contains("priority: 80"),
        "{}",
        policy(tid)
    );
    assert_eq!(allowed(tid), "3");
    // Another tool takes the tracer for itself: the measurement says so and does not wait for ever.
    fs::write("/sys/kernel/tracing/osnoise/options", "NO_OSNOISE_WORKLOAD")
        .expect("the thread ends");
    until("the next run begins", || fs::exists(format!("{dir}/idle-fifo-user")).unwrap_or(false));
    interrupt(&mut measure);
    let run = Run::read(&Path::new(&dir).join("idle-fifo-kernel")).expect("a run");
    assert!(run.provenance.partial.is_some_and(|why| why.contains("timerlat thread is gone")));
    // What the other tool set stays, since it was not ours; everything else is as before.
    let options = read("/sys/kernel/tracing/osnoise/options");
    assert!(options.contains("NO_OSNOISE_WORKLOAD"), "{options}");
    fs::write("/sys/kernel/tracing/osnoise/options", "OSNOISE_WORKLOAD").expect("an option");
    assert_eq!(traces(), before, "trace instances and timerlat's settings");
}

fn interrupt(measure: &mut Process) {
    let sent = Command::new("kill").args(["-INT", &measure.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    assert_eq!(measure.0.wait().expect("it ends").code(), Some(130));
}

fn killed_outright() {
    let dir = fresh("spaces-killed");
    let before = traces();
    let (mut measure, _) = at_work(&dir);
    assert_ne!(traces(), before);
    measure.0.kill().expect("kill -9");
    measure.0.wait().expect("it ends");
    asmp("restore").done();
    assert_eq!(traces(), before, "trace instances and timerlat's settings");
    assert_eq!(kernel_threads("timerlat/"), []);
}

/// Flooders of ours: number and CPUs.
fn flooding() -> Vec<(u32, String)> {
    let is_one = |tid: u32| {
        let line = fs::read(format!("/proc/{tid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"flood")
    };
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let tids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    let mut all: Vec<(u32, String)> =
        tids.filter(|tid| is_one(*tid)).map(|tid| (tid, allowed(tid))).collect();
    all.sort_by(|a, b| a.1.cmp(&b.1));
    all
}

/// Field of /proc/TID/stat, counted from the state (3) on.
fn stat(tid: u32, field: usize) -> i64 {
    let text = read(format!("/proc/{tid}/stat"));
    let rest = text.rsplit_once(") ").expect("a stat line").1.to_owned();
    rest.split_whitespace().nth(field - 3).and_then(|word| word.parse().ok()).expect("a number")
}

/// Nice value of each flooder, in the order of `flooding`.
fn nices() -> Vec<i64> {
    flooding().iter().map(|(tid, _)| stat(*tid, 19)).collect()
}

fn flooders() {
    for kind in ["fifo", "partition-tick"] {
        let dir = fresh("flooders");
        let words =
            ["measure", "latency", "--kinds", kind, "--load", "cache", "--load-factor", "1"];
        let more = ["--source", "nanosleep", "--samples", "1000000", "--quiet", "-o", &dir];
        let mut measure =
            Process::start(&binary().display().to_string(), &[&words[..], &more[..]].concat());
        let log = format!("{dir}/cache-{kind}/hist.hlog");
        until("the flooders are there", || flooding().len() == 4);
        // The load is whole and the kind is set up before the first sample; the weight comes last.
        let pressed = usize::from(kind == "fifo");
        let heavy = || nices().iter().filter(|nice| **nice == -10).count();
        until("the run begins", || fs::exists(&log).unwrap_or(false) && heavy() == pressed);
        let all = flooding();
        let cpus: Vec<&str> = all.iter().map(|(_, cpus)| cpus.as_str()).collect();
        // A partition keeps the system's load off its CPU, also where that load was bound to it.
        let expected = if kind == "fifo" { ["0", "1", "2", "3"] } else { ["0", "0-2", "1", "2"] };
        assert_eq!(cpus, expected, "{kind}");
        for (tid, _) in &all {
            assert!(read(format!("/proc/{tid}/status")).contains("THP_enabled:\t0"), "small pages");
        }
        let nices = nices();
        assert_eq!(nices.iter().filter(|nice| **nice == -10).count(), pressed, "{kind}: {nices:?}");
        if kind == "fifo" {
            // The one on the measured CPU has most of what the probe leaves over: ticks of 10 ms in
            // 3 s.
            assert_eq!(nices[3], -10, "{nices:?}");
            let used = || stat(all[3].0, 14) + stat(all[3].0, 15);
            let before = used();
            std::thread::sleep(std::time::Duration::from_secs(3));
            assert!(used() - before > 150, "{} of 300 ticks", used() - before);
        }
        interrupt(&mut measure);
        assert_eq!((flooding(), stressors()), (vec![], 0), "the load has ended");
        let run = Run::read(&Path::new(&dir).join(format!("cache-{kind}"))).expect("a run");
        let told = run
            .provenance
            .load_commands
            .iter()
            .filter(|line| line.starts_with("asmp flood"))
            .count();
        assert_eq!(told, 4, "{:?}", run.provenance.load_commands);
    }
}

fn refused() {
    let dir = fresh("spaces-refused");
    asmp(&format!("measure spaces -o {dir}")).code(53).says("PREEMPT_RT");
    assert!(!Path::new(&dir).exists(), "nothing was made");
}
