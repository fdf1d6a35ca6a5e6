// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the analysis says, found another way: elimination over fractions for firings, firing one by
//! one for the rest.

/// A fraction of `i128`, in lowest terms, its lower part above 0.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fraction(i128, i128);

impl Fraction {
    fn new(over: i128, under: i128) -> Self {
        let (mut a, mut b) = (over.abs(), under.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let sign = under.signum();
        Self(sign * over / a.max(1), sign * under / a.max(1))
    }

    fn minus(self, other: Self) -> Self {
        Self::new(self.0 * other.1 - other.0 * self.1, self.1 * other.1)
    }

    fn times(self, other: Self) -> Self {
        Self::new(self.0 * other.0, self.1 * other.1)
    }

    fn by(self, other: Self) -> Self {
        Self::new(self.0 * other.1, self.1 * other.0)
    }
}

pub type Edge = (usize, usize, u64, u64, u64);

/// The smallest positive vector in the null space of the topology matrix of a connected graph;
/// `None`: there is none.
pub fn null_vector(tasks: usize, edges: &[Edge]) -> Option<Vec<u64>> {
    let mut rows: Vec<Vec<Fraction>> = Vec::new();
    for &(from, to, write, read, _) in edges {
        let mut row = vec![0; tasks];
        row[from] += i128::from(write);
        row[to] -= i128::from(read);
        rows.push(row.into_iter().map(|value| Fraction(value, 1)).collect());
    }
    let mut pivots = Vec::new();
    for column in 0..tasks {
        let Some(found) = (pivots.len()..rows.len()).find(|row| rows[*row][column].0 != 0) else {
            continue;
        };
        rows.swap(pivots.len(), found);
        let pivot = rows[pivots.len()].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            if index != pivots.len() && row[column].0 != 0 {
                let factor = row[column].by(pivot[column]);
                for (value, above) in row.iter_mut().zip(&pivot) {
                    *value = value.minus(above.times(factor));
                }
            }
        }
        pivots.push(column);
    }
    if pivots.len() != tasks - 1 {
        return None;
    }
    let free = (0..tasks).find(|column| !pivots.contains(column))?;
    let mut solution = vec![Fraction(1, 1); tasks];
    for (row, &column) in rows.iter().zip(&pivots) {
        solution[column] = Fraction::new(0, 1).minus(row[free].by(row[column]));
    }
    let scale =
        solution.iter().fold(1, |scale: i128, value| scale * Fraction::new(value.1, scale).0);
    let whole: Vec<i128> = solution.iter().map(|value| value.0 * (scale / value.1)).collect();
    let shared = whole.iter().fold(0, |a, b| if a == 0 { *b } else { a / Fraction::new(a, *b).0 });
    whole
        .into_iter()
        .map(|value| u64::try_from(value / shared).ok().filter(|count| *count > 0))
        .collect()
}

/// Fires one enabled task after another, the last first, until each has fired `firings` times;
/// `None` where it gets stuck. The most tokens on each edge.
pub fn fire(firings: &[u64], edges: &[Edge], capacity: &[Option<u64>]) -> Option<Vec<u64>> {
    let mut left = firings.to_vec();
    let mut tokens: Vec<u64> = edges.iter().map(|edge| edge.4).collect();
    let mut peaks = tokens.clone();
    while left.iter().any(|left| *left > 0) {
        let may = |task: &usize| {
            left[*task] > 0
                && edges.iter().zip(&tokens).zip(capacity).all(|((edge, tokens), capacity)| {
                    let &(from, to, write, read, _) = edge;
                    let reads = if to == *task { read } else { 0 };
                    let writes = if from == *task { write } else { 0 };
                    reads <= *tokens
                        && capacity.is_none_or(|capacity| tokens - reads + writes <= capacity)
                })
        };
        let task = (0..left.len()).rev().find(may)?;
        left[task] -= 1;
        for (at, &(from, to, write, read, _)) in edges.iter().enumerate() {
            tokens[at] -= if to == task { read } else { 0 };
            tokens[at] += if from == task { write } else { 0 };
            peaks[at] = peaks[at].max(tokens[at]);
        }
    }
    Some(peaks)
}

#[test]
fn the_oracle_solves_what_is_known() {
    assert_eq!(null_vector(3, &[(0, 1, 1, 2, 0), (1, 2, 3, 2, 0)]), Some(vec![4, 2, 3]));
    assert_eq!(null_vector(2, &[(0, 1, 1, 2, 0), (0, 1, 1, 1, 0)]), None);
    assert_eq!(fire(&[3, 2], &[(0, 1, 2, 3, 0)], &[Some(4)]), Some(vec![4]));
    assert_eq!(fire(&[3, 2], &[(0, 1, 2, 3, 0)], &[Some(3)]), None);
}
