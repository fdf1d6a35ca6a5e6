// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reflective scheduler on virtual time and, for what needs two threads, on the machine.

use asmp_rt::executive::{
    Action, Activity, Agenda, Clock, Flags, Moment, Monotonic, Reflective, TableError, Tuning,
};
use asmp_rt::virtual_cpu::{Caller, Costs, Latency, Policy, Step, Then, VirtualCpu};
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

const MS: u64 = 1_000_000;
const GO_ON: ControlFlow<()> = ControlFlow::Continue(());
const EXACT: Latency = Latency { min_ns: 0, max_ns: 0 };

fn cpu() -> RefCell<VirtualCpu> {
    RefCell::new(VirtualCpu::new(Policy::REAL_TIME, Costs::default()))
}

#[test]
fn threads_run_in_the_windows_that_the_table_gives_them() {
    let cpu = cpu();
    let clock = Caller::new(&cpu, 200, EXACT);
    let threads = {
        let mut cpu = cpu.borrow_mut();
        [10, 20].map(|priority| {
            let thread = cpu.thread(priority, None);
            cpu.script(thread, &[Step::Compute(MS)], Then::Repeat(0)).unwrap();
            cpu.stop(thread);
            thread
        })
    };
    let agenda = Agenda::new(8).unwrap();
    agenda.change(|table| {
        // The low one 2..5 ms of each 10 ms, the high one 5..6 ms.
        for (which, start, stop) in [(0, 2, 5), (1, 5, 6)] {
            table.insert(start * MS, Action::Start(Activity(which)), Some(10 * MS)).unwrap();
            table.insert(stop * MS, Action::Stop(Activity(which)), Some(10 * MS)).unwrap();
        }
    });
    let mut scheduler = Reflective::new(&clock, &agenda, Tuning::RAW);
    scheduler.run(100 * MS, |moment| {
        match moment.action {
            Action::Start(Activity(which)) => cpu.borrow_mut().start(threads[which as usize]),
            Action::Stop(Activity(which)) => cpu.borrow_mut().stop(threads[which as usize]),
            Action::Call(_) => {}
        }
        GO_ON
    });
    let cpu = cpu.borrow();
    assert_eq!(threads.map(|thread| cpu.ran_ns(thread)), [30 * MS, 10 * MS]);
    assert_eq!(cpu.counts().idle_ns, 60 * MS);
    assert_eq!(scheduler.exactness().unwrap().mean_absolute_ns, 0.0);
}

/// 2000 actions 1 ms apart on a CPU that wakes up late.
fn exactness(tuning: Tuning, latency: Latency) -> Vec<i64> {
    let cpu = cpu();
    let clock = Caller::new(&cpu, 200, latency);
    let agenda = Agenda::new(1).unwrap();
    agenda.change(|table| table.insert(MS, Action::Call(0), Some(MS))).unwrap();
    let mut errors_ns = Vec::new();
    Reflective::new(&clock, &agenda, tuning).run(2000 * MS, |moment| {
        errors_ns.push(moment.now_ns as i64 - moment.instant_ns as i64);
        GO_ON
    });
    assert_eq!(errors_ns.len(), 1999);
    // The loop has settled.
    errors_ns.split_off(100)
}

#[test]
fn the_papers_52_to_57_us_become_less_than_4_early_and_3_late() {
    let paper = Latency { min_ns: 52_000, max_ns: 57_000 };
    let within = |errors: &[i64], range: std::ops::RangeInclusive<i64>| {
        errors.iter().all(|error| range.contains(error))
    };
    assert!(within(&exactness(Tuning::RAW, paper), 52_000..=57_000));
    assert!(within(&exactness(Tuning::CALIBRATED, paper), -4000..=3000));
    assert!(within(&exactness(Tuning::SPINNING, paper), 0..=0));
}

#[test]
fn the_program_reads_and_changes_its_table_while_it_runs() {
    let cpu = cpu();
    let clock = Caller::new(&cpu, 200, EXACT);
    let agenda = Agenda::new(3).unwrap();
    let first =
        agenda.change(|table| table.insert(10 * MS, Action::Call(0), Some(10 * MS))).unwrap();
    let victim = agenda.change(|table| table.insert(35 * MS, Action::Call(9), None)).unwrap();
    let mut log = Vec::new();
    Reflective::new(&clock, &agenda, Tuning::RAW).run(100 * MS, |moment| {
        log.push((moment.now_ns / MS, moment.action));
        match log.len() {
            // It sees what comes, adds something sooner, and takes something out.
            1 => {
                let planned: Vec<_> =
                    agenda.read().entries().iter().map(|entry| entry.instant_ns / MS).collect();
                assert_eq!(planned, [20, 35]);
                agenda.change(|table| table.insert(13 * MS, Action::Call(1), None)).unwrap();
                agenda.change(|table| table.remove(victim)).unwrap();
            }
            // It moves its own next instant.
            3 => agenda.change(|table| table.shift(first, 77 * MS)).unwrap(),
            4 => return ControlFlow::Break(()),
            _ => {}
        }
        GO_ON
    });
    let calls = [(10, 0), (13, 1), (20, 0), (77, 0)].map(|(at, number)| (at, Action::Call(number)));
    assert_eq!(log, calls);
    assert_eq!(agenda.change(|table| table.remove(victim)), Err(TableError::Gone));
}

/// A clock on which another thread puts an entry into the table while the scheduler spins or wakes
/// up, once.
struct Meddled<'a> {
    caller: &'a Caller<'a>,
    agenda: &'a Agenda,
    /// When, and for which instant.
    entry_ns: Cell<Option<(u64, u64)>>,
}

impl Meddled<'_> {
    fn meddle(&self, until_ns: u64) {
        if let Some((at_ns, instant_ns)) =
            self.entry_ns.get().filter(|(at_ns, _)| *at_ns < until_ns)
        {
            self.entry_ns.set(None);
            self.caller.spin_until(at_ns);
            self.agenda.change(|table| table.insert(instant_ns, Action::Call(1), None)).unwrap();
        }
    }
}

impl Clock for &Meddled<'_> {
    fn now_ns(&self) -> u64 {
        self.caller.now_ns()
    }

    /// Woken by its timer, 2 us late; the change comes on the way.
    fn wait(&self, until_ns: u64, flags: &Flags) {
        self.caller.wait(until_ns, flags);
        self.meddle(until_ns + 2000);
        self.caller.spin_until(until_ns + 2000);
    }

    fn spin_until(&self, until_ns: u64) {
        self.meddle(until_ns);
        self.caller.spin_until(until_ns);
    }
}

#[test]
fn an_entry_put_before_the_one_that_is_being_awaited_happens_before_it() {
    // The 10th action is due at 10 ms; the margin that is left to spin is above 6 us by then.
    for (tuning, at_ns, happens_ns) in
        [(Tuning::RAW, 10 * MS + 1000, 10 * MS + 2000), (Tuning::SPINNING, 10 * MS - 1000, 10 * MS)]
    {
        let (cpu, agenda) = (cpu(), Agenda::new(2).unwrap());
        let caller = Caller::new(&cpu, 200, EXACT);
        let clock = Meddled {
            caller: &caller,
            agenda: &agenda,
            entry_ns: Cell::new(Some((at_ns, 9 * MS + 500))),
        };
        agenda.change(|table| table.insert(MS, Action::Call(0), Some(MS))).unwrap();
        let mut log = Vec::new();
        Reflective::new(&clock, &agenda, tuning).run(11 * MS, |moment| {
            log.push((moment.action, moment.now_ns));
            GO_ON
        });
        assert_eq!(
            log[9..],
            [(Action::Call(1), happens_ns), (Action::Call(0), happens_ns)],
            "{tuning:?}"
        );
    }
}

#[test]
fn what_was_due_before_happens_at_once_and_is_counted() {
    let cpu = cpu();
    let clock = Caller::new(&cpu, 200, EXACT);
    clock.compute(50 * MS);
    let agenda = Agenda::new(2).unwrap();
    agenda.change(|table| table.insert(20 * MS, Action::Call(0), None)).unwrap();
    agenda.change(|table| table.insert(60 * MS, Action::Call(1), None)).unwrap();
    let mut scheduler = Reflective::new(&clock, &agenda, Tuning::CALIBRATED);
    let mut log: Vec<Moment> = Vec::new();
    scheduler.run(100 * MS, |moment| {
        log.push(*moment);
        GO_ON
    });
    assert_eq!(log.iter().map(|moment| moment.now_ns / MS).collect::<Vec<_>>(), [50, 60]);
    assert_eq!(scheduler.overdue(), 1);
    assert_eq!(scheduler.exactness().unwrap().max_ns, 30 * MS as i64);
    assert_eq!(scheduler.calibration().estimate_ns(), 0.0, "the loop does not learn from it");
}

#[test]
fn an_action_nearer_than_the_latency_is_not_early() {
    let cpu = cpu();
    let clock = Caller::new(&cpu, 200, Latency { min_ns: 50_000, max_ns: 50_000 });
    let agenda = Agenda::new(2).unwrap();
    agenda.change(|table| table.insert(MS, Action::Call(0), Some(MS))).unwrap();
    let mut errors = Vec::new();
    Reflective::new(&clock, &agenda, Tuning::CALIBRATED).run(50 * MS, |moment| {
        if moment.action == Action::Call(1) {
            errors.push(moment.now_ns - moment.instant_ns);
        } else if moment.instant_ns > 40 * MS {
            agenda
                .change(|table| table.insert(moment.now_ns + 20_000, Action::Call(1), None))
                .unwrap();
        }
        GO_ON
    });
    assert_eq!(errors, [0; 9]);
}

#[test]
fn the_same_input_gives_the_same_trace() {
    let run = || {
        let errors = exactness(Tuning::CALIBRATED, Latency { min_ns: 1000, max_ns: 30_000 });
        (errors.iter().copied().min(), errors)
    };
    assert_eq!(run(), run());
}

#[test]
fn another_thread_changes_the_table_of_a_scheduler_that_sleeps() {
    let agenda = &Agenda::new(4).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    agenda.change(|table| {
        table.insert(Monotonic.now_ns() + 3_600_000 * MS, Action::Call(0), None).unwrap();
        table.insert(Monotonic.now_ns(), Action::Call(1), None).unwrap();
    });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            told.recv().unwrap();
            // By now the scheduler sleeps towards the entry in an hour, or is about to.
            std::thread::sleep(std::time::Duration::from_millis(5));
            agenda
                .change(|table| table.insert(Monotonic.now_ns() + MS, Action::Call(7), None))
                .unwrap();
        });
        let mut seen = Vec::new();
        Reflective::new(Monotonic, agenda, Tuning::CALIBRATED).run(u64::MAX, |moment| {
            seen.push(moment.action);
            // The other end is gone after the first.
            let _ = tell.send(());
            if seen.len() == 2 { ControlFlow::Break(()) } else { GO_ON }
        });
        assert_eq!(seen, [Action::Call(1), Action::Call(7)]);
    });
}
