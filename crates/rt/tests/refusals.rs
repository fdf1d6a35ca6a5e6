// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel refuses to a process without rights. Each case runs in a process of its own that
//! gives up its rights and limits first; root or not, the answers are the same.

use asmp_channel::{Mbuff, Pages};
use asmp_rt::thread::{RealTime, Refusal, Watch};
use std::process::Command;
use std::time::Duration;

const CASE: &str = "ASMP_RT_CASE";

/// Runs a test of this file alone in a child; its stdout.
fn child(test: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CASE, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// In the parent: the child's words. In the child: gives up its rights and says what `refused`
/// answers.
fn answer(
    test: &str,
    limits: &[(libc::__rlimit_resource_t, u64)],
    refused: impl FnOnce() -> String,
) -> Option<String> {
    if std::env::var(CASE).as_deref() != Ok(test) {
        let text = child(test);
        let skipped = text.lines().find(|line| line.contains("skipped: "));
        skipped.iter().for_each(|reason| eprintln!("{reason}"));
        return skipped.is_none().then_some(text);
    }
    for (resource, value) in limits {
        let limit = libc::rlimit { rlim_cur: *value, rlim_max: *value };
        // SAFETY: setrlimit reads one rlimit, which outlives the call.
        if unsafe { libc::setrlimit(*resource, &raw const limit) } != 0 {
            println!("skipped: no permission to raise a hard limit to {value}");
            return None;
        }
    }
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        const NOBODY: libc::uid_t = 65_534;
        // SAFETY: takes a number; glibc changes all threads.
        assert_eq!(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) }, 0);
    }
    println!("<{}>", refused());
    None
}

fn start(request: RealTime) -> String {
    match request.start("refused", |_| ()) {
        Ok(task) => format!("started: {:?}", task.join()),
        Err(refusal) => refusal.to_string(),
    }
}

const NO_PRIORITY: (libc::__rlimit_resource_t, u64) = (libc::RLIMIT_RTPRIO, 0);

#[test]
fn fifo_without_permission_names_the_limit_and_the_cure() {
    let test = "fifo_without_permission_names_the_limit_and_the_cure";
    let Some(text) = answer(test, &[NO_PRIORITY], || start(RealTime::fifo(80).unlocked())) else {
        return;
    };
    let wanted =
        "<no permission for fifo:80: RLIMIT_RTPRIO allows priorities up to 0 (hard limit 0)";
    assert!(text.contains(wanted) && text.contains("ulimit -r"), "{text}");
}

#[test]
fn a_priority_above_the_limit_is_refused_and_one_within_is_given() {
    let test = "a_priority_above_the_limit_is_refused_and_one_within_is_given";
    let refused = || {
        let (above, within) =
            (start(RealTime::rr(8).unlocked()), start(RealTime::rr(7).unlocked()));
        format!("{above}|{within}")
    };
    let Some(text) = answer(test, &[(libc::RLIMIT_RTPRIO, 7)], refused) else { return };
    assert!(
        text.contains("no permission for rr:8: RLIMIT_RTPRIO allows priorities up to 7"),
        "{text}"
    );
    assert!(text.contains("|started: Ok(())>"), "{text}");
}

#[test]
fn a_deadline_without_permission_says_that_the_limit_does_not_help() {
    let test = "a_deadline_without_permission_says_that_the_limit_does_not_help";
    let ms = Duration::from_millis;
    let refused = || start(RealTime::deadline(ms(1), ms(10), ms(10)).unlocked());
    let Some(text) = answer(test, &[NO_PRIORITY], refused) else { return };
    assert!(
        text.contains("no permission for deadline:1ms/10ms/10ms: it needs CAP_SYS_NICE"),
        "{text}"
    );
}

#[test]
fn memory_beyond_the_limit_is_refused_with_both_numbers_and_nothing_stays_locked() {
    let test = "memory_beyond_the_limit_is_refused_with_both_numbers_and_nothing_stays_locked";
    let refused = || {
        let text = start(RealTime::fifo(1));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let locked = status.lines().find(|line| line.starts_with("VmLck")).unwrap().to_owned();
        format!("{text}|{locked}")
    };
    let limits = [NO_PRIORITY, (libc::RLIMIT_MEMLOCK, 65_536)];
    let Some(text) = answer(test, &limits, refused) else { return };
    let needs =
        text.split("<locking all memory needs ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(needs.unwrap().parse::<u64>().unwrap() > 65_536, "{text}");
    assert!(text.contains("RLIMIT_MEMLOCK allows 65536 (hard limit 65536)"), "{text}");
    assert!(text.contains("VmLck:\t       0 kB"), "{text}");
}

#[test]
fn a_policy_refused_after_memory_was_locked_unlocks_it() {
    let test = "a_policy_refused_after_memory_was_locked_unlocks_it";
    if std::env::var(CASE).as_deref() != Ok(test) {
        let text = child(test);
        text.lines()
            .filter(|line| line.contains("skipped: "))
            .for_each(|reason| eprintln!("{reason}"));
        return;
    }
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        println!("skipped: with one CPU a deadline thread may be confined to it");
        return;
    }
    // The kernel refuses a deadline thread that may not run on every CPU: the last step, also for
    // root.
    let ms = Duration::from_millis;
    let refusal =
        RealTime::deadline(ms(1), ms(10), ms(10)).cpu(0).start("refused", |_| ()).unwrap_err();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains("VmLck:\t       0 kB"), "{status}");
    match refusal {
        Refusal::DeadlineNotPermitted { .. } => {
            assert!(refusal.to_string().contains("(requested: CPU 0 only)"))
        }
        Refusal::MemoryLimit { .. } | Refusal::MemoryLock(_) => println!("skipped: {refusal}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_thread_that_wishes_nothing_else_has_all_memory_locked_and_its_heap_there() {
    let test = "a_thread_that_wishes_nothing_else_has_all_memory_locked_and_its_heap_there";
    if std::env::var(CASE).as_deref() != Ok(test) {
        let text = child(test);
        text.lines()
            .filter(|line| line.contains("skipped: "))
            .for_each(|reason| eprintln!("{reason}"));
        return;
    }
    let task = RealTime::fifo(1).heap(8 << 20).start("locked", |_| {
        Watch::enter().leave();
        let watch = Watch::enter();
        let block = std::hint::black_box(vec![1u8; 4 << 20]);
        let seen = watch.leave();
        drop(block);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        (seen, kilobytes("VmLck:"), kilobytes("VmRSS:"))
    });
    match task {
        Ok(task) => {
            let (seen, locked, resident) = task.join().unwrap();
            assert_eq!(seen.minor_faults, 0, "{seen}");
            assert!(locked > 8 << 10 && locked * 10 > resident * 9, "{locked} of {resident} kB");
        }
        Err(refusal @ (Refusal::MemoryLimit { .. } | Refusal::NoPermission { .. })) => {
            println!("skipped: {refusal}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_partition_that_nobody_made_is_refused_with_the_cure() {
    let text = start(RealTime::fifo(1).partition("no-such-partition"));
    assert!(text.starts_with("no partition no-such-partition: "), "{text}");
    assert!(text.contains("asmp create no-such-partition"), "{text}");
}

#[test]
fn a_cpu_that_no_machine_has_is_refused() {
    let text = start(RealTime::fifo(1).cpu(60_000));
    assert!(text.starts_with("CPU 60000 does not exist: this machine has "), "{text}");
}

fn alloc(dir: &tempfile::TempDir, bytes: u64) -> String {
    match Mbuff::alloc(dir.path(), "a", bytes, Pages::Normal) {
        Ok(_) => "allocated".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The kernel ends a process that goes beyond this limit (SIGXFSZ); a library must not.
#[test]
fn shared_memory_beyond_the_limit_of_files_is_refused_and_the_process_lives() {
    let test = "shared_memory_beyond_the_limit_of_files_is_refused_and_the_process_lives";
    let refused = || {
        let dir = tempfile::tempdir().unwrap();
        format!("{}|{}", alloc(&dir, 100_000), alloc(&dir, 1000))
    };
    let Some(text) = answer(test, &[(libc::RLIMIT_FSIZE, 8192)], refused) else { return };
    let wanted = "<cannot allocate 100000 bytes of shared memory: RLIMIT_FSIZE is 8192 bytes: \
                  raise it (ulimit -f)|allocated>";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn shared_memory_beyond_the_limit_of_locked_memory_is_refused_with_the_limit() {
    let test = "shared_memory_beyond_the_limit_of_locked_memory_is_refused_with_the_limit";
    let refused = || {
        let dir = tempfile::tempdir().unwrap();
        // SAFETY: takes a number; memory that comes from now on is locked.
        assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
        alloc(&dir, 64 << 20)
    };
    let Some(text) = answer(test, &[(libc::RLIMIT_MEMLOCK, 4 << 20)], refused) else { return };
    let wanted = "<cannot allocate 67108864 bytes of shared memory: RLIMIT_MEMLOCK is 4194304 \
                  bytes: raise it (ulimit -l)>";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_process_without_descriptors_says_so_and_takes_no_name_from_others() {
    let test = "a_process_without_descriptors_says_so_and_takes_no_name_from_others";
    let refused = || {
        let dir = tempfile::tempdir().unwrap();
        let _there = Mbuff::alloc(dir.path(), "a", 100, Pages::Normal).unwrap();
        let mut answers = Vec::new();
        for descriptors in (3..64).rev() {
            let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: 64 };
            // SAFETY: setrlimit reads one rlimit, which outlives the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
            answers.push(match Mbuff::attach(dir.path(), "a") {
                Ok(_) => "attached".to_owned(),
                Err(error) => error.to_string().rsplit(": ").next().unwrap().to_owned(),
            });
        }
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        Mbuff::attach(dir.path(), "a").unwrap();
        answers.dedup();
        answers.join("|")
    };
    let Some(text) = answer(test, &[(libc::RLIMIT_NOFILE, 64)], refused) else { return };
    assert!(text.contains("<attached|Too many open files (os error 24)>"), "{text}");
}
