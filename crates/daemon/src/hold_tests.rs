// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When asmpd looks, repairs and pauses, on a clock of numbers.

use super::*;
use asmp_host::CpuSet;
use asmp_shield::verify::{Finding, PartitionStatus, STATUS_SCHEMA, TickStatus};

/// A status with these violations of partition `motion`.
pub fn status(violations: &[&str]) -> Status {
    let finding =
        |what: &&str| Finding { what: (*what).to_owned(), cure: format!("cure of {what}") };
    let partition = PartitionStatus {
        name: "motion".to_owned(),
        cpus: CpuSet::from_iter([3]),
        idle_cpus: CpuSet::new(),
        mode: Mode::Isolated,
        shared: Vec::new(),
        shielded: violations.is_empty(),
        kernel_says: "isolated".to_owned(),
        created_s: 0,
        created_by: "root: test".to_owned(),
        granted: None,
        owner_alive: None,
        irqs: Vec::new(),
        tasks: Vec::new(),
        sub_groups: Vec::new(),
        tick: TickStatus::CanStop,
        guarantee_checked: None,
        violations: violations.iter().map(finding).collect(),
        stays: Vec::new(),
    };
    Status {
        schema: STATUS_SCHEMA,
        kernel: "7.2".to_owned(),
        system_cpus: CpuSet::from_iter([0, 1, 2]),
        irq_home: None,
        interrupted: false,
        journal_unreadable: false,
        changing: false,
        partitions: vec![partition],
        orphans: Vec::new(),
        boot_isolated_cpus: CpuSet::new(),
        boot_isolated_uncounted: CpuSet::new(),
        foreign_isolated_cpus: CpuSet::new(),
        left: Vec::new(),
        affected: Vec::new(),
    }
}

fn violation(what: &str) -> Violation {
    Violation { partition: "motion".to_owned(), what: what.to_owned() }
}

/// Its first look, at 0, found nothing.
fn at_rest() -> Hold {
    let mut hold = Hold::new(Pace::default());
    assert_eq!(hold.due_ns(), 0, "it looks at once");
    assert_eq!(hold.looked(0, &status(&[])), Order::Rest);
    hold
}

#[test]
fn a_repair_that_ends_the_sharing_of_cpus_is_told_once() {
    let shared = |violations: &[&str]| {
        let mut status = status(violations);
        status.partitions[0].mode = Mode::Shared;
        status
    };
    let told = |hold: &mut Hold| {
        let fresh = hold.fresh();
        let texts = fresh.iter().map(ToString::to_string);
        texts.filter(|text| text.contains("asmp mode motion shared")).count()
    };
    let mut hold = at_rest();
    hold.looked(SECOND, &shared(&["the scheduler has ended"]));
    hold.repaired(2 * SECOND, &shared(&[]), 1);
    assert_eq!(told(&mut hold), 0, "it is shared still");
    hold.looked(3 * SECOND, &shared(&["the scheduler has ended"]));
    hold.repaired(4 * SECOND, &status(&[]), 9);
    assert_eq!(told(&mut hold), 1);
    hold.looked(5 * SECOND, &status(&["IRQ 24"]));
    hold.repaired(6 * SECOND, &status(&[]), 1);
    assert_eq!(told(&mut hold), 0);
}

#[test]
fn a_summary_says_that_it_cannot_look() {
    let mut hold = Hold::new(Pace::default());
    hold.blind(5, "no /proc");
    assert_eq!(hold.summary(), "cannot look now: `asmp events` says why; 0 repaired");
}

#[test]
fn a_notice_is_looked_at_after_the_others_that_come_with_it_and_the_first_names_the_cause() {
    let mut hold = at_rest();
    assert_eq!(hold.due_ns(), 60 * SECOND, "without a notice only the sweep");
    hold.notice(SECOND, "IRQ 24 was written");
    hold.notice(SECOND + MS, "IRQ 25 was written");
    assert_eq!(hold.due_ns(), SECOND + 2 * MS);
    assert_eq!(hold.looked(SECOND + 3 * MS, &status(&["IRQ 24"])), Order::Repair);
    hold.repaired(SECOND + 9 * MS, &status(&[]), 0);
    let [record] = hold.fresh().try_into().unwrap();
    let event = Event::Repaired { violation: violation("IRQ 24"), after_ns: 9 * MS };
    let cause = "IRQ 24 was written".to_owned();
    assert_eq!(record, Record { at_ns: SECOND + 9 * MS, event, cause });
    let text = "motion: IRQ 24: repaired 9.0 ms after the notice (IRQ 24 was written)";
    assert_eq!(record.to_string(), text);
    assert!(hold.fresh().is_empty(), "each is told once");
    let Counts { violations, repaired, repairs, found_by_sweep, .. } = hold.counts;
    assert_eq!((violations, repaired, repairs, found_by_sweep), (1, 1, 1, 0));
    assert_eq!(hold.repaired_of(), &BTreeMap::from([("motion".to_owned(), 1)]));
    let without = Status { partitions: Vec::new(), ..status(&[]) };
    assert_eq!(hold.looked(2 * SECOND, &without), Order::Rest);
    assert!(hold.repaired_of().is_empty(), "it has ended");
}

#[test]
fn what_no_notice_told_is_counted_as_found_by_the_sweep() {
    let mut hold = at_rest();
    assert_eq!(hold.looked(60 * SECOND, &status(&["a mask"])), Order::Repair);
    assert_eq!(hold.counts.found_by_sweep, 1);
    // What is there at the start was not found by a sweep.
    let mut fresh = Hold::new(Pace::default());
    assert_eq!(fresh.looked(5, &status(&["a mask"])), Order::Repair);
    assert_eq!(fresh.counts.found_by_sweep, 0);
}

#[test]
fn what_a_repair_leaves_is_told_once_and_tried_again_later_and_later() {
    let mut hold = at_rest();
    let stuck = status(&["CPU 3 is offline"]);
    let mut now_ns = SECOND;
    hold.notice(now_ns, "CPU 3 went offline");
    let mut waits = Vec::new();
    for _ in 0..12 {
        assert_eq!(hold.looked(now_ns, &stuck), Order::Repair);
        hold.repaired(now_ns, &stuck, 0);
        // The look after a repair tries nothing.
        assert_eq!(hold.due_ns(), now_ns + 2 * MS);
        assert_eq!(hold.looked(now_ns + 2 * MS, &stuck), Order::Rest);
        let due_ns = hold.open.values().map(|open| open.again_at_ns).min().unwrap();
        waits.push((due_ns - now_ns) / SECOND);
        now_ns = due_ns;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    let [record] = hold.fresh().try_into().unwrap();
    assert_eq!(
        record.to_string(),
        "motion: CPU 3 is offline: could not be repaired (CPU 3 went offline): cure of CPU 3 is \
         offline"
    );
    // It comes back by itself.
    hold.notice(now_ns, "CPU 3 came online");
    assert_eq!(hold.looked(now_ns, &status(&[])), Order::Rest);
    let [record] = hold.fresh().try_into().unwrap();
    assert_eq!(record.event, Event::Ended { violation: violation("CPU 3 is offline") });
    assert_eq!(hold.open().count(), 0);
}

/// The status after a repair does not tell what was broken again at once from what it left.
#[test]
fn what_is_broken_again_while_it_is_repaired_is_repaired_within_five_seconds() {
    let mut hold = at_rest();
    let (mut now_ns, stuck) = (SECOND, status(&["task 7 is elsewhere"]));
    let mut waits = Vec::new();
    for _ in 0..6 {
        hold.notice(now_ns, "task 7 was moved");
        assert_eq!(hold.looked(now_ns, &stuck), Order::Repair);
        hold.changed();
        hold.repaired(now_ns, &stuck, 0);
        assert_eq!(hold.looked(now_ns + 2 * MS, &stuck), Order::Rest);
        waits.push((hold.due_ns() - now_ns) / SECOND);
        now_ns = hold.due_ns();
    }
    assert_eq!(waits, [1, 2, 4, 5, 5, 5]);
}

#[test]
fn what_a_repair_changed_and_is_there_again_is_repaired_at_once_but_not_for_ever() {
    let mut hold = at_rest();
    let stuck = status(&["task 7 is elsewhere"]);
    hold.notice(SECOND, "task 7 was moved");
    let mut now_ns = hold.due_ns();
    let mut gaps = Vec::new();
    for _ in 0..6 {
        assert_eq!(hold.looked(now_ns, &stuck), Order::Repair);
        hold.repaired(now_ns, &stuck, 1);
        if hold.fresh().is_empty() {
            gaps.push((hold.due_ns() - now_ns) / MS);
        } else {
            assert_eq!(hold.looked(hold.due_ns(), &stuck), Order::Rest);
            gaps.push((hold.due_ns() - now_ns) / MS);
            break;
        }
        now_ns = hold.due_ns();
    }
    assert_eq!(gaps, [0, 0, 0, 1000], "three times, and then it is named");
    // Repaired before that, it was never said to stay.
    let mut hold = at_rest();
    assert_eq!(hold.looked(SECOND, &stuck), Order::Repair);
    hold.repaired(SECOND, &stuck, 1);
    assert_eq!(hold.looked(hold.due_ns(), &stuck), Order::Repair);
    hold.repaired(SECOND + MS, &status(&[]), 1);
    let [record] = hold.fresh().try_into().unwrap();
    assert!(matches!(record.event, Event::Repaired { .. }), "{record:?}");
}

#[test]
fn a_new_violation_beside_one_that_stays_is_repaired_at_once() {
    let mut hold = at_rest();
    assert_eq!(hold.looked(SECOND, &status(&["old"])), Order::Repair);
    hold.repaired(SECOND, &status(&["old"]), 0);
    hold.notice(SECOND + MS, "x");
    assert_eq!(hold.looked(SECOND + 3 * MS, &status(&["old", "new"])), Order::Repair);
    hold.repaired(SECOND + 4 * MS, &status(&["old"]), 0);
    assert_eq!(hold.open().map(|(one, _)| one).collect::<Vec<_>>(), [&violation("old")]);
    assert_eq!(hold.counts.repaired, 1);
    // A notice before the look after the repair is its cause.
    hold.notice(SECOND + 5 * MS, "IRQ 24 was written");
    assert_eq!(hold.looked(SECOND + 7 * MS, &status(&["IRQ 24"])), Order::Repair);
    hold.repaired(SECOND + 8 * MS, &status(&[]), 0);
    assert_eq!(hold.fresh().pop().unwrap().cause, "IRQ 24 was written");
}

#[test]
fn a_repair_that_fails_names_its_reason_and_is_tried_again() {
    let mut hold = at_rest();
    assert_eq!(hold.looked(SECOND, &status(&["IRQ 24"])), Order::Repair);
    hold.unrepaired(SECOND, "another asmp has been changing partitions for 10 s");
    let [record] = hold.fresh().try_into().unwrap();
    let Event::Stays { cure, .. } = record.event else { panic!("{record:?}") };
    assert_eq!(cure, "another asmp has been changing partitions for 10 s");
    assert_eq!(hold.looked(hold.due_ns(), &status(&["IRQ 24"])), Order::Rest);
    assert_eq!(hold.due_ns(), 2 * SECOND);
    assert_eq!(hold.looked(2 * SECOND, &status(&["IRQ 24", "IRQ 25"])), Order::Repair);
    hold.repaired(2 * SECOND, &status(&[]), 0);
    assert_eq!(hold.counts.repaired, 2);
    assert_eq!(hold.fresh().pop().unwrap().cause, "found as another was tried again");
    assert_eq!(hold.counts.found_by_sweep, 0);
}

#[test]
fn a_storm_slows_repairs_down_is_named_and_ends() {
    let pace = Pace::default();
    let mut hold = at_rest();
    let mut now_ns = SECOND;
    let mut until_ns = Vec::new();
    for turn in 0..60 {
        // It is broken again before the look after the last repair.
        hold.notice(now_ns, "IRQ 24 was written");
        now_ns = hold.due_ns();
        assert_eq!(hold.looked(now_ns, &status(&["IRQ 24"])), Order::Repair, "{turn}");
        hold.repaired(now_ns, &status(&[]), 0);
        until_ns.push(now_ns);
    }
    let gaps: Vec<u64> = until_ns.windows(2).map(|two| (two[1] - two[0]) / MS).collect();
    assert_eq!(gaps[..49], [2; 49]);
    assert_eq!(gaps[49..57], [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    assert!(hold.is_storming());
    let storms = |hold: &mut Hold| -> Vec<Event> {
        let events = hold.fresh().into_iter().map(|record| record.event);
        events.filter(|one| !matches!(one, Event::Repaired { .. })).collect()
    };
    assert_eq!(storms(&mut hold), [Event::StormBegan { repairs: pace.storm_repairs }]);
    assert_eq!(hold.counts.repaired, 60, "none was left out");
    now_ns += pace.storm_ns + 1;
    assert_eq!(hold.looked(now_ns, &status(&[])), Order::Rest);
    assert_eq!(storms(&mut hold), [Event::StormEnded]);
}

#[test]
fn while_another_asmp_changes_partitions_nothing_is_repaired() {
    let mut hold = at_rest();
    let busy = Status { changing: true, ..status(&["half done"]) };
    assert_eq!(hold.looked(SECOND, &busy), Order::Rest);
    assert_eq!((hold.open().count(), hold.counts.violations), (0, 0), "no violation");
    assert!(hold.summary().starts_with("another asmp is changing partitions; "));
    assert!(hold.due_ns() <= SECOND + Pace::default().settle_ns, "it is looked at again");
    assert!(hold.fresh().is_empty());
    hold.notice(2 * SECOND, "state.json was written");
    assert_eq!(hold.looked(2 * SECOND + 2 * MS, &status(&[])), Order::Rest);
    assert!(hold.summary().starts_with("every partition holds; "));
}

#[test]
fn what_a_killed_change_left_and_groups_without_a_state_are_violations_too() {
    let mut hold = at_rest();
    let left = Status {
        interrupted: true,
        orphans: vec!["/sys/fs/cgroup/asmp/old".into()],
        left: vec![Finding { what: "x is not given back".into(), cure: "restore".into() }],
        ..status(&[])
    };
    assert_eq!(hold.looked(SECOND, &left), Order::Repair);
    let open: Vec<String> = hold.open().map(|(one, _)| one.to_string()).collect();
    assert_eq!(
        open,
        [
            "/sys/fs/cgroup/asmp/old has no state",
            "a change was interrupted, and is not undone",
            "x is not given back"
        ]
    );
}

#[test]
fn a_look_that_fails_is_made_again_later_and_keeps_its_cause() {
    let mut hold = at_rest();
    hold.notice(SECOND, "IRQ 24 was written");
    let mut waits = Vec::new();
    let mut now_ns = hold.due_ns();
    for _ in 0..8 {
        hold.blind(now_ns, "cannot look: no /proc");
        waits.push((hold.due_ns() - now_ns) / SECOND);
        now_ns = hold.due_ns();
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60], "at most a sweep later");
    assert_eq!(hold.looked(now_ns, &status(&["IRQ 24"])), Order::Repair);
    hold.repaired(now_ns, &status(&[]), 0);
    let last = hold.fresh().pop().unwrap();
    assert_eq!(last.cause, "IRQ 24 was written");
    let after_ns = now_ns - SECOND;
    assert_eq!(last.event, Event::Repaired { violation: violation("IRQ 24"), after_ns });
    assert_eq!(hold.looked(hold.due_ns(), &status(&[])), Order::Rest);
    assert_eq!(hold.due_ns(), now_ns + 2 * MS + 60 * SECOND);
}
