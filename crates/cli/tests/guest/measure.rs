// SPDX-License-Identifier: Apache-2.0 OR MIT
//! measure: runs tell what was measured and what was set, causes are found, and whatever ends a
//! measurement leaves the machine as it was (every test here is compared with its snapshot).

use super::guests::{Boot, On, Tier};
use super::lab::{OnCpu0, Process, Test, asmp, binary, policy, read, stressors, test, until};
use super::others::Machine;
use super::random::hands::online;
use super::watchdog;
use asmp_host::{Kernel, Linux};
use asmp_measure::load::LoadDir;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const KINDS: [&str; 5] = ["normal", "fifo-irq", "fifo", "partition-tick", "partition"];

pub fn all() -> Vec<Test> {
    let candidate = |name, run: fn()| test(name, run).lacks(no_candidate);
    vec![
        candidate("measure takes every kind and says what it set", every_kind),
        candidate(
            "measure overhead finds nothing of the system in a partition without tick",
            overhead,
        )
        .on(On::OneThenAll),
        test("measure names the probe's own timer and no device in its place", own_timer)
            .on(On::One)
            .booted(&[Boot::Bare])
            .also_on_arm64(Tier::Nightly),
        candidate("measure leaves the machine as it was each of twenty times", twenty_runs)
            .on(On::OneThenRt)
            .booted(&[Boot::Bare])
            .nightly(),
        test("measure ended by a signal keeps its samples and undoes the shield", interrupted),
        test("measure killed outright is undone by restore", killed_outright)
            .on(On::OnePerSeries)
            .booted(&[Boot::Bare]),
        test("measure ended by a signal ends though its probe sleeps for an hour", asleep),
        test("measure ended by a signal ends though another task keeps its cpu", starved)
            .on(On::OnePerSeries)
            .booted(&[Boot::Bare]),
        test("measure ended by a signal while its load starts leaves none of it", load_starts),
        test("measure says that its cpu went offline", offline)
            .on(On::OnePerSeries)
            .booted(&[Boot::Bare]),
        test("measure counts no step of the clock as a latency", clock_step).on(On::One),
        test("measure on a full disk keeps what was measured", full_disk),
        test("measure refuses before anything is changed", refusals).on(On::One),
        candidate("measure ab says which step it tried and leaves none behind", ab)
            .on(On::OneThenAll),
    ]
}

fn no_candidate() -> Option<&'static str> {
    (!read("/sys/devices/system/cpu/nohz_full").contains('3'))
        .then_some("not booted with nohz_full")
}

/// A directory that does not exist yet.
pub fn fresh(name: &str) -> String {
    let dir = format!("/tmp/asmp-{name}");
    let _ = fs::remove_dir_all(&dir);
    dir
}

pub fn run_of(dir: &str, name: &str) -> Value {
    let path = Path::new(dir).join(name).join("run.json");
    serde_json::from_str(&read(path)).expect("a run")
}

fn every_kind() {
    let dir = fresh("kinds");
    let printed =
        asmp(&format!("measure latency --samples 200 --period 2ms -o {dir} --quiet")).done();
    printed.says("Latency under load idle").says(" the best worst case: ");
    let beside = asmp(&format!("measure report {dir} --beside-paper")).done();
    beside.says("max(normal)/max(partition)");
    for kind in KINDS {
        let run = run_of(&dir, &format!("idle-{kind}"));
        assert_eq!((run["samples"].as_u64(), run["lost"].as_u64()), (Some(200), Some(0)), "{kind}");
        assert!(run["partial"].is_null(), "{kind}: {}", run["partial"]);
        // Those of the tracer that takes the times are set for every kind.
        let settings = run["settings"].as_array().expect("settings").iter();
        let settings =
            settings.filter_map(Value::as_str).filter(|line| !line.contains("/osnoise/"));
        let settings = settings.count();
        match kind {
            "normal" => {
                assert_eq!((settings, run["schedule"]["policy"].as_str()), (0, Some("other")))
            }
            _ => assert!(
                settings > 0 && run["schedule"]["policy"] == "fifo",
                "{kind}: {settings} settings"
            ),
        }
    }
    // All lines that can move were kept to the CPU, or away from it.
    let moved = |kind: &str, to: &str| {
        let run = run_of(&dir, &format!("idle-{kind}"));
        let settings = run["settings"].as_array().expect("settings").clone();
        let lines = settings
            .iter()
            .filter_map(Value::as_str)
            .filter(|line| line.contains("smp_affinity_list"));
        assert!(lines.clone().count() > 3, "{kind}: {settings:?}");
        assert!(lines.clone().all(|line| line.ends_with(to)), "{kind}: {settings:?}");
    };
    moved("fifo-irq", "-> 3");
    moved("fifo", "-> 0-2");
    asmp(&format!("measure report {dir} -o {dir}/report.html")).done();
    assert!(read(format!("{dir}/report.html")).contains("</html>"));
    asmp(&format!("measure compare {dir} {dir}")).done().says("one run each");
    // It exists now: nothing is overwritten.
    asmp(&format!("measure latency --samples 10 -o {dir} --quiet")).code(40).says("exists");
}

fn overhead() {
    let dir = fresh("overhead");
    asmp(&format!(
        "measure overhead --kinds fifo,partition-tick,partition --load mixed --load-factor 4 \
         --iterations 20 --work 50ms -o {dir} --quiet"
    ))
    .done();
    let table = asmp(&format!("measure report {dir} --json")).done().out;
    let table: Value = serde_json::from_str(&table).expect("JSON");
    let system = |kind: &str| {
        let rows = table["rows"].as_array().expect("rows");
        rows.iter().find(|row| row["kind"] == kind).expect(kind)["system_max_ns"]
            .as_u64()
            .expect("recorded")
    };
    println!(
        "overhead: system's own: fifo {} ns, partition-tick {} ns, partition {} ns",
        system("fifo"),
        system("partition-tick"),
        system("partition")
    );
    assert_eq!(system("partition"), 0, "no tick, no interrupt, no other task in 1 s");
    // A single FIFO task of a candidate may have no tick either (sched_can_stop_tick).
    assert!(system("partition-tick") > 0, "with a tick there is something to see");
    let run = run_of(&dir, "mixed-partition");
    assert!(
        run["base_ns"]["before_ns"].as_u64() > Some(0)
            && run["base_ns"]["after_ns"].as_u64() > Some(0)
    );
    assert_eq!(run["load_commands"].as_array().map(Vec::len), Some(3));
    let wrote = LoadDir::of(Path::new("/tmp")).expect("/tmp");
    assert_eq!(run["load_dir"]["file_system"], wrote.file_system.as_str());
    assert_eq!(run["load_dir"]["device"], wrote.device.as_str());
    assert_eq!(stressors(), 0, "the load has ended");
}

/// On arm64 the timer is a line of /proc/interrupts as a device's is.
fn own_timer() {
    let dir = fresh("timer");
    asmp(&format!(
        "measure latency --kinds partition-tick --source nanosleep --samples 60 \
         --period 5ms -o {dir} --quiet"
    ))
    .done();
    let run = run_of(&dir, "idle-partition-tick");
    let worst = run["worst"].as_array().expect("worst");
    let said = Value::Array(worst.clone()).to_string();
    assert!(!said.contains("arch_timer"), "{said}");
    let has_timer = worst.iter().filter(|one| one["records"].to_string().contains("local timer"));
    let count = has_timer.count();
    assert!(count * 2 > worst.len(), "only {count} of {} have their timer: {said}", worst.len());
}

fn twenty_runs() {
    let machine = Machine::now();
    let sources: &[&str] = match fs::exists("/sys/kernel/tracing/osnoise") {
        Ok(true) => &["nanosleep", "timerlat"],
        _ => &["nanosleep"],
    };
    for turn in 0..20 {
        watchdog::goes_on();
        let (dir, kind) = (fresh("twenty"), KINDS[turn % 5]);
        let source = sources[turn / 5 % sources.len()];
        asmp(&format!(
            "measure latency --kinds {kind} --source {source} --samples 20 --period 2ms -o {dir} \
             --quiet"
        ))
        .done();
        let run = run_of(&dir, &format!("idle-{kind}"));
        assert_eq!(run["samples"].as_u64(), Some(20), "{kind}, {source}");
        machine.is_as_it_was(&format!("run {turn}: {kind}, {source}"));
    }
}

fn spawn_measure(dir: &str) -> Process {
    let words =
        ["measure", "latency", "--kinds", "partition-tick", "--load", "cpu", "--load-factor", "1"];
    let more = ["--samples", "1000000", "--samples-too", "--period", "2ms", "--quiet", "-o", dir];
    let measure =
        Process::start(&binary().display().to_string(), &[&words[..], &more[..]].concat());
    let samples = format!("{dir}/cpu-partition-tick/samples.bin");
    until("samples are written", || fs::metadata(&samples).is_ok_and(|file| file.len() > 60_000));
    measure
}

fn interrupted() {
    let dir = fresh("interrupted");
    let mut measure = spawn_measure(&dir);
    asmp("status").done().says("asmp-probe");
    let sent = Command::new("kill").args(["-INT", &measure.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    assert_eq!(measure.0.wait().expect("it ends").code(), Some(130));
    let run = run_of(&dir, "cpu-partition-tick");
    assert_eq!(run["partial"], "interrupted");
    assert!(run["samples"].as_u64() > Some(1000), "{}", run["samples"]);
    asmp(&format!("measure report {dir}")).done().says("partial");
    asmp("status").done().says("no partition");
    assert_eq!(stressors(), 0, "the load has ended");
}

/// A measurement on CPU 3, by nanosleep, that has begun to take samples, or to sleep.
fn begun(dir: &str, more: &str) -> Process {
    let line = format!("measure latency --source nanosleep --quiet -o {dir} {more}");
    let words: Vec<&str> = line.split_whitespace().collect();
    let measure = Process::start(&binary().display().to_string(), &words);
    let begun = |entry: fs::DirEntry| entry.path().join("run.json").exists();
    until("a run begins", || fs::read_dir(dir).is_ok_and(|all| all.flatten().any(begun)));
    measure
}

/// The first lines of `hist.hlog` are comments and a heading.
fn until_a_second_is_written(dir: &str, name: &str) {
    let log = Path::new(dir).join(name).join("hist.hlog");
    let is_second = |line: &str| !line.starts_with(['#', '"']);
    until("a second is written", || {
        fs::read_to_string(&log).is_ok_and(|text| text.lines().any(is_second))
    });
}

/// Ends it by a signal; returns how long that took.
fn ended_by_sigint(mut measure: Process) -> Duration {
    let since = Instant::now();
    // A program would have to be read first: a busy real-time probe may keep the CPU of the disk's
    // interrupt for an hour.
    // SAFETY: a system call with numbers alone; the child is not waited for yet.
    assert_eq!(unsafe { libc::kill(measure.id() as i32, libc::SIGINT) }, 0);
    assert_eq!(measure.0.wait().expect("it ends").code(), Some(130));
    since.elapsed()
}

fn asleep() {
    let dir = fresh("asleep");
    let measure = begun(&dir, "--kinds partition-tick --samples 10 --period 1h");
    let took = ended_by_sigint(measure);
    assert!(took < Duration::from_secs(120), "{took:?}");
    let run = run_of(&dir, "idle-partition-tick");
    assert_eq!((&run["partial"], &run["samples"]), (&"interrupted".into(), &0.into()));
    asmp("status").done().says("no partition");
    // A turn of the loop that lasts for an hour, and a user who gives asmp that CPU alone.
    let dir = fresh("at-work");
    let line = format!("-c 3 {} measure overhead --kinds fifo --iterations 9", binary().display());
    let line = format!("{line} --cpus 3 --work 1h -q -o {dir}");
    let words: Vec<&str> = line.split_whitespace().collect();
    let measure = Process::start("taskset", &words);
    let _on_cpu_0 = OnCpu0::new();
    until("the probe is at work", || has_real_time_probe(measure.id()));
    let collector = Linux::new().online_affinity(measure.id() as i32).expect("it runs");
    assert_eq!(collector.to_string(), "0-2", "what collects is on other CPUs");
    let took = ended_by_sigint(measure);
    assert!(took < Duration::from_secs(120), "{took:?}");
}

/// Without a program that would have to be read.
fn has_real_time_probe(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_probe = |tid: &i32| read(format!("/proc/{pid}/task/{tid}/comm")).trim() == "asmp-probe";
    let kernel = Linux::new();
    tids.filter(is_probe).any(|tid| kernel.schedule(tid).is_ok_and(|now| now.is_real_time()))
}

fn starved() {
    let dir = fresh("starved");
    let measure = begun(&dir, "--kinds fifo --no-trace --samples 1000000");
    let spin = ["-c", "3", "chrt", "-f", "99", "sh", "-c", "while :; do :; done"];
    let hog = Process::start("taskset", &spin);
    let on_cpu_0 = OnCpu0::new();
    until("the hog is real-time", || policy(hog.id()).contains("priority: 99"));
    let took = ended_by_sigint(measure);
    drop(hog);
    drop(on_cpu_0);
    assert!(took < Duration::from_secs(120), "{took:?}");
    let partial = run_of(&dir, "idle-fifo")["partial"].to_string();
    assert!(partial.starts_with("\"interrupted"), "{partial}");
}

fn load_starts() {
    let dir = fresh("load-starts");
    let line = format!("measure latency --kinds normal --load mixed -q -o {dir}");
    let words: Vec<&str> = line.split_whitespace().collect();
    let measure = Process::start(&binary().display().to_string(), &words);
    until("the load starts", || stressors() > 0);
    ended_by_sigint(measure);
    assert_eq!(stressors(), 0, "the load has ended");
}

fn offline() {
    let dir = fresh("offline");
    let mut measure = begun(&dir, "--kinds fifo --samples 1000000");
    until_a_second_is_written(&dir, "idle-fifo");
    assert!(online(3, false), "CPU 3 goes offline");
    assert!(online(3, true), "CPU 3 comes back");
    assert_eq!(measure.0.wait().expect("it ends").code(), Some(54));
    let run = run_of(&dir, "idle-fifo");
    let partial = run["partial"].as_str().expect("partial");
    assert!(partial.contains("CPU 3") && partial.contains("offline"), "{partial}");
    assert!(run["samples"].as_u64() > Some(0), "{}", run["samples"]);
    asmp(&format!("measure report {dir}")).done().says("partial");
}

fn clock_step() {
    const HOUR_S: i64 = 3600;
    let dir = fresh("clock-step");
    let mut measure = begun(&dir, "--kinds normal --samples 1000 --period 5ms");
    until_a_second_is_written(&dir, "idle-normal");
    step_clock(HOUR_S);
    let ended = measure.0.wait().expect("it ends");
    step_clock(-HOUR_S);
    assert_eq!(ended.code(), Some(0));
    let run = run_of(&dir, "idle-normal");
    let worst_ns = run["worst"][0]["value_ns"].as_u64().expect("a worst sample");
    // Busy hosts stall for seconds, not for half an hour.
    let most_ns = HOUR_S as u64 / 2 * 1_000_000_000;
    assert!(worst_ns < most_ns, "{worst_ns} ns");
    assert!(run["duration_ns"].as_u64() < Some(most_ns), "{}", run["duration_ns"]);
}

/// Sets the clock on the wall so many seconds forward.
fn step_clock(seconds: i64) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now.tv_sec += seconds;
    // SAFETY: the kernel reads one timespec.
    let set = unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const now) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn killed_outright() {
    let dir = fresh("killed");
    let before = traces();
    let mut measure = spawn_measure(&dir);
    measure.0.kill().expect("kill -9");
    measure.0.wait().expect("it ends");
    asmp("status").code(7).says("killed before it could clean up");
    asmp("restore").done();
    assert_eq!(run_of(&dir, "cpu-partition-tick")["partial"], "killed, or still running");
    asmp(&format!("measure report {dir}")).done().says("partial");
    assert_eq!(traces(), before, "trace instances and timerlat's settings");
    // Its load was told by the kernel.
    until("the load has ended", || stressors() == 0);
    // Its files go with the next measurement.
    let left = || {
        let names = fs::read_dir("/tmp").expect("/tmp").flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".asmp-load-")).count()
    };
    assert_eq!(left(), 1);
    let dir = fresh("next");
    asmp(&format!("measure latency --kinds normal --samples 10 -o {dir} --quiet")).done();
    assert_eq!(left(), 0);
}

/// Trace instances of ours, and timerlat's settings for the whole machine where it exists.
pub fn traces() -> Vec<String> {
    let tracing = Path::new("/sys/kernel/tracing");
    let names = fs::read_dir(tracing.join("instances")).expect("instances").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut all: Vec<String> = names.filter(|name| name.starts_with("asmp")).collect();
    for file in ["options", "timerlat_period_us", "cpus"] {
        // In one read: `cpus` answers a buffer that it would fill with EINVAL.
        let mut text = [0; 4096];
        let read = fs::File::open(tracing.join("osnoise").join(file))
            .and_then(|mut file| file.read(&mut text));
        all.extend(read.map(|count| String::from_utf8_lossy(&text[..count]).into_owned()));
    }
    all
}

fn full_disk() {
    let mount = "/tmp/asmp-small";
    let _ = fs::create_dir(mount);
    for too in ["", "--samples-too"] {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none", mount]).status();
        assert!(mounted.expect("mount starts").success());
        let line = format!(
            "measure latency --kinds normal --source nanosleep --samples 3000000 {too} \
             --period 100us -o {mount}/run --quiet"
        );
        let filler = std::thread::spawn(move || fill(mount));
        let called = asmp(&line);
        filler.join().expect("the disk is full");
        let report = asmp(&format!("measure report {mount}/run"));
        let run = run_of(&format!("{mount}/run"), "idle-normal");
        let worst = run["worst"].as_array().expect("worst");
        let unmounted = Command::new("umount").arg(mount).status();
        called.code(54).says("partial").says("No space left");
        report.done().says("partial");
        let samples = run["samples"].as_u64();
        assert!(samples > Some(1000) && samples < Some(3_000_000), "{too}: {samples:?}");
        let is_kept = |one: &Value| one["index"].as_u64() < samples;
        assert!(worst.iter().all(is_kept), "{too}: {worst:?}");
        assert!(unmounted.expect("umount starts").success());
    }
}

/// Once the first seconds are written, leaves no byte of the file system.
fn fill(mount: &str) {
    // A buffer holds back 8 KiB of the one, 64 KiB of the other.
    let has = |name: &str, bytes: u64| {
        let path = Path::new(mount).join("run/idle-normal").join(name);
        fs::metadata(path).is_ok_and(|file| file.len() > bytes)
    };
    until("seconds are written", || has("hist.hlog", 24_000) || has("samples.bin", 120_000));
    let mut file = fs::File::create(format!("{mount}/other")).expect("a file");
    while file.write_all(&[7; 4096]).is_ok() {}
}

fn refusals() {
    let dir = fresh("refused");
    let refused = |line: &str, code: i32, word: &str| {
        asmp(&format!("measure {line} -o {dir}")).code(code).says(word);
        assert!(!Path::new(&dir).exists(), "{line}: nothing was made");
    };
    refused("latency --kinds partition --cpu 0", 38, "CPU 0");
    refused("latency --cpu 9", 20, "CPU 9");
    refused("latency --cpu 2-3", 2, "one CPU");
    refused("latency --kinds Q", 2, "fifo-irq");
    refused("latency --load heavy", 2, "mixed");
    refused("latency --kinds normal,fifo --period 1us", 2, "choose 10 us or more");
    refused("ab --knob tick --period 5us", 2, "choose 10 us or more");
    refused("latency --period 1fortnight", 2, "fortnight");
    refused("ab --knob magic", 2, "dl-server");
    refused("ab --knob tick,tick", 2, "tick is named twice");
    refused("latency --kinds normal,fifo,N", 2, "normal is named twice");
    refused("latency --load idle,IDL", 2, "idle is named twice");
    refused("latency --samples 10 --for 1min", 2, "--for");
    if LoadDir::of(Path::new("/tmp")).expect("/tmp").is_memory() {
        let line = "latency --kinds normal --load mixed --load-dir /tmp";
        refused(line, 2, "in memory: choose a directory on a disk");
    }
    let mut command = Command::new(binary());
    command
        .args(["measure", "latency", "--kinds", "N", "--load", "MIX", "-o", &dir])
        .env("PATH", "/nowhere");
    super::lab::called("measure without stress-ng", command.output().expect("asmp starts"))
        .code(51)
        .says("stress-ng");
    assert!(!Path::new(&dir).exists());
    let taken = "create a --cpus 3";
    asmp(taken).done();
    refused("latency --kinds partition-tick", 22, "CPU 3");
    refused("latency --kinds fifo", 22, "asmp destroy a");
}

fn ab() {
    let dir = fresh("ab");
    asmp(&format!(
        "measure ab --knob tick,dl_server --samples 200 --period 2ms --rounds 2 -o {dir} --quiet"
    ))
    .done()
    .says("tick: median")
    .says("dl-server: median")
    .says("2 rounds are too few to be sure of anything");
    let servers = |name: &str| {
        let run = run_of(&dir, name);
        let settings = run["settings"].as_array().expect("settings").clone();
        settings
            .iter()
            .filter_map(Value::as_str)
            .filter(|line| line.contains("fair_server"))
            .count()
    };
    assert_eq!((servers("dl-server-with-0"), servers("dl-server-without-0")), (1, 0));
    assert_eq!(run_of(&dir, "tick-without-1")["kind"], "partition-tick");
}
