// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of the paper (Eustache, Diguet 2008) and of our check of it.

use crate::oracle::fire;
use crate::{analyzed, bounded, firings, graph};
use asmp_analysis::graph::{
    Graph, Limits, On, Proof, Refusal, Report, Size, Verdict, analyze, dot, svg,
};

fn gc0(report: &Report) -> Vec<u64> {
    report.tasks.iter().flat_map(|task| &task.outputs).map(|output| output.gc0).collect()
}

fn gc(report: &Report) -> Vec<u64> {
    report.tasks.iter().flat_map(|task| &task.outputs).map(|output| output.gc).collect()
}

fn chain(of: &[(&str, u64, u64)], constraints: [&str; 3]) -> Graph {
    let mut text = String::new();
    for (n, constraint) in constraints.iter().enumerate() {
        text += &format!("[[task]]\nname = \"T{}\"\n{constraint}\n", n + 1);
    }
    for (ends, write, read) in of {
        let (from, to) = ends.split_once(' ').unwrap();
        text += &format!(
            "[[edge]]\nfrom = \"{from}\"\nto = \"{to}\"\nwrite = {write}\nread = {read}\n"
        );
    }
    text.parse().unwrap()
}

#[test]
fn figure_6_gives_4_6_3_with_both_sets_of_rates_that_fit() {
    for (first_write, cycles) in [(2, [2, 2, 3]), (1, [4, 2, 3])] {
        let graph = chain(&[("T1 T2", first_write, 2), ("T2 T3", 3, 2)], ["", "", "output = 1"]);
        let report = analyzed(&graph).unwrap();
        assert_eq!(firings(&report), cycles);
        assert_eq!(gc0(&report), [4, 6, 3]);
        assert_eq!(gc(&report), [4, 6, 3]);
    }
}

#[test]
fn a_20_row_image_makes_erosion_wait_for_60_rows() {
    let graph: Graph = include_str!("../../../../examples/analysis/camera.toml").parse().unwrap();
    let report = analyzed(&graph).unwrap();
    assert_eq!(report.tasks[1].own_factor, 10, "lcm(6, 20) / 6");
    assert_eq!(gc(&report), [40, 60, 30]);
    assert_eq!(report.tasks[1].change_after_firings, 20);
}

#[test]
fn rule_3_takes_the_least_common_multiple_not_the_largest_factor() {
    let rates = [("T1 T2", 2, 2), ("T2 T3", 3, 2)];
    let report = analyzed(&chain(&rates, ["multiple_of = 6", "multiple_of = 20", ""])).unwrap();
    let own: Vec<u64> = report.tasks.iter().map(|task| task.own_factor).collect();
    assert_eq!(own, [3, 10, 1]);
    assert_eq!(report.clusters[0].factor, 30);
    assert_eq!(gc(&report), [120, 180, 90]);
    assert_eq!(
        (120 % 6, 180 % 20),
        (0, 0),
        "with 10, the first would stop at 40, inside an image of 6"
    );
}

#[test]
fn the_four_cases_differ() {
    let rates = [("T1 T2", 2, 2), ("T2 T3", 3, 2)];
    let data = analyzed(&chain(&rates, ["case = \"data\""; 3])).unwrap();
    assert_eq!((gc(&data), data.tasks[1].change_after_firings), (vec![1, 1, 1], 1));
    let configuration = analyzed(&chain(&rates, [""; 3])).unwrap();
    assert_eq!(
        (gc(&configuration), configuration.tasks[1].change_after_firings),
        (vec![4, 6, 3], 2)
    );
    let constrained =
        analyzed(&chain(&rates, ["", "multiple_of = 20", "case = \"data\""])).unwrap();
    assert_eq!(gc(&constrained), [40, 60, 1]);
    let independent: Graph = "[[task]]\nname = \"alone\"\noutput = 7\n".parse().unwrap();
    let independent = analyzed(&independent).unwrap();
    assert_eq!((gc(&independent), independent.tasks[0].change_after_firings), (vec![1], 1));
}

#[test]
fn each_output_has_its_own_granularity_and_constraint() {
    let text = "[[task]]\nname = \"a\"\n[[task]]\nname = \"b\"\n[[task]]\nname = \"c\"\n\
        [[edge]]\nfrom = \"a\"\nto = \"b\"\nwrite = 2\nread = 1\nmultiple_of = 3\n\
        [[edge]]\nfrom = \"a\"\nto = \"c\"\nwrite = 5\nread = 1\n";
    let report = analyzed(&text.parse().unwrap()).unwrap();
    assert_eq!(report.tasks[0].own_factor, 3, "2 rows a firing, in threes");
    assert_eq!(gc(&report), [6, 15, 6, 15]);
}

#[test]
fn clusters_do_not_know_each_other() {
    let graph = graph(4, &[(0, 1, 1, 2, 0), (2, 3, 5, 3, 0)]);
    let report = analyzed(&graph).unwrap();
    assert_eq!(firings(&report), [2, 1, 3, 5]);
    assert_eq!(report.clusters.iter().map(|cluster| cluster.tasks).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn the_edge_that_contradicts_those_before_it_is_named() {
    let graph = graph(3, &[(0, 1, 2, 1, 0), (1, 2, 1, 1, 0), (0, 2, 1, 1, 0)]);
    let refusal = analyzed(&graph).unwrap_err();
    assert_eq!(refusal.verdict(), Verdict::No);
    let Refusal::Inconsistent(found) = &refusal else { panic!("{refusal}") };
    assert_eq!((found.edge.as_str(), found.from_firings, found.to_firings), ("e2", 1, 2));
    let text = refusal.to_string();
    assert!(
        text.contains("they imply 1 firings of t0 for 2 of t2, but write 1 and read 1"),
        "{text}"
    );
}

#[test]
fn a_self_loop_needs_as_many_tokens_as_it_reads() {
    assert!(matches!(analyzed(&graph(1, &[(0, 0, 2, 1, 5)])), Err(Refusal::Inconsistent(_))));
    assert!(matches!(analyzed(&graph(1, &[(0, 0, 2, 2, 1)])), Err(Refusal::Deadlock { .. })));
    let report = analyzed(&graph(1, &[(0, 0, 2, 2, 3)])).unwrap();
    assert_eq!((report.edges[0].least, report.edges[0].peak), (3, Some(3)));
}

#[test]
fn a_ring_without_enough_initial_tokens_is_named_task_by_task() {
    let ring = |tokens| graph(3, &[(0, 1, 1, 1, 0), (1, 2, 2, 3, 0), (2, 1, 3, 2, tokens)]);
    let refusal = analyzed(&ring(1)).unwrap_err();
    let Refusal::Deadlock { waits } = &refusal else { panic!("{refusal}") };
    let tasks: Vec<&str> = waits.iter().map(|wait| wait.task.as_str()).collect();
    assert_eq!(tasks, ["t1", "t2"]);
    assert_eq!(waits[0].on, On::Tokens { reads: 2, holds: 1 });
    assert!(refusal.to_string().contains("t1 reads 2 from e2, which holds 1"), "{refusal}");
    assert_eq!(refusal.verdict(), Verdict::No);
    // 3 tokens: t1 fires, one is left, t2 has 2 and wants 3. 4 are enough.
    assert!(analyzed(&ring(3)).is_err());
    assert_eq!(firings(&analyzed(&ring(4)).unwrap()), [3, 3, 2]);
}

#[test]
fn a_task_that_only_suffers_from_a_deadlock_is_no_part_of_the_ring() {
    // t0 is in one piece with t1 and t2, which block each other, and waits for them.
    let graph = graph(3, &[(1, 2, 1, 1, 0), (2, 1, 1, 1, 0), (2, 0, 1, 1, 0), (0, 1, 1, 1, 1)]);
    let Refusal::Deadlock { waits } = analyzed(&graph).unwrap_err() else { panic!() };
    let mut tasks: Vec<&str> = waits.iter().map(|wait| wait.task.as_str()).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, ["t1", "t2"]);
}

#[test]
fn a_schedule_too_long_to_list_is_not_cut_off() {
    let ring = [(0, 1, 1, 1, 0), (1, 0, 1, 1, 1), (1, 2, 1, 1009, 0), (2, 1, 1009, 1, 1009)];
    let report = analyzed(&graph(3, &ring)).unwrap();
    assert_eq!(
        (&report.schedule.phases[0].runs, report.edges[0].peak),
        (&None, Some(1)),
        "2019 runs"
    );
}

#[test]
fn a_memory_below_the_least_is_refused_by_name_and_the_least_is_taken() {
    let with = |memory| bounded(2, &[(0, 1, 2, 3, 0, Some(memory))]);
    let refusal = analyzed(&with(3)).unwrap_err();
    let expected = Refusal::MemoryTooSmall { edge: "e0".to_owned(), memory: 3, needed: 4 };
    assert_eq!((&refusal, refusal.verdict()), (&expected, Verdict::No));
    let report = analyzed(&with(4)).unwrap();
    assert_eq!(report.edges[0].peak, Some(4), "the schedule keeps to the memory");
    assert_eq!(report.schedule.text(&with(4), 20), "2 t0, t1, t0, t1");
}

#[test]
fn memories_that_do_one_by_one_may_block_together() {
    // t0 -> t1 -> t2 with a bypass t0 -> t2: the bypass must hold what is under way on the other
    // path.
    let with = |bypass| {
        bounded(3, &[(0, 1, 1, 4, 0, None), (1, 2, 4, 1, 0, None), (0, 2, 1, 1, 0, Some(bypass))])
    };
    let refusal = analyzed(&with(3)).unwrap_err();
    let Refusal::Deadlock { waits } = &refusal else { panic!("{refusal}") };
    assert!(
        waits.iter().any(|wait| wait.edge == "e2" && matches!(wait.on, On::Room { memory: 3, .. }))
    );
    assert!(refusal.to_string().contains("a larger memory"), "{refusal}");
    assert!(analyzed(&with(4)).is_ok());
    // Without a bound the size is found, and proven irreducible; 1 would be the least of the edge
    // alone.
    let size = analyzed(&bounded(
        3,
        &[(0, 1, 1, 4, 0, None), (1, 2, 4, 1, 0, None), (0, 2, 1, 1, 0, None)],
    ));
    let report = size.unwrap();
    let sizes: Vec<_> =
        report.edges.iter().map(|edge| edge.size.map(|size| (size.tokens, size.proof))).collect();
    assert_eq!(
        sizes,
        [Some((4, Proof::Least)), Some((4, Proof::Least)), Some((4, Proof::Irreducible))]
    );
    assert!(!report.is_least());
}

#[test]
fn what_every_schedule_needs_may_be_less_than_any_schedule_does_with() {
    // t0 must write to both before t1 reads: with one token there, e0 must have room for a second.
    let edges = [(0, 1, 1, 1, 1), (0, 1, 1, 1, 0)];
    let report = analyzed(&graph(2, &edges)).unwrap();
    let size = |tokens, proof| Some(Size { tokens, proof });
    let found: Vec<_> = report.edges.iter().map(|edge| (edge.least, edge.size)).collect();
    assert_eq!(found, [(1, size(2, Proof::Irreducible)), (1, size(1, Proof::Least))]);
    assert!(!report.is_least(), "the 1 of e0 is a lower bound");
    assert_eq!(fire(&[1, 1], &edges, &[Some(1), None]), None);
    assert_eq!(fire(&[1, 1], &edges, &[Some(2), Some(1)]), Some(vec![2, 1]));
}

#[test]
fn a_chain_of_ten_2_3_fires_19683_times_and_a_lower_bound_refuses_it() {
    let chain: Vec<_> = (0..9).map(|n| (n, n + 1, 2, 3, 0)).collect();
    let graph = graph(10, &chain);
    let report = analyzed(&graph).unwrap();
    assert_eq!((firings(&report)[0], firings(&report)[9]), (19_683, 512));
    assert!(report.is_least() && report.edges.iter().all(|edge| edge.least == 4));
    let limits = Limits { firings: 10_000, ..Limits::default() };
    let refusal = analyze(&graph, &limits).unwrap_err();
    assert_eq!(refusal, Refusal::TooManyFirings { task: "t0".to_owned(), bound: 10_000 });
    assert_eq!(refusal.verdict(), Verdict::Unknown);
}

#[test]
fn initial_tokens_stay_on_their_edge_from_iteration_to_iteration() {
    let report = analyzed(&graph(2, &[(0, 1, 1, 1, 5)])).unwrap();
    let edge = &report.edges[0];
    assert_eq!((edge.initial, edge.least, edge.tokens, edge.peak), (5, 5, 1, Some(6)));
}

#[test]
fn drawings_have_every_name_escaped_and_the_edges_at_fault_in_red() {
    let text = "[[task]]\nname = \"a<\\\"&\\\\\"\n[[task]]\nname = \"b\"\n\
        [[edge]]\nfrom = \"a<\\\"&\\\\\"\nto = \"b\"\nwrite = 2\nread = 3\n";
    let graph: Graph = text.parse().unwrap();
    let result = analyzed(&graph);
    let (dots, picture) = (dot(&graph, &result), svg(&graph, &result));
    assert!(dots.contains(r#"t0 [label="a<\"&\\\nq 3 · K 1\nGc 6"];"#), "{dots}");
    assert!(dots.contains(r#"t0 -> t1 [label="2 : 3, size 4"];"#), "{dots}");
    assert!(
        picture.contains("a&lt;&quot;&amp;\\</text>") && picture.contains("2 : 3, size 4"),
        "{picture}"
    );
    assert!(!picture.contains("stroke=\"red\""));
    let broken =
        crate::graph(2, &[(0, 1, 2, 3, 0), (0, 1, 1, 1, 0), (1, 0, 2, 2, 0), (1, 1, 1, 1, 1)]);
    let result = analyzed(&broken);
    assert_eq!(svg(&broken, &result).matches("stroke=\"red\"").count(), 1);
    assert_eq!(dot(&broken, &result).matches("color=red, ").count(), 1);
}
