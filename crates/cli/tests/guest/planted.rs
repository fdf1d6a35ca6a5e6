// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disturbances that we plant: `measure` names each, with how often it came, in the worst samples.
//!
//! They are far longer than what an emulator loses by itself, and come and go: what is always
//! there makes no turn longer than the others.

use super::guests::{Boot, On};
use super::lab::{Process, Test, asmp, policy, read, stay_on, test, until};
use super::measure::{fresh, run_of};
use super::others::sh;
use super::spaces::no_timerlat;
use asmp_host::clock::thread_id;
use asmp_host::{CpuSet, Kernel, Linux, Schedule};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Error, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let planted = |what: &str, run: fn()| {
        let name = format!("planted: nine of the ten worst samples name {what}");
        test(&name, run).on(On::OnePerSeries).booted(&[Boot::Bare]).nightly()
    };
    vec![
        section("nanosleep"),
        section("timerlat").on(On::Rt).lacks(no_timerlat),
        planted("page faults of such a section", page_faults),
        planted("a storm of IPIs", ipis),
        planted("a storm of timers", timers),
        // With PREEMPT_RT they are left to threads, which a real-time task goes before.
        planted("a flood of softirqs", softirqs).on(On::NotRt),
        planted("a machine that stands still, as for an SMI", stops),
    ]
}

/// For so long a storm lasts.
const STORM_MS: u64 = 600;
/// And so long the CPU is left alone.
const CALM_MS: u64 = 600;

/// Runs `asmp measure LINE` while `storm` disturbs its run again and again: from the beginning of
/// the run on, as a partition is made on a quiet CPU.
fn during(storm: impl Fn() + Sync, line: &str, dir: &str, name: &str) -> Value {
    let ends = AtomicBool::new(false);
    let begun = Path::new(dir).join(name).join("run.json");
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                if begun.exists() {
                    storm();
                }
                thread::sleep(Duration::from_millis(CALM_MS));
            }
        });
        let called = asmp(&format!("measure {line} -o {dir} --quiet"));
        ends.store(true, Relaxed);
        called.done();
    });
    run_of(dir, name)
}

/// Nine of the ten worst of a run have a cause of which this holds. A host with other work stops
/// the emulator for longer than what is planted, and then the worst are the emulator's: so there
/// are three runs at most.
#[track_caller]
fn named(measured: impl Fn() -> Value, holds: impl Fn(&str) -> bool) -> Value {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let run = measured();
        let worst = run["worst"].as_array().expect("worst").iter().take(10);
        let worst: Vec<_> = worst
            .map(|one| (one["value_ns"].as_u64(), one["cause"].as_str().unwrap_or_default()))
            .collect();
        let named = worst.iter().filter(|(_, cause)| holds(cause)).count();
        println!("  {named} of {}, e.g. {:?}", worst.len(), worst.first());
        if named >= 9 && worst.len() == 10 {
            return run;
        }
        seen.push(format!("{worst:?}"));
    }
    panic!("{}", seen.join("\n"));
}

/// Does the cause say that this came, and this often?
fn came(cause: &str, what: &str, least: u32) -> bool {
    let took = cause.split(';').next().unwrap_or_default();
    let times = took.split(", ").find_map(|part| part.strip_suffix(" times")?.parse().ok());
    cause.starts_with(what) && times.is_some_and(|times: u32| times >= least)
}

fn section(source: &'static str) -> Test {
    let name = "planted: nine of the ten worst samples name a section of SCHED_FIFO 99";
    test(&format!("{name}, by {source}"), move || {
        // 150 ms of every 450 ms.
        let script = "import time\nwhile True:\n e=time.monotonic()+0.15\n while \
                      time.monotonic()<e: pass\n time.sleep(0.3)";
        let words = ["-c", "3", "chrt", "-f", "99", "python3", "-c", script];
        let hog = Process::start("taskset", &words);
        until("the hog is real-time", || policy(hog.id()).contains("priority: 99"));
        let measured = || {
            let dir = fresh("planted-section");
            let line = "measure latency --kinds fifo --cpus 3 --samples 1200 --period 5ms --quiet";
            asmp(&format!("{line} --source {source} -o {dir}")).done();
            run_of(&dir, "idle-fifo")
        };
        let hog = format!("python3/{} took ", hog.id());
        named(measured, |cause| cause.starts_with(&hog));
    })
}

fn page_faults() {
    let faults = || {
        stay_on(&CpuSet::from_iter([3]));
        go_before_all();
        // A record tells a priority only as a task comes or goes.
        thread::sleep(Duration::from_millis(1));
        touch_pages(Duration::from_millis(150));
    };
    let line = "latency --kinds fifo --source nanosleep --cpus 3 --samples 2400 --period 5ms";
    let measured = || during(faults, line, &fresh("planted-faults"), "idle-fifo");
    named(measured, |cause| {
        let count = cause.rsplit(", page faults: ").next().and_then(|count| count.parse().ok());
        count.is_some_and(|count: u32| count >= 20)
    });
}

/// The calling thread goes before every probe.
fn go_before_all() {
    let first = Schedule::Fifo { priority: 99 };
    Linux::new().set_schedule(thread_id(), &first).expect("SCHED_FIFO");
}

/// For so long, touches small pages that it does not have yet, some ten in a millisecond.
fn touch_pages(time: Duration) {
    const PAGE: usize = 4096;
    const BYTES: usize = 4096 * PAGE;
    let (access, how) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let pages = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, how, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED, "{}", Error::last_os_error());
    // SAFETY: the mapping is ours, and this long.
    unsafe { libc::madvise(pages, BYTES, libc::MADV_NOHUGEPAGE) };
    let end = Instant::now() + time;
    for at in (0..BYTES).step_by(PAGE) {
        // SAFETY: inside the mapping, which is ours to write.
        unsafe { pages.cast::<u8>().wrapping_add(at).write_volatile(1) };
        let next = Instant::now() + Duration::from_micros(100);
        while Instant::now() < next {}
        if next > end {
            break;
        }
    }
    // SAFETY: the mapping is ours; nothing refers to it any more.
    unsafe { libc::munmap(pages, BYTES) };
}

/// Each read of counters that count on CPU 3 asks that CPU, by an IPI, for all of a group: so the
/// time goes to the handler, and not to the emulator that delivers it.
fn ipis() {
    let leader = clock_of_cpu_3(0, None);
    let others: Vec<File> = (0..300).map(|_| clock_of_cpu_3(0, Some(&leader))).collect();
    let reads = || {
        stay_on(&CpuSet::from_iter([1]));
        let end = Instant::now() + Duration::from_millis(STORM_MS);
        while Instant::now() < end {
            let _ = (&leader).read(&mut [0; 4096]).expect("counters");
        }
    };
    let line = "overhead --kinds partition --cpus 3 --iterations 80 --work 100ms";
    let measured = || during(reads, line, &fresh("planted-ipis"), "idle-partition");
    named(measured, |cause| came(cause, "IPI ", 5));
    drop(others);
}

/// The kernel's clock event is a timer of the CPU that it counts.
fn timers() {
    let expire = || {
        let counter = clock_of_cpu_3(100_000, None);
        thread::sleep(Duration::from_millis(STORM_MS));
        drop(counter);
    };
    let line = "overhead --kinds partition --cpus 3 --iterations 80 --work 100ms";
    let measured = || during(expire, line, &fresh("planted-timers"), "idle-partition");
    named(measured, |cause| came(cause, "the local timer took ", 5));
}

/// A counter of the kernel's clock for all tasks on CPU 3, in the group of `leader` if any.
/// With a period it takes a sample each time, which nothing reads; of 0, none.
pub fn clock_of_cpu_3(period_ns: u64, leader: Option<&File>) -> File {
    const SOFTWARE: u32 = 1;
    const CPU_CLOCK: u64 = 0;
    /// PERF_FORMAT_GROUP: a read tells all counters of the group.
    const GROUP: u64 = 1 << 3;
    /// The length of perf_event_attr in its first version, which every kernel takes.
    const BYTES: u32 = 64;
    let mut attributes = [0u64; BYTES as usize / 8];
    attributes[0] = u64::from(SOFTWARE) | u64::from(BYTES) << 32;
    attributes[1] = CPU_CLOCK;
    attributes[2] = period_ns;
    attributes[4] = GROUP;
    let leader = leader.map_or(-1, AsRawFd::as_raw_fd);
    let (number, structure) = (libc::SYS_perf_event_open, attributes.as_ptr());
    // SAFETY: the structure is as long as it says; the other arguments are numbers.
    let fd = unsafe { libc::syscall(number, structure, -1, 3, leader, 0) };
    assert!(fd >= 0, "perf_event_open: {}", Error::last_os_error());
    // SAFETY: a new descriptor, which nothing else owns.
    unsafe { File::from_raw_fd(fd as i32) }
}

/// CPU 0 receives the packets of the loopback device: the kernel lets no `nohz_full` CPU do that
/// for others.
fn softirqs() {
    const STEERING: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";
    let before = read(STEERING);
    sh("ip link set lo up").done();
    fs::write(STEERING, "1").expect("receive packet steering");
    let sends = || {
        stay_on(&CpuSet::from_iter([1]));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("an address");
        let end = Instant::now() + Duration::from_millis(STORM_MS);
        while Instant::now() < end {
            let _ = socket.send_to(&[0; 64], to);
        }
    };
    let line = "overhead --kinds fifo --cpus 0 --iterations 80 --work 100ms";
    let measured = || during(sends, line, &fresh("planted-softirqs"), "idle-fifo");
    named(measured, |cause| came(cause, "softirq NET_RX took ", 5));
    fs::write(STEERING, before).expect("receive packet steering");
}

/// The lab stops the emulator, whose clock goes on.
fn stops() {
    let ask = || {
        let port = fs::read_dir("/dev").expect("/dev").flatten().find(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("vport") && name.ends_with("p5")
        });
        let mut port = File::options().write(true).open(port.expect("port 5").path());
        port.as_mut().expect("port 5").write_all(b".").expect("the lab listens");
    };
    let line = "overhead --kinds partition --cpus 3 --iterations 500 --work 20ms";
    let measured = || during(ask, line, &fresh("planted-stops"), "idle-partition");
    let said = "nothing the kernel recorded: hypervisor, SMI or hardware";
    named(measured, |cause| cause == said);
    let line = "latency --kinds partition --source nanosleep --cpus 3 --samples 1200 --period 5ms";
    let measured = || during(ask, line, &fresh("planted-stops-of-sleep"), "idle-partition");
    let run = named(measured, |cause| cause.contains("SMI") && !cause.contains(" took "));
    let least = run["worst"][8]["value_ns"].as_u64();
    assert!(least > Some(200_000_000), "it was not stopped ten times: {least:?}");
}
