// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Causes: what is one, and what is none.

use super::words::COLUMNS;
use super::*;

const PROBE: i32 = 7;
/// SCHED_FIFO 99.
const HOG: i32 = 99;
/// SCHED_OTHER, as the kworker is.
const VICTIM: i32 = 279;

fn at(us: u64, kind: EventKind) -> Event {
    Event { at_ns: us * 1000, cpu: 3, kind }
}

/// The kernel's priority of each task here; the probe has SCHED_FIFO 80.
fn prio(tid: i32) -> i32 {
    match tid {
        PROBE => 19,
        HOG => 0,
        _ => 120,
    }
}

fn switch(from_tid: i32, to_tid: i32, name: &str) -> EventKind {
    let (from_prio, to_prio) = (prio(from_tid), prio(to_tid));
    let (from, to) = ("victim".into(), name.into());
    EventKind::Switch { from_tid, from, from_prio, to_tid, to, to_prio }
}

fn waking(tid: i32) -> EventKind {
    EventKind::Waking { tid, command: "asmp-probe".into(), prio: prio(tid) }
}

fn reschedule() -> EventKind {
    EventKind::Ipi("reschedule".into())
}

fn worst(records: Vec<Event>, window: Window, due_us: u64, end_us: u64) -> (Sample, String) {
    let mut correlator = Correlator::new(PROBE, window, true);
    correlator.records(records);
    let sample = correlator.sample(Raw { due_ns: due_us * 1000, end_ns: end_us * 1000 });
    (sample, correlator.into_worst().remove(0).cause)
}

fn wake(records: Vec<Event>, end_us: u64) -> (Sample, String) {
    worst(records, Window::Wake, 100, end_us)
}

#[test]
fn a_task_that_keeps_the_cpu_after_the_wake_up_is_the_cause() {
    let records = vec![
        at(50, switch(0, HOG, "hog")),
        at(101, EventKind::LocalTimer),
        at(102, waking(PROBE)),
        at(103, EventKind::HandlerEnd),
        at(303, switch(HOG, PROBE, "asmp-probe")),
    ];
    let (sample, cause) = wake(records, 305);
    assert_eq!(cause, "hog/99 took 200.0 us");
    assert_eq!((sample.handler_ns, sample.value_ns), (Some(1000), 205_000));
    assert_eq!(sample.system_ns, 201_000, "and the rest of the timer's handler");
}

#[test]
fn a_task_that_goes_before_the_probe_is_the_cause_also_where_another_cpu_has_the_timer() {
    let records = vec![at(50, switch(0, HOG, "hog")), at(303, switch(HOG, PROBE, "asmp-probe"))];
    let (sample, cause) = wake(records, 305);
    assert_eq!((cause.as_str(), sample.handler_ns), ("hog/99 took 203.0 us", None));
    let records = vec![
        at(112, reschedule()),
        at(113, EventKind::HandlerEnd),
        at(114, switch(0, HOG, "hog")),
        at(303, switch(HOG, PROBE, "asmp-probe")),
    ];
    assert_eq!(wake(records, 305).1, "hog/99 took 189.0 us");
}

/// Seen in a guest: the timer expired on another CPU, and the reschedule interrupt came 507 ms
/// after the instant.
#[test]
fn a_task_of_lower_priority_that_ran_until_the_wake_up_ran_by_right() {
    let records = |victim| {
        vec![
            at(50, switch(0, victim, "victim")),
            at(300, EventKind::LocalTimer),
            at(301, EventKind::HandlerEnd),
            at(400, reschedule()),
            at(401, EventKind::HandlerEnd),
            at(507_995, reschedule()),
            at(507_996, EventKind::HandlerEnd),
            at(507_998, switch(victim, PROBE, "asmp-probe")),
        ]
    };
    let (sample, cause) = wake(records(VICTIM), 508_000);
    assert_eq!(
        cause,
        "the wake-up came 507895.0 us late from another CPU, which had the timer: that CPU was \
         late, or the machine was away (hypervisor, SMI); what ran here meanwhile ran by right"
    );
    assert_eq!((sample.system_ns, sample.handler_ns), (3_000, None), "the tick woke nothing");
    assert_eq!(sample.counts.unwrap().ticks, 1);
    // While one runs that goes before the probe, no reschedule interrupt is for the probe.
    assert_eq!(wake(records(HOG), 508_000).1, "victim/99 took 507895.0 us");
}

#[test]
fn a_task_of_lower_priority_is_no_cause_where_no_record_shows_the_wake_up() {
    let records =
        vec![at(50, switch(0, VICTIM, "x")), at(303, switch(VICTIM, PROBE, "asmp-probe"))];
    let (sample, cause) = wake(records, 305);
    assert!(cause.starts_with("nothing on this CPU: the wake-up"), "{cause}");
    assert_eq!(sample.system_ns, 0);
    // The first record is its end: who ran before is known from that.
    let records = vec![at(303, switch(HOG, PROBE, "asmp-probe"))];
    assert_eq!(wake(records, 305).1, "victim/99 took 203.0 us");
    let records = vec![at(303, switch(VICTIM, PROBE, "asmp-probe"))];
    assert!(wake(records, 305).1.starts_with("nothing on this CPU"));
}

#[test]
fn a_task_of_lower_priority_that_stays_after_the_wake_up_is_said_to_be_unpreemptible() {
    let records = vec![
        at(50, switch(0, VICTIM, "victim")),
        at(101, EventKind::LocalTimer),
        at(102, waking(PROBE)),
        at(103, EventKind::HandlerEnd),
        at(303, switch(VICTIM, PROBE, "asmp-probe")),
    ];
    assert_eq!(
        wake(records, 305).1,
        "victim/279, of lower priority, stayed for 200.0 us after the wake-up: the kernel \
         could not preempt it, or the CPU was away (hypervisor, SMI)"
    );
}

#[test]
fn tasks_of_sched_other_share_a_cpu_of_any_nice() {
    let records = vec![
        at(50, switch(0, VICTIM, "victim")),
        at(303, {
            let (from, to) = ("victim".into(), "asmp-probe".into());
            let (from_prio, to_prio) = (139, 120);
            EventKind::Switch { from_tid: VICTIM, from, from_prio, to_tid: PROBE, to, to_prio }
        }),
    ];
    assert_eq!(wake(records, 305).1, "victim/279 took 203.0 us");
}

#[test]
fn an_interrupt_that_comes_late_is_the_kernel_s_or_the_hypervisor_s_and_not_the_task_s() {
    let late = |task, name| {
        vec![
            at(50, switch(0, task, name)),
            at(300, EventKind::LocalTimer),
            at(300, waking(PROBE)),
            at(301, EventKind::HandlerEnd),
            at(303, switch(task, PROBE, "asmp-probe")),
        ]
    };
    let (sample, cause) = wake(late(VICTIM, "victim"), 305);
    assert_eq!(
        cause,
        "the timer interrupt came 200.0 us late, while victim/279 was on the CPU: the kernel \
         had interrupts off, or the CPU was away (hypervisor, SMI)"
    );
    assert_eq!(sample.handler_ns, Some(200_000));
    assert_eq!(
        wake(late(0, "swapper/3"), 305).1,
        "the timer interrupt came 200.0 us late, the CPU was idle: hypervisor, SMI or a deep \
         idle state"
    );
}

#[test]
fn what_timerlat_and_the_records_know_is_said_once() {
    let cause = |records: Option<Vec<Event>>, irq_us: u64, thread_us: u64| {
        let mut correlator = Correlator::new(PROBE, Window::Wake, records.is_some());
        correlator.records(records.unwrap_or_default());
        let raw = Raw { due_ns: 100_000, end_ns: 405_000 };
        let sample = correlator.timerlat(raw, irq_us * 1000, thread_us * 1000);
        assert_eq!(sample.handler_ns, Some(irq_us * 1000));
        assert_eq!(sample.thread_ns, Some(thread_us * 1000));
        correlator.into_worst().remove(0).cause
    };
    let late = vec![
        at(50, switch(VICTIM, 0, "swapper/3")),
        at(380, EventKind::LocalTimer),
        at(381, waking(PROBE)),
        at(382, EventKind::HandlerEnd),
        at(384, switch(0, PROBE, "asmp-probe")),
    ];
    assert_eq!(
        cause(Some(late), 281, 290),
        "the timer interrupt came 281.0 us late, the CPU was idle: hypervisor, SMI or a deep \
         idle state"
    );
    let held = vec![
        at(50, switch(0, HOG, "hog")),
        at(101, EventKind::LocalTimer),
        at(101, waking(PROBE)),
        at(102, EventKind::HandlerEnd),
        at(400, switch(HOG, PROBE, "asmp-probe")),
    ];
    assert_eq!(cause(Some(held), 1, 300), "hog/99 took 298.0 us");
    let unseen = "; no record of this CPU says why: hypervisor, SMI or hardware";
    let idle = || vec![at(50, switch(VICTIM, 0, "swapper/3"))];
    assert_eq!(
        cause(Some(idle()), 5, 300),
        format!("the thread was scheduled 295.0 us late{unseen}")
    );
    assert_eq!(
        cause(Some(idle()), 5, 10),
        format!("the return to user space took 295.0 us{unseen}")
    );
    assert_eq!(
        cause(None, 281, 290),
        "the timer interrupt came 281.0 us late: interrupts were off, or the CPU was away"
    );
    assert_eq!(cause(None, 5, 300), "the thread was scheduled 295.0 us late");
}

#[test]
fn where_records_are_missing_no_cpu_is_said_to_have_been_idle() {
    let cause = |records: Vec<Event>| {
        let mut correlator = Correlator::new(PROBE, Window::Wake, true);
        correlator.records(records);
        correlator.timerlat(Raw { due_ns: 100_000, end_ns: 405_000 }, 281_000, 290_000);
        correlator.into_worst().remove(0).cause
    };
    let lost = || Event { at_ns: 0, cpu: 3, kind: EventKind::Lost(12) };
    let idle = || at(50, switch(VICTIM, 0, "swapper/3"));
    let runs = || at(384, switch(0, PROBE, "asmp-probe"));
    let not_known = "the timer interrupt came 281.0 us late; no record says whether the CPU was \
                     idle then: the kernel had interrupts off, the CPU was away (hypervisor, SMI), \
                     or a deep idle state";
    assert_eq!(cause(vec![lost()]), not_known);
    assert_eq!(cause(vec![idle(), lost()]), not_known, "who has come since, no record says");
    assert_eq!(cause(vec![idle(), lost(), runs()]), not_known, "idle may have come later, too");
    assert_eq!(cause(vec![idle(), at(60, EventKind::Unreadable)]), not_known);
    let known = "the timer interrupt came 281.0 us late, the CPU was idle: hypervisor, SMI or a \
                 deep idle state";
    assert_eq!(cause(vec![lost(), idle()]), known);
    assert_eq!(cause(vec![runs()]), known);
    let in_window = cause(vec![idle(), at(300, EventKind::LocalTimer), lost()]);
    assert_eq!(in_window, format!("{known}; records are missing"));
}

#[test]
fn a_task_that_has_left_is_not_blamed_for_the_time_of_lost_records() {
    let records = vec![
        at(50, switch(0, HOG, "hog")),
        at(110, EventKind::PageFault { user: false }),
        Event { at_ns: 0, cpu: 3, kind: EventKind::Lost(12) },
        at(300, switch(0, PROBE, "asmp-probe")),
    ];
    let (sample, cause) = wake(records, 305);
    assert!(!cause.starts_with("hog"), "{cause}");
    assert_eq!(sample.system_ns, 10_000, "until the last record before the loss");
}

#[test]
fn a_turn_counts_what_was_taken_from_it_and_blames_nobody_for_the_rest() {
    let records = vec![
        at(10, switch(0, PROBE, "asmp-probe")),
        at(200, EventKind::LocalTimer),
        at(210, EventKind::HandlerEnd),
        at(300, EventKind::Device { irq: 5, name: "nic".into() }),
        at(340, EventKind::HandlerEnd),
        at(400, switch(PROBE, 50, "kworker")),
        at(460, switch(50, PROBE, "asmp-probe")),
    ];
    let (sample, cause) = worst(records, Window::Turn, 100, 500);
    assert_eq!(sample.system_ns, 110_000);
    let counts = sample.counts.unwrap();
    assert_eq!((counts.ticks, counts.device_interrupts, counts.switches), (1, 1, 1));
    assert_eq!(
        cause, "kworker/50 took 60.0 us; the rest no record shows: hypervisor, SMI or hardware",
        "60 of 400 us is too little"
    );
    let (sample, cause) =
        worst(vec![at(10, switch(0, PROBE, "asmp-probe"))], Window::Turn, 100, 500);
    assert_eq!((sample.system_ns, sample.counts), (0, Some(Counts::default())));
    assert!(cause.starts_with("nothing"));
}

#[test]
fn what_took_most_of_the_excess_of_a_turn_is_its_cause() {
    let mut correlator = Correlator::new(PROBE, Window::Turn, true);
    correlator.records(vec![
        at(10, switch(0, PROBE, "asmp-probe")),
        at(700, EventKind::Device { irq: 5, name: "nic".into() }),
        at(740, EventKind::HandlerEnd),
    ]);
    for (due_us, end_us) in [(100, 500), (600, 1050)] {
        correlator.sample(Raw { due_ns: due_us * 1000, end_ns: end_us * 1000 });
    }
    // 40 of the 50 us that it took longer than the first.
    assert_eq!(correlator.into_worst()[0].cause, "IRQ 5 (nic) took 40.0 us");
}

#[test]
fn a_cause_says_how_often_it_took_the_cpu() {
    let run = || at(10, switch(0, PROBE, "asmp-probe"));
    // A storm, in the middle of which the timer interrupts one.
    let mut storm = vec![run()];
    for us in [120, 160, 200, 240] {
        storm.push(at(us, EventKind::Ipi("function call".into())));
        if us == 200 {
            storm.push(at(us + 10, EventKind::LocalTimer));
            storm.push(at(us + 12, EventKind::HandlerEnd));
        }
        storm.push(at(us + 30, EventKind::HandlerEnd));
    }
    let (sample, cause) = worst(storm, Window::Turn, 100, 300);
    assert_eq!(cause, "IPI function call took 118.0 us, 4 times");
    assert_eq!((sample.system_ns, sample.counts.unwrap().ipis), (120_000, 4));
    let twice = vec![
        run(),
        at(110, switch(PROBE, HOG, "hog")),
        at(150, switch(HOG, PROBE, "asmp-probe")),
        at(160, switch(PROBE, HOG, "hog")),
        at(180, EventKind::LocalTimer),
        at(181, EventKind::HandlerEnd),
        at(240, switch(HOG, PROBE, "asmp-probe")),
    ];
    assert_eq!(worst(twice, Window::Turn, 100, 300).1, "hog/99 took 119.0 us, 2 times");
}

#[test]
fn the_page_faults_of_a_task_are_told_with_what_it_took() {
    let fault = |us| at(us, EventKind::PageFault { user: true });
    let records = vec![
        at(10, switch(0, PROBE, "asmp-probe")),
        fault(105),
        at(110, switch(PROBE, HOG, "hog")),
        fault(120),
        fault(140),
        at(160, EventKind::LocalTimer),
        fault(161),
        at(162, EventKind::HandlerEnd),
        at(240, switch(HOG, PROBE, "asmp-probe")),
        fault(250),
    ];
    let (sample, cause) = worst(records, Window::Turn, 100, 300);
    assert_eq!(cause, "hog/99 took 128.0 us, page faults: 2", "not those of the probe");
    assert_eq!(sample.counts.unwrap().page_faults, 5);
}

#[test]
fn records_of_one_window_are_not_counted_in_the_next() {
    let mut correlator = Correlator::new(7, Window::Wake, true);
    correlator.records(vec![
        at(101, EventKind::LocalTimer),
        at(102, EventKind::HandlerEnd),
        at(201, EventKind::LocalTimer),
    ]);
    let ticks = |sample: Sample| sample.counts.unwrap().ticks;
    assert_eq!(ticks(correlator.sample(Raw { due_ns: 100_000, end_ns: 110_000 })), 1);
    assert_eq!(ticks(correlator.sample(Raw { due_ns: 200_000, end_ns: 210_000 })), 1);
    assert_eq!(ticks(correlator.sample(Raw { due_ns: 300_000, end_ns: 310_000 })), 0);
}

#[test]
fn a_late_sample_knows_when_it_was_due_since_the_first_one() {
    let mut correlator = Correlator::new(7, Window::Wake, false);
    for (due_ns, value_ns) in [(5_000_000, 10), (6_000_000, 30), (8_000_000, 20)] {
        correlator.sample(Raw { due_ns, end_ns: due_ns + value_ns });
    }
    let worst = correlator.into_worst();
    let places: Vec<_> = worst.iter().map(|one| (one.index, one.at_ns)).collect();
    assert_eq!(places, [(1, Some(1_000_000)), (2, Some(3_000_000)), (0, Some(0))]);
    // Without that, as an older asmp wrote it.
    let old = r#"{"index":7,"value_ns":5,"handler_ns":null,"cause":"late","records":[]}"#;
    let read: Outlier = serde_json::from_str(old).unwrap();
    assert_eq!((read.index, read.at_ns), (7, None));
    assert_eq!(serde_json::to_string(&read).unwrap(), old);
    let text = serde_json::to_string(&worst).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Outlier>>(&text).unwrap(), worst);
}

#[test]
fn only_the_worst_are_kept_worst_first() {
    let mut correlator = Correlator::new(7, Window::Wake, false);
    for value in 1..=1000u64 {
        let value = value * 7919 % 1009;
        correlator.sample(Raw { due_ns: 0, end_ns: value });
    }
    let worst = correlator.into_worst();
    assert_eq!(worst.len(), WORST);
    assert!(worst.windows(2).all(|pair| pair[0].value_ns >= pair[1].value_ns));
    assert_eq!(worst[0].value_ns, 1008);
}

#[test]
fn a_long_sentence_is_wrapped_between_words() {
    let sentence = format!("sample 7: {}", "word ".repeat(50).trim_end());
    let text = wrapped(&sentence);
    assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= COLUMNS));
    assert!(text.lines().skip(1).all(|line| line.starts_with("    word")), "{text}");
    assert_eq!(text.replace("\n    ", " "), sentence);
    assert_eq!(wrapped("short"), "short");
}
