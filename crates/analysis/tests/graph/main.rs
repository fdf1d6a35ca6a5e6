// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data flow against published figures, independent solvers, and arbitrary input.

mod oracle;
mod random;
mod vectors;
mod work;

use asmp_analysis::graph::{Case, Edge, Graph, Limits, Refusal, Report, Task, analyze};

/// Tasks `t0`, `t1`, ... of case configuration; edges as (from, to, write, read, initial).
fn graph(tasks: usize, edges: &[(usize, usize, u64, u64, u64)]) -> Graph {
    bounded(
        tasks,
        &edges.iter().map(|&(from, to, a, b, d)| (from, to, a, b, d, None)).collect::<Vec<_>>(),
    )
}

type Given = (usize, usize, u64, u64, u64, Option<u64>);

/// The same with a memory for each edge.
fn bounded(tasks: usize, edges: &[Given]) -> Graph {
    let task = |n| Task {
        name: format!("t{n}"),
        case: Case::Configuration,
        output: None,
        multiple_of: None,
    };
    let edge = |(n, &(from, to, write, read, initial, memory)): (usize, &Given)| Edge {
        name: format!("e{n}"),
        from,
        to,
        write,
        read,
        initial,
        memory,
        multiple_of: None,
    };
    Graph::new((0..tasks).map(task).collect(), edges.iter().enumerate().map(edge).collect())
        .unwrap()
}

fn analyzed(graph: &Graph) -> Result<Report, Refusal> {
    analyze(graph, &Limits::default())
}

fn firings(report: &Report) -> Vec<u64> {
    report.tasks.iter().map(|task| task.firings).collect()
}

/// xorshift64*: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }
}
