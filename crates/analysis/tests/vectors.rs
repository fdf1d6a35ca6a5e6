// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Published examples with published answers.

use asmp_analysis::simulate::{Releases, Run, Simulation, Statistics};
use asmp_analysis::{
    Doubt, Effort, Policy, Task, Verdict, edf, edf_response, fp, np_edf, np_fp, rm, schedulability,
    simulate,
};

const MS: u64 = 1_000_000;

fn ms(name: &str, cost: u64, period: u64) -> Task {
    Task::new(name, cost * MS, period * MS)
}

fn set(pairs: &[(u64, u64)]) -> Vec<Task> {
    pairs
        .iter()
        .enumerate()
        .map(|(at, (cost, period))| Task::new(format!("t{at}"), *cost, *period))
        .collect()
}

/// Priorities in the order of the set, the first the most urgent.
fn prioritised(tasks: Vec<Task>) -> Vec<Task> {
    let count = tasks.len() as u32;
    tasks.into_iter().enumerate().map(|(at, task)| task.priority(count - at as u32)).collect()
}

fn robot() -> Vec<Task> {
    let mut tasks: Vec<Task> = (1..=6).map(|at| ms(&format!("sonar{at}"), 20, 500)).collect();
    tasks.extend([ms("updateMap", 100, 500), ms("odometer1", 20, 1200), ms("odometer2", 20, 1200)]);
    tasks.push(ms("antiSensor", 20, 2000));
    tasks
}

fn effort() -> Effort {
    Effort::default()
}

#[test]
fn example_1_of_yartek_is_schedulable_and_the_ceilings_of_its_equation_2_are_a_misprint() {
    let tasks = set(&[(1500, 4000), (1500, 6000), (1500, 7000)]);
    assert_eq!(np_edf::test(&tasks, &effort()), Verdict::Schedulable);
    // As printed, t = 4002 would want 1500 + 2 x 1500 + 1500 = 6000 or, with the paper's own sum
    // for i = 2, 4500 > 4002.
    let ceilings = |t: u64| 1500 + (t - 1).div_ceil(4000) * 1500;
    assert_eq!((ceilings(4002), ceilings(4001)), (4500, 3000));
}

#[test]
fn the_robot_of_yartek_is_schedulable_and_a_sonar_waits_as_long_as_we_computed() {
    let tasks = robot();
    assert_eq!(np_edf::test(&tasks, &effort()), Verdict::Schedulable);
    let responses = edf_response::responses(&tasks, true, &effort()).unwrap();
    assert_eq!(
        responses[0], 239_999_999,
        "a sonar: 220 ms of its equals, 20 ms less a tick of a later one"
    );
}

#[test]
fn two_readings_of_a_sonar_are_never_more_than_719_ms_apart_in_simulation() {
    let tasks = robot();
    let mut longest = 0;
    for seed in 0..20 {
        let simulation =
            Simulation { seed, ..Simulation::new(&tasks, Policy::NpEdf, Releases::Random) };
        let mut run = Run::prepare(&simulation).unwrap();
        let mut statistics = Statistics::of(&run);
        run.go(60_000 * MS, u64::MAX, &mut statistics);
        assert_eq!(statistics.miss_count(&run), 0);
        let gaps = statistics.streams.iter().take(6).map(|stream| stream.longest_gap_ticks);
        longest = longest.max(gaps.max().unwrap_or(0));
    }
    assert!((520 * MS..=719_999_999).contains(&longest), "{longest}");
}

#[test]
fn the_unsafe_bound_of_the_proof_accepts_a_set_that_misses() {
    // C = 2, p = 2, then p = 13: p_1 (1 - U) + 1 = 1 would allow C = 1.
    let tasks = set(&[(2, 2), (1, 13)]);
    let verdict = np_edf::test(&tasks, &effort());
    let counterexample = verdict.counterexample().expect("utilisation above 1");
    assert!(counterexample.missed.is_some());
}

#[test]
fn a_rejection_of_np_edf_has_a_pattern_that_the_simulator_goes_through_to_the_same_miss() {
    // The long one starts a tick before the short one: 9 + 3 > 10 from its release on.
    let tasks = set(&[(3, 10), (9, 100)]);
    let verdict = np_edf::test(&tasks, &effort());
    let found = verdict.counterexample().expect("8 + 3 > 10");
    let again = simulate::replay(&tasks, Policy::NpEdf, &found.pattern, found.by_ticks, &effort());
    assert_eq!(again, found.missed);
    let missed = again.unwrap();
    assert_eq!(
        (missed.task, missed.job, missed.deadline_ticks, missed.finished_ticks),
        (0, 0, 11, Some(12))
    );
    let tasks = set(&[(3, 10), (8, 100)]);
    assert!(np_edf::test(&tasks, &effort()).is_schedulable(), "7 + 3 = 10");
}

/// brandenburg/schedcat, tests/edf.py, Test_QPA (Zhang and Burns' example).
#[test]
fn schedcat_qpa_example() {
    let rows = [
        (6000, 31000, 18000),
        (2000, 9800, 9000),
        (1000, 17000, 12000),
        (90, 4200, 3000),
        (8, 96, 78),
        (2, 12, 16),
        (10, 280, 120),
        (26, 660, 160),
    ];
    let mut tasks: Vec<Task> = rows
        .iter()
        .map(|(cost, period, deadline)| Task::new("t", *cost, *period).deadline(*deadline))
        .collect();
    assert!(edf::test(&tasks, &effort()).is_schedulable());
    tasks.push(Task::new("late", 10, 100).deadline(15));
    assert!(edf::test(&tasks, &effort()).is_not_schedulable());
}

/// brandenburg/schedcat, tests/fp.py, UniprocessorRTA.
#[test]
fn schedcat_response_times() {
    let tasks = prioritised(set(&[(1, 4), (1, 5), (3, 9), (3, 18)]));
    let analysis = fp::analyse(&tasks, Policy::Fp, &effort());
    assert_eq!(analysis.responses_ticks, [1, 2, 7, 18].map(Some));
    assert_eq!(
        fp::analyse(&tasks, Policy::Rm, &effort()),
        analysis,
        "the priorities are rate-monotonic"
    );
    let tasks = prioritised(set(&[(1, 2), (5, 20), (1, 20)]));
    assert_eq!(fp::analyse(&tasks, Policy::Fp, &effort()).responses_ticks, [1, 10, 12].map(Some));
    let blocked = [(0, 1), (1, 5)].iter().fold(tasks, |mut tasks, (at, ns)| {
        tasks[*at].blocking_ticks = *ns;
        tasks
    });
    assert_eq!(fp::analyse(&blocked, Policy::Fp, &effort()).responses_ticks, [2, 20, 12].map(Some));
}

/// brandenburg/schedcat, tests/fp.py, AudsleyExample: cost, period, deadline, blocking, jitter,
/// response without jitter.
#[test]
fn schedcat_audsley_example() {
    let rows = [
        (51, 1000, 1000, 0, 0, 51),
        (3000, 2000000, 5000, 300, 0, 3504),
        (2000, 25000, 25000, 600, 0, 5906),
        (5000, 25000, 25000, 900, 0, 11512),
        (1000, 40000, 40000, 1350, 0, 13064),
        (3000, 50000, 50000, 1350, 0, 16217),
        (5000, 50000, 50000, 750, 0, 20821),
        (8000, 59000, 59000, 750, 0, 36637),
        (9000, 80000, 80000, 1350, 0, 47798),
        (2000, 80000, 80000, 450, 0, 48949),
        (5000, 100000, 100000, 1050, 0, 99150),
        (1000, 200000, 200000, 450, 1000, 99550),
        (3000, 200000, 200000, 450, 0, 140641),
        (1000, 200000, 200000, 450, 0, 141692),
        (1000, 200000, 200000, 1350, 0, 143694),
        (3000, 1000000, 1000000, 0, 0, 145446),
        (1000, 1000000, 1000000, 0, 0, 146497),
        (1000, 1000000, 1000000, 0, 0, 147548),
    ];
    let tasks = rows.iter().map(|(cost, period, deadline, blocking, jitter, _)| {
        Task::new("t", *cost, *period).deadline(*deadline).blocking(*blocking).jitter(*jitter)
    });
    let analysis = fp::analyse(&prioritised(tasks.collect()), Policy::Fp, &effort());
    let wanted: Vec<Option<u64>> = rows.iter().map(|row| Some(row.5 + row.4)).collect();
    assert_eq!(analysis.responses_ticks, wanted);
    assert!(analysis.verdict.is_schedulable());
}

/// Lehoczky 1990, example 3: the fifth job of the busy period is the worst, 118, beyond the period
/// of 100.
#[test]
fn lehoczky_arbitrary_deadlines() {
    let mut tasks = set(&[(26, 70), (62, 100)]);
    assert!(fp::test(&tasks, Policy::Rm, &effort()).is_not_schedulable());
    tasks[1].deadline_ticks = 118;
    let analysis = fp::analyse(&tasks, Policy::Rm, &effort());
    assert_eq!(analysis.responses_ticks, [Some(26), Some(118)]);
    assert!(analysis.verdict.is_schedulable());
    tasks[1].deadline_ticks = 117;
    let verdict = fp::test(&tasks, Policy::Rm, &effort());
    let missed = verdict.counterexample().and_then(|found| found.missed).expect("it is replayed");
    assert_eq!((missed.task, missed.job), (1, 4));
}

/// Davis et al. 2007, table 3: messages of 125 bits at 125 kbit/s; the second instance of C is the
/// worst, 3.5 ms > 3.25 ms.
#[test]
fn davis_can_refutation() {
    let us = |name: &str, period: u64, deadline: u64| {
        Task::new(name, 1_000_000, period * 1000).deadline(deadline * 1000)
    };
    let tasks = prioritised(vec![us("A", 2500, 2500), us("B", 3500, 3250), us("C", 3500, 3250)]);
    let analysis = np_fp::analyse(&tasks, &effort());
    assert_eq!(analysis.responses_ticks[..2], [Some(1_999_999), Some(2_999_999)]);
    let missed =
        analysis.verdict.counterexample().and_then(|found| found.missed).expect("C misses");
    assert_eq!((missed.task, missed.job), (2, 1));
    let relaxed = prioritised(vec![us("A", 2500, 2500), us("B", 3500, 3250), us("C", 3500, 3500)]);
    assert_eq!(np_fp::analyse(&relaxed, &effort()).responses_ticks[2], Some(3_500_000));
}

/// brandenburg/schedcat, tests/canbus.py, CANMessage2 (Broster, Burns, Rodriguez-Navas 2002), 250
/// kbit/s, in bits. SchedCAT's transmission times leave out our tick: blocking there is the whole
/// longest frame and 3 bits between frames are not part of the response; so ours are at most that
/// much less.
#[test]
fn schedcat_can_messages() {
    let rows = [
        (8, 10, 1.028),
        (3, 14, 1.368),
        (3, 20, 1.708),
        (2, 15, 2.008),
        (5, 20, 2.428),
        (5, 40, 2.848),
        (4, 15, 3.228),
        (5, 50, 3.648),
        (4, 20, 4.028),
        (7, 100, 4.448),
        (5, 50, 4.708),
        (1, 100, 4.720),
    ];
    // A frame takes 52 + 10 bytes bits, and 3 bits pass before the next; 4 us a bit.
    let bit_ticks = 4000;
    let tasks = rows
        .iter()
        .map(|(bytes, period, _)| Task::new("m", (55 + 10 * bytes) * bit_ticks, period * MS));
    let analysis = np_fp::analyse(&prioritised(tasks.collect()), &effort());
    for ((_, _, wanted_ms), found) in rows.iter().zip(analysis.responses_ticks) {
        let found_ms = found.unwrap() as f64 / 1e6;
        assert!((found_ms - 0.012 - wanted_ms).abs() < 0.013, "{found_ms} {wanted_ms}");
    }
}

#[test]
fn rate_monotonic_tests_agree_on_liu_and_laylands_classic() {
    // U = 0.753 under the bound of three tasks, 0.7798.
    let tasks = set(&[(20, 100), (40, 150), (100, 350)]);
    assert!(rm::liu_layland(&tasks).is_schedulable());
    assert!(rm::hyperbolic(&tasks).is_schedulable());
    assert!(fp::test(&tasks, Policy::Rm, &effort()).is_schedulable());
    // U = 0.953: only the exact test accepts (Lehoczky, Sha, Ding 1989).
    let tasks = set(&[(40, 100), (40, 150), (100, 350)]);
    assert!(!rm::liu_layland(&tasks).is_schedulable());
    assert!(fp::test(&tasks, Policy::Rm, &effort()).is_schedulable());
}

#[test]
fn given_offsets_save_a_set_that_free_ones_refuse() {
    let tasks =
        [Task::new("a", 2, 4).deadline(2).offset(0), Task::new("b", 2, 4).deadline(2).offset(2)];
    assert!(edf::test(&tasks, &effort()).is_schedulable(), "they never meet");
    let free: Vec<Task> =
        tasks.iter().map(|task| Task { offset_ticks: None, ..task.clone() }).collect();
    assert!(edf::test(&free, &effort()).is_not_schedulable());
    let worst = simulate::worst_pattern(&tasks, Policy::Edf, 0).unwrap();
    assert_eq!(
        simulate::replay(&tasks, Policy::Edf, &worst, Some(100), &effort()),
        None,
        "offsets are kept"
    );
    let clash =
        [Task::new("a", 2, 4).deadline(2).offset(0), Task::new("b", 2, 6).deadline(2).offset(3)];
    let verdict = edf::test(&clash, &effort());
    let found = verdict.counterexample().expect("at 8 both want the CPU");
    let again = simulate::replay(&clash, Policy::Edf, &found.pattern, found.by_ticks, &effort());
    assert_eq!(again, found.missed);
}

#[test]
fn a_refusal_whose_run_the_given_offsets_exclude_is_not_shown_although_other_offsets_are_free() {
    // a and b never meet; c, whose offset is free, changes nothing in that.
    let of = |b_offset_ticks| {
        let half =
            |name: &str, offset_ticks| Task::new(name, 4, 10).deadline(5).offset(offset_ticks);
        [half("a", 0), half("b", b_offset_ticks), Task::new("c", 1, 100).sporadic()]
    };
    for policy in [Policy::Edf, Policy::Dm, Policy::Rm, Policy::NpEdf] {
        let verdict = schedulability(&of(5), policy, &effort());
        let doubt = matches!(verdict, Verdict::Unknown { reason: Doubt::Offsets { .. } });
        assert!(doubt, "{policy}: {verdict:?}");
        assert!(
            schedulability(&of(10), policy, &effort()).is_not_schedulable(),
            "{policy}: b follows 10 after a"
        );
        assert!(
            schedulability(&of(11), policy, &effort()).is_not_schedulable(),
            "{policy}: 11, 7 left of 8"
        );
    }
    // Periods without a common factor: some day they meet, whatever the offsets.
    let meet =
        [Task::new("a", 4, 11).deadline(5).offset(0), Task::new("b", 4, 10).deadline(5).offset(5)];
    let meet = [&meet[..], &[Task::new("c", 1, 100)]].concat();
    let verdict = edf::test(&meet, &effort());
    assert!(verdict.counterexample().is_some_and(|found| found.missed.is_some()), "{verdict:?}");
}

#[test]
fn a_level_whose_busy_period_never_ends_is_decided_after_a_hyperperiod() {
    // Load 1 at b: with a job of a before it, b waits for ever anew, and its response repeats every
    // 8.
    let set = |period| {
        vec![
            Task::new("c", 1, 2).priority(3),
            Task::new("b", 4, 8).priority(2).deadline(12),
            Task::new("a", 2, period).priority(1),
        ]
    };
    let little = Effort { steps: 10_000, ..effort() };
    let analysis = np_fp::analyse(&set(12)[..], &little);
    assert_eq!(analysis.responses_ticks, [Some(4), Some(7), None], "c is late by 2");
    assert!(analysis.verdict.is_not_schedulable(), "a load of 7/6: {:?}", analysis.verdict);
    let mut full =
        vec![Task::new("c", 1, 2).priority(3), Task::new("b", 4, 8).priority(2).deadline(12)];
    full[1].jitter_ticks = 3;
    let analysis = fp::analyse(&full, Policy::Fp, &little);
    assert!(analysis.verdict.is_schedulable(), "{:?}", analysis.verdict);
    assert_eq!(analysis.responses_ticks, [Some(1), Some(11)]);
}

#[test]
fn a_refusal_stands_also_where_the_responses_of_others_would_take_too_long() {
    let late = Task::new("late", 3, 10).deadline(2).priority(2);
    let long = Task::new("long", 7004, 10_007).deadline(1_000_000_000).jitter(200).priority(1);
    let little = Effort { steps: 100, ..effort() };
    let alone = [late.clone().deadline(3), long.clone()];
    assert!(
        matches!(fp::test(&alone, Policy::Fp, &little), Verdict::Unknown { .. }),
        "it does take too long"
    );
    let tasks = [late, long];
    assert!(fp::analyse(&tasks, Policy::Fp, &little).verdict.is_not_schedulable());
    assert!(np_fp::analyse(&tasks, &little).verdict.is_not_schedulable());
}

#[test]
fn given_offsets_are_decided_for_every_cost_where_nothing_is_preempted() {
    let tasks = [Task::new("a", 3, 10).offset(0), Task::new("b", 9, 100).offset(3)];
    let verdict = np_edf::test(&tasks, &effort());
    assert!(verdict.is_schedulable(), "b is done by 12, also if a takes less: {verdict:?}");
    let little = Effort { steps: 2000, ..effort() };
    let verdict = np_edf::test(&tasks, &little);
    assert!(matches!(verdict, Verdict::Unknown { reason: Doubt::Offsets { .. } }), "{verdict:?}");
    let late = [Task::new("a", 3, 10).offset(0), Task::new("b", 9, 100).offset(9)];
    assert!(
        np_edf::test(&late, &effort()).is_not_schedulable(),
        "the job of a at 10 waits until 18"
    );
}

#[test]
fn a_set_that_edf_accepts_has_no_response_beyond_its_deadline_although_something_holds_it_up() {
    // At 41, when t0 comes the second time, all deadlines lie within: nothing is left that could
    // hold t2 up.
    let tasks = [
        Task::new("t0", 17, 41).deadline(25),
        Task::new("t1", 20, 58).deadline(54),
        Task::new("t2", 2, 29).blocking(9),
    ];
    assert!(edf::test(&tasks, &effort()).is_schedulable());
    let responses = edf_response::responses(&tasks, false, &effort()).unwrap();
    assert!(
        responses.iter().zip(&tasks).all(|(response, task)| *response <= task.deadline_ticks),
        "{responses:?}"
    );
}

#[test]
fn blocking_and_jitter_move_the_edge_of_edf_by_exactly_their_length() {
    let base = || vec![Task::new("a", 3, 10).deadline(7), Task::new("b", 8, 40).deadline(20)];
    let mut tasks = base();
    tasks[0].blocking_ticks = 4;
    assert!(edf::test(&tasks, &effort()).is_schedulable(), "4 + 3 = 7");
    tasks[0].blocking_ticks = 5;
    let verdict = edf::test(&tasks, &effort());
    assert_eq!(
        verdict.counterexample().and_then(|found| found.missed).map(|missed| missed.task),
        Some(0)
    );
    let mut tasks = base();
    tasks[0].jitter_ticks = 4;
    assert!(edf::test(&tasks, &effort()).is_schedulable(), "released 4 late, 3 to go until 7");
    tasks[0].jitter_ticks = 5;
    assert!(edf::test(&tasks, &effort()).is_not_schedulable());
}

#[test]
fn what_cannot_be_decided_is_unknown_and_what_is_not_covered_does_not_apply() {
    let little = Effort { steps: 10, jobs: 10 };
    let tasks = set(&[(1, 4), (1, 5), (3, 9), (3, 18)]);
    for policy in [Policy::Edf, Policy::NpEdf, Policy::Rm] {
        let verdict = schedulability(&tasks, policy, &little);
        assert!(matches!(verdict, Verdict::Unknown { .. }), "{policy} {verdict:?}");
    }
    assert!(
        matches!(fp::test(&tasks, Policy::Fp, &effort()), Verdict::DoesNotApply { .. }),
        "no priorities"
    );
    assert!(matches!(np_edf::test(&[], &effort()), Verdict::DoesNotApply { .. }));
    let zero = [Task::new("z", 0, 5)];
    assert!(matches!(edf::test(&zero, &effort()), Verdict::DoesNotApply { .. }));
    let huge = [Task::new("h", u64::MAX, u64::MAX)];
    assert!(matches!(edf::test(&huge, &effort()), Verdict::DoesNotApply { .. }));
}

#[test]
fn a_hyperperiod_that_does_not_fit_is_unknown_where_it_is_needed() {
    // Utilisation of exactly 1 in thirds of primes: only the hyperperiod can tell.
    let p = [999_999_937u64, 999_999_929, 999_999_893, 999_999_883, 999_999_797];
    let mut tasks: Vec<Task> = p.iter().map(|p| Task::new("p", 1, *p)).collect();
    let rest: f64 = p.iter().map(|p| 1.0 / *p as f64).sum();
    assert!(rest < 1e-8);
    tasks.push(Task::new("whole", (1 << 59) - 1, 1 << 59));
    assert!(edf::test(&tasks, &effort()).is_not_schedulable(), "above 1 is seen without it");
}
