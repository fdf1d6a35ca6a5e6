// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No answer ignores a field of its file: it uses the field, or refuses it.

use asmp_analysis::deadline::Domain;
use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::place::{By, place};
use asmp_analysis::{
    Effort, Outcome, Policy, Report, Verdict, Workload, analyse, analyse_budgets, best_outcome,
    kernel_admission, worst_schedule_svg,
};

fn of(text: &str) -> Workload {
    from_toml(text, &no_measurement).unwrap()
}

fn reports(workload: &Workload, cpus: &[u32]) -> Vec<Report> {
    Policy::ALL.iter().map(|p| analyse(workload, *p, cpus, &Effort::default())).collect()
}

/// The one reason for which no policy's test applies.
fn refusal(workload: &Workload, cpus: &[u32]) -> String {
    let all = reports(workload, cpus);
    assert_eq!(best_outcome(&all), Outcome::Unknown);
    let reasons = all.iter().map(|report| match &report.cpus[0].verdict {
        Verdict::DoesNotApply { reason } => reason.to_string(),
        verdict => panic!("{}: {verdict:?}", report.policy),
    });
    let mut reasons: Vec<String> = reasons.collect();
    reasons.dedup();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

const A: &str = "[[task]]\nname = 'a'\ncost = '900 us'\nperiod = '1 ms'\npriority = 5\n";
const B: &str = "[[task]]\nname = 'b'\ncost = '200 us'\nperiod = '2 ms'\npriority = 4\n";
const FLAG: &str =
    "[[interrupt]]\nname = 'eth'\nflag = '100 us'\nservice = '1 us'\ngap = '200 us'\n";

#[test]
fn a_flag_that_delays_tasks_is_refused_by_each_answer() {
    let workload = of(&format!("{A}{FLAG}"));
    let reason = refusal(&workload, &[]);
    assert!(reason.starts_with("interrupt eth: its flag delays every task"), "{reason}");
    assert_eq!(refusal(&workload, &[1, 2]), reason);
    assert_eq!(workload.check_placeable(&[0]).unwrap_err().to_string(), reason);
    let budgets = analyse_budgets(&workload, &Effort::default());
    assert_eq!(budgets.unwrap_err().to_string(), reason);
    let domain = Domain::of(1);
    let admission = kernel_admission(&workload, &domain, &Effort::default()).unwrap();
    assert!(matches!(admission.deadlines, Verdict::DoesNotApply { .. }));
    assert_eq!(admission.partitioned, None, "one queue a CPU would ignore the flag, too");
    for report in reports(&workload, &[]) {
        let picture = worst_schedule_svg(&workload, &report).unwrap_err();
        assert_eq!(picture.to_string(), reason, "{}", report.policy);
    }
}

#[test]
fn sched_deadline_on_several_cpus_ignores_neither_sections_nor_room() {
    let two = |text: &str| {
        let admission = kernel_admission(&of(text), &Domain::of(2), &Effort::default()).unwrap();
        (admission.deadlines, admission.partitioned.unwrap().is_complete())
    };
    let light = A.replace("900 us", "100 us");
    assert_eq!(two(&format!("{light}{B}")), (Verdict::Schedulable, true));
    let (refused, is_placed) = two(&format!("{light}blocking = '1 s'\n{B}"));
    let Verdict::DoesNotApply { reason } = refused else { panic!("{refused:?}") };
    assert_eq!(reason.to_string(), "task a: this test does not support blocking");
    assert!(!is_placed, "a section of 1 s fits on no CPU");
    let room = "[room]\nmemory = 10\n";
    let (refused, is_placed) = two(&format!("{light}memory = 6\n{B}memory = 6\n{room}"));
    assert!(matches!(refused, Verdict::DoesNotApply { .. }), "{refused:?}");
    assert!(is_placed, "each on a CPU of its own");
    let (_, is_placed) = two(&format!("{light}memory = 11\n{B}{room}"));
    assert!(!is_placed, "no CPU has that much");
}

#[test]
fn a_flag_that_costs_nothing_or_is_on_another_core_changes_no_answer() {
    let alone = reports(&of(A), &[]);
    assert_eq!(best_outcome(&alone), Outcome::Schedulable);
    assert_eq!(reports(&of(&format!("{A}{}", FLAG.replace("flag = '100 us'", ""))), &[]), alone);
    let core_1 = format!("{A}core = 1\n");
    let elsewhere = of(&format!("{core_1}{FLAG}core = 2\n"));
    assert_eq!(reports(&elsewhere, &[]), reports(&of(&core_1), &[]));
    refusal(&of(&format!("{core_1}{FLAG}core = 1\n")), &[]);
    refusal(&of(&format!("{core_1}{FLAG}")), &[]);
}

#[test]
fn a_task_without_a_core_beside_one_with_a_core_is_refused_unless_it_is_placed() {
    let mixed = of(&format!("{A}core = 1\n{}", B.replace("200 us", "600 us")));
    let reason = refusal(&mixed, &[]);
    assert!(reason.starts_with("task a names a core, task b names none"), "{reason}");
    assert_eq!(mixed.check_cores().unwrap_err().to_string(), reason);
    let one = analyse(&mixed, Policy::Edf, &[1], &Effort::default());
    assert_eq!((one.cpus[0].tasks.as_slice(), one.unplaced.as_slice()), (&[0][..], &[1][..]));
    let placed = analyse(&mixed, Policy::Edf, &[1, 2], &Effort::default());
    assert_eq!(placed.outcome(), Outcome::Schedulable);
    assert_eq!(placed.cpus.len(), 2);
}

#[test]
fn cpus_that_a_file_contradicts_are_refused() {
    let bound = of(&format!("{A}core = 1\n"));
    assert_eq!(refusal(&bound, &[3]), "task a names core 1, which --cpus leaves out");
    assert_eq!(best_outcome(&reports(&bound, &[1])), Outcome::Schedulable);
    let chain = "[[chain]]\nname = 'c'\ntasks = ['a', 'b']\ndeadline = '1 s'\n";
    let chained = of(&format!("{A}core = 1\n{}core = 2\n{chain}", B.replace("2 ms", "1 ms")));
    assert_eq!(reports(&chained, &[1, 2]), reports(&chained, &[]), "all that --cpus says is said");
    let free = of(&format!("{A}{}{chain}", B.replace("2 ms", "1 ms")));
    let reason = refusal(&free, &[1, 2]);
    assert_eq!(reason, "chain c: placement ignores chains: name the core of each task");
    for refused in [chained.check_budgets(), chained.check_placeable(&[1, 2])] {
        assert!(refused.unwrap_err().to_string().starts_with("chain c: "));
    }
}

#[test]
fn tasks_that_name_their_cores_have_the_same_answer_with_those_cpus() {
    let late = of(&format!("{A}core = 1\n{}core = 1\n", B.replace("200 us", "600 us")));
    let alone = reports(&late, &[]);
    assert_eq!(best_outcome(&alone), Outcome::NotSchedulable);
    assert_eq!(reports(&late, &[1, 2]), alone);
}

#[test]
fn nothing_is_said_to_help_a_set_that_no_test_covers() {
    let workload = of(&format!("{A}{FLAG}"));
    for report in reports(&workload, &[]) {
        let help = report.cpus[0].help(&workload.tasks, report.policy, &Effort::default());
        assert_eq!(help, [], "{}", report.policy);
    }
}

#[test]
fn sched_deadline_refuses_cores_that_it_would_ignore() {
    let admission =
        |text: &str, cpus| kernel_admission(&of(text), &Domain::of(cpus), &Effort::default());
    let (one, two) = (format!("{A}core = 1\n{B}core = 1\n"), format!("{A}core = 1\n{B}core = 2\n"));
    admission(&one, 1).unwrap();
    for (text, cpus) in [(&one, 2), (&two, 1), (&two, 2), (&format!("{A}core = 1\n{B}"), 1)] {
        let refused = admission(text, cpus).unwrap_err();
        assert!(matches!(refused, Verdict::DoesNotApply { .. }), "{cpus}: {refused:?}");
    }
}

#[test]
fn budgets_of_tasks_on_two_cores_are_refused() {
    let two = of(&format!("{A}core = 1\n{B}core = 2\n"));
    let refused = analyse_budgets(&two, &Effort::default()).unwrap_err().to_string();
    assert_eq!(refused, "task b is on another core than task a: write one file for each core");
    analyse_budgets(&of(&format!("{A}core = 1\n{B}core = 1\n")), &Effort::default()).unwrap();
}

#[test]
fn tasks_that_need_more_than_the_room_of_their_cpu_are_refused() {
    for what in ["memory", "bandwidth"] {
        let need = |a, b| of(&format!("{A}{what} = {a}\n{B}{what} = {b}\n[room]\n{what} = 10\n"));
        let reason =
            format!("the tasks of one CPU need {what} 11, and [room] has 10: use more CPUs");
        assert_eq!(refusal(&need(5, 6), &[]), reason);
        assert_eq!(need(5, 6).check_budgets().unwrap_err().to_string(), reason);
        assert!(need(5, 5).check_analysable(&[]).is_ok());
        assert_eq!(
            analyse(&need(5, 6), Policy::Edf, &[1, 2], &Effort::default()).outcome(),
            Outcome::Schedulable
        );
    }
}

/// Each line changes one key of a file alone. Some answer must change: of a policy, of a
/// placement, or a refusal.
#[test]
fn each_key_of_the_file_changes_an_answer() {
    let base = format!("{A}core = 1\n{B}core = 1\n").replace("900 us", "700 us");
    let with = |line: &str| of(&format!("{base}{line}\n"));
    let answers = |workload: &Workload| {
        let placed = [By::WorstFit, By::BfdPartitioned].map(|by| {
            place(&workload.tasks, &[1, 2], by, Policy::Edf, &workload.room, &Effort::default())
        });
        (
            reports(workload, &[]),
            analyse_budgets(workload, &Effort::default()).map_err(|error| error.to_string()),
            placed,
        )
    };
    let unchanged = answers(&of(&base));
    for line in [
        "deadline = '1500 us'",
        "jitter = '100 us'",
        "blocking = '100 us'",
        "memory = 7",
        "bandwidth = 7",
        "[[chain]]\nname = 'c'\ntasks = ['b']\ndeadline = '1 ms'",
        FLAG,
        "[room]\nmemory = 0\nbandwidth = 0\n[[task]]\nname = 'm'\ncost = '1 us'\nperiod = '1 s'\n\
         priority = 1\nmemory = 1",
    ] {
        assert_ne!(answers(&with(line)), unchanged, "{line}");
    }
    // Offsets say something together only.
    let late = "[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\n[[task]]\nname = 'b'\n\
                cost = '8 ms'\nperiod = '20 ms'\n";
    let apart = late
        .replace("'10 ms'", "'10 ms'\noffset = '0'")
        .replace("'20 ms'", "'20 ms'\noffset = '3 ms'");
    assert_ne!(answers(&of(&apart)), answers(&of(late)), "offset");
    for (from, to) in [
        ("700 us", "701 us"),
        ("'2 ms'", "'3 ms'"),
        ("period = '2 ms'", "sporadic = '1999 us'"),
        ("priority = 4", "priority = 6"),
        ("priority = 5", "class = 'low'\npriority = 5"),
        (
            "200 us'\nperiod = '2 ms'\npriority = 4\ncore = 1",
            "200 us'\nperiod = '2 ms'\npriority = 4\ncore = 2",
        ),
    ] {
        assert!(base.contains(from), "{from}");
        assert_ne!(answers(&of(&base.replace(from, to))), unchanged, "{from} -> {to}");
    }
}
