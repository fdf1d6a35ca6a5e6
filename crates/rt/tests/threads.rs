// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time threads on this machine. What needs a permission that this process lacks prints
//! `skipped` and its reason.

use asmp_rt::thread::{RealTime, Refusal, Schedule, Watch};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// What a test needs to go on, or the reason why this machine cannot run it.
fn started<T>(result: Result<T, Refusal>) -> Option<T> {
    match result {
        Ok(started) => Some(started),
        Err(
            refusal @ (Refusal::NoPermission { .. }
            | Refusal::DeadlineNotPermitted { .. }
            | Refusal::MemoryLimit { .. }),
        ) => {
            eprintln!("skipped: {refusal}");
            None
        }
        Err(refusal) => panic!("{refusal}"),
    }
}

/// For tests that are not about the policy: without permission for it they run at the ordinary one.
fn any() -> RealTime {
    match RealTime::fifo(1).unlocked().start("probe", |_| ()) {
        Ok(task) => {
            task.join().unwrap();
            RealTime::fifo(1).unlocked()
        }
        Err(refusal) => {
            eprintln!("note: at the ordinary policy: {refusal}");
            RealTime::without_policy().unlocked()
        }
    }
}

#[test]
fn a_thread_has_the_policy_the_cpu_and_the_name_it_asked_for() {
    let (tell, told) = mpsc::channel();
    let work = move |_: &asmp_rt::thread::Me| {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        tell.send((asmp_host::sched::get(0).unwrap(), status)).unwrap();
        7
    };
    let Some(task) = started(RealTime::fifo(3).cpu(0).unlocked().start("axis", work)) else {
        return;
    };
    let (policy, status) = told.recv().unwrap();
    assert_eq!(policy, Schedule::Fifo { priority: 3 });
    assert!(
        status.contains("Cpus_allowed_list:\t0\n") && status.starts_with("Name:\taxis\n"),
        "{status}"
    );
    assert_eq!(task.join().unwrap(), 7);
}

#[test]
fn the_stack_of_a_started_thread_faults_no_page() {
    #[inline(never)]
    fn deep(level: u32) -> u64 {
        let frame = std::hint::black_box([u64::from(level); 500]);
        if level == 0 { frame[7] } else { frame[3] + deep(level - 1) }
    }
    let work = |_: &asmp_rt::thread::Me| {
        // The code of both calls is there before the watch begins.
        deep(1);
        Watch::enter().leave();
        let watch = Watch::enter();
        deep(80);
        watch.leave()
    };
    let task = any().stack(1 << 20).start("deep", work).unwrap();
    let seen = task.join().unwrap();
    assert_eq!(seen.minor_faults, 0, "{seen}");
}

#[test]
fn a_suspended_thread_gets_no_release_until_it_is_woken() {
    let (tell, told) = mpsc::channel();
    let work = move |me: &asmp_rt::thread::Me| {
        let mut releases = me.releases(MS, Duration::ZERO).unwrap();
        let mut last = None;
        while let Some(tick) = releases.wait() {
            let skipped =
                last.map(|last: u64| (tick.scheduled_ns - last) / 1_000_000 - 1 - tick.overruns);
            last = Some(tick.scheduled_ns);
            tell.send(skipped).unwrap();
        }
        "deleted"
    };
    let task = any().start("axis", work).unwrap();
    told.recv().unwrap();
    // Where others want the CPU it may hear of its suspension only when that is over: then once
    // more.
    let end = Instant::now() + Duration::from_secs(180);
    loop {
        task.suspend();
        told.try_iter().for_each(drop);
        std::thread::sleep(40 * MS);
        // The release that was under way, and one whose state was read before.
        let late = told.try_iter().count();
        assert!(late <= 2, "{late} releases of a suspended thread");
        task.wakeup();
        let skipped = told.recv().unwrap().unwrap();
        // Of 40; one is dropped in any case, and a slow machine may miss a few more.
        if skipped > 10 {
            break;
        }
        assert!(
            Instant::now() < end,
            "{skipped}: releases of the suspension are neither given late nor counted as overruns"
        );
    }
    assert_eq!(task.delete().unwrap(), "deleted");
}

#[test]
fn a_period_changed_from_outside_takes_hold_at_the_next_release() {
    let (tell, told) = mpsc::channel();
    let work = move |me: &asmp_rt::thread::Me| {
        let mut releases = me.releases(MS, Duration::ZERO).unwrap();
        while let Some(tick) = releases.wait() {
            let _ = tell.send((tick.scheduled_ns, releases.period_ns()));
        }
    };
    let task = any().start("axis", work).unwrap();
    told.recv().unwrap();
    assert!(task.set_period(Duration::ZERO).is_err());
    task.set_period(3 * MS).unwrap();
    let changed =
        std::iter::repeat_with(|| told.recv().unwrap()).find(|(_, period)| *period == 3_000_000);
    let (first, _) = changed.unwrap();
    let (second, _) = told.recv().unwrap();
    assert_eq!((second - first) % 3_000_000, 0);
    task.delete().unwrap();
}

#[test]
fn a_suspended_thread_can_be_deleted() {
    let work = |me: &asmp_rt::thread::Me| {
        let mut releases = me.releases(MS, Duration::ZERO).unwrap();
        while releases.wait().is_some() {}
        me.is_deleted()
    };
    let task = any().start("axis", work).unwrap();
    task.suspend();
    assert!(task.delete().unwrap());
}

#[test]
fn a_panic_in_a_real_time_thread_reaches_the_one_who_joins_it() {
    let work = |_: &asmp_rt::thread::Me| panic!("the drive is gone");
    let task = any().start("axis", work).unwrap();
    let panic = task.join().unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the drive is gone"));
}

#[cfg(debug_assertions)]
#[test]
fn sections_that_sleep_are_tallied_and_the_waits_between_them_are_not() {
    let run = |sleeps: bool| {
        let (tell, told) = mpsc::channel();
        let work = move |me: &asmp_rt::thread::Me| {
            let mut releases = me.releases(MS, Duration::ZERO).unwrap();
            for _ in 0..10 {
                releases.wait();
                if sleeps {
                    std::thread::sleep(MS);
                }
            }
            drop(releases);
            tell.send(()).unwrap();
            while !me.is_deleted() {
                std::thread::sleep(MS);
            }
        };
        let task = any().start("axis", work).unwrap();
        told.recv().unwrap();
        let tally = task.tally();
        task.delete().unwrap();
        tally
    };
    let (bad, good) = (run(true), run(false));
    assert_eq!((bad.sections, bad.unclean, bad.first_unclean), (10, 10, Some(1)));
    assert!(bad.seen.voluntary_switches >= 10);
    assert!(bad.warning("axis").unwrap().contains("in 10 of 10 sections"));
    assert_eq!(
        (good.sections, good.seen.voluntary_switches),
        (10, 0),
        "a wait is no blocking call"
    );
}

#[test]
fn the_kernel_refuses_deadlines_beyond_its_limit_and_the_refusal_has_the_numbers() {
    let mut running = Vec::new();
    let refusal = loop {
        let (stop, stopped) = mpsc::channel::<()>();
        let heavy = RealTime::deadline(Duration::from_micros(960), MS, MS).unlocked();
        let wait_for_the_end = move |_: &asmp_rt::thread::Me| assert!(stopped.recv().is_err());
        match heavy.start("heavy", wait_for_the_end) {
            Ok(task) => running.push((task, stop)),
            Err(refusal) => break refusal,
        }
        assert!(running.len() <= 4096, "no kernel gives away more time than it has");
    };
    running.into_iter().for_each(|(task, stop)| {
        drop(stop);
        task.join().unwrap();
    });
    let text = refusal.to_string();
    if !matches!(refusal, Refusal::NotAdmitted { .. }) {
        started::<()>(Err(refusal));
        return;
    }
    assert!(text.contains("needs 96.00 % (960000 of 1000000 ns) of a CPU"), "{text}");
    let runtime_us = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").unwrap();
    assert!(text.contains(&format!("({}000 of ", runtime_us.trim())), "{text}");
}
