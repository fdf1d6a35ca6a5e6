//! Which periodic sets the np-EDF executive takes.
//!
//! Jeffay, Stanat, Martel (RTSS 1991), periods sorted, deadline = period, integer time (here ns):
//! (1) `sum C_i / p_i <= 1`; (2) for each `i >= 2` and each `t` with `p_1 < t < p_i`:
//! `t >= C_i + sum_{j<i} floor((t - 1) / p_j) C_j`. Exact for sporadic tasks and for any first start; sufficient
//! for the offsets given. Yartek's paper prints ceilings in (2): a misprint, its own Example 1 fails them.

/// What a task asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub period_ns: u64,
    /// Longest run of one activation.
    pub budget_ns: u64,
}

/// Why a set is not taken. Tasks are numbered as given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("task {task} has no period: give it one above 0 ns")]
    NoPeriod { task: usize },
    #[error("the tasks ask for {permille} thousandths of the CPU: lengthen periods or shorten budgets")]
    Overload { permille: u64 },
    #[error(
        "task {task} may hold the CPU for {budget_ns} ns and others then need {demand_ns} ns within {window_ns} ns: split it or lengthen the shorter periods"
    )]
    Blocks { task: usize, budget_ns: u64, demand_ns: u128, window_ns: u64 },
    #[error(
        "the periods lie too far apart to be checked exactly, and task {task} exceeds its safe budget: make its {budget_ns} ns at most {safe_ns}"
    )]
    Unproved { task: usize, budget_ns: u64, safe_ns: u64 },
}

/// Additions after which the exact test gives up and Proposition 1 of Yartek decides.
const WORK: u64 = 20_000_000;

/// Takes a set or says why not. Allocates, takes up to about 0.1 s: for set-up. `crate analysis` will do this.
///
/// The utilisation is summed to 2^-64 of the CPU for each task, rounded down: what slips through overloads
/// by less than a nanosecond in 584 years over the number of tasks.
pub fn admit(set: &[Demand]) -> Result<(), Refusal> {
    if let Some(task) = set.iter().position(|demand| demand.period_ns == 0) {
        return Err(Refusal::NoPeriod { task });
    }
    let share = |demand: &Demand| (u128::from(demand.budget_ns) << 64) / u128::from(demand.period_ns);
    let utilisation = set.iter().map(share).fold(0, u128::saturating_add);
    if utilisation > 1 << 64 {
        return Err(Refusal::Overload {
            permille: u64::try_from(((utilisation >> 32) * 1000) >> 32).unwrap_or(u64::MAX),
        });
    }
    let mut order: Vec<usize> = (0..set.len()).collect();
    order.sort_by_key(|&task| set[task].period_ns);
    let sorted: Vec<Demand> = order.iter().map(|&task| set[task]).collect();
    let verdict = if work(&sorted) <= u128::from(WORK) { exact(&sorted) } else { budgets(&sorted) };
    verdict.map_err(|refusal| match refusal {
        Refusal::Blocks { task, budget_ns, demand_ns, window_ns } => {
            Refusal::Blocks { task: order[task], budget_ns, demand_ns, window_ns }
        }
        Refusal::Unproved { task, budget_ns, safe_ns } => {
            Refusal::Unproved { task: order[task], budget_ns, safe_ns }
        }
        other => other,
    })
}

/// Additions that [`exact`] takes.
fn work(sorted: &[Demand]) -> u128 {
    let points = |i: usize| -> u128 {
        sorted[..i].iter().map(|shorter| u128::from(sorted[i].period_ns / shorter.period_ns)).sum()
    };
    (1..sorted.len()).map(|i| points(i) * i as u128).sum()
}

/// Condition (2). Only `t = k p_j + 1` need be looked at: elsewhere the right side stands still.
fn exact(sorted: &[Demand]) -> Result<(), Refusal> {
    for (i, long) in sorted.iter().enumerate().skip(1) {
        let shorter = &sorted[..i];
        for step in shorter {
            for before in (1..).map_while(|k: u64| k.checked_mul(step.period_ns)) {
                // `before` is t - 1.
                if before >= long.period_ns - 1 {
                    break;
                }
                let others =
                    shorter.iter().map(|j| u128::from(before / j.period_ns) * u128::from(j.budget_ns));
                let demand_ns = u128::from(long.budget_ns) + others.sum::<u128>();
                if u128::from(before) + 1 < demand_ns {
                    return Err(Refusal::Blocks {
                        task: i,
                        budget_ns: long.budget_ns,
                        demand_ns,
                        window_ns: before + 1,
                    });
                }
            }
        }
    }
    Ok(())
}

/// Yartek, Proposition 1: `C_i <= B_i = p_1 (1 - sum_{j<i} C_j / p_j)`, with `<=` as its Example 1 needs it and
/// without the `+ 1` of its proof, which is not safe by itself. `B_i` in whole ns, rounded down.
fn budgets(sorted: &[Demand]) -> Result<(), Refusal> {
    let bounds = safe_budgets(sorted);
    for (task, (demand, safe_ns)) in sorted.iter().zip(bounds).enumerate() {
        if demand.budget_ns > safe_ns {
            return Err(Refusal::Unproved { task, budget_ns: demand.budget_ns, safe_ns });
        }
    }
    Ok(())
}

/// `B_i` of each task of a set sorted by period.
fn safe_budgets(sorted: &[Demand]) -> Vec<u64> {
    let Some(first) = sorted.first() else { return Vec::new() };
    let mut used: u128 = 0;
    let bound = |demand: &Demand| {
        let left = (1u128 << 64).saturating_sub(used);
        // Each share is rounded up, so that the bound errs downwards.
        used += (u128::from(demand.budget_ns) << 64).div_ceil(u128::from(demand.period_ns));
        // p_1 times what is left, both below 2^64 but for an empty CPU.
        u64::try_from(((left >> 1) * u128::from(first.period_ns)) >> 63).unwrap_or(u64::MAX)
    };
    sorted.iter().map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tasks: &[(u64, u64)]) -> Vec<Demand> {
        tasks.iter().map(|&(period_ns, budget_ns)| Demand { period_ns, budget_ns }).collect()
    }

    const EXAMPLE_1: [(u64, u64); 3] = [(4000, 1500), (6000, 1500), (7000, 1500)];
    const MS: u64 = 1_000_000;

    fn robot() -> Vec<Demand> {
        let mut tasks = vec![(500 * MS, 20 * MS); 6];
        tasks.extend([
            (500 * MS, 100 * MS),
            (1200 * MS, 20 * MS),
            (1200 * MS, 20 * MS),
            (2000 * MS, 20 * MS),
        ]);
        set(&tasks)
    }

    #[test]
    fn the_papers_example_is_taken() {
        assert_eq!(admit(&set(&EXAMPLE_1)), Ok(()));
        assert_eq!(safe_budgets(&set(&EXAMPLE_1)), [4000, 2500, 1500]);
    }

    #[test]
    fn the_robot_is_taken_and_its_budgets_are_those_printed() {
        assert_eq!(admit(&robot()), Ok(()));
        let printed = [500.0, 480.0, 460.0, 440.0, 420.0, 400.0, 380.0, 280.0, 271.67, 263.33];
        for (bound_ns, printed_ms) in safe_budgets(&robot()).iter().zip(printed) {
            assert!((*bound_ns as f64 / MS as f64 - printed_ms).abs() < 0.005, "{bound_ns} {printed_ms}");
        }
    }

    #[test]
    fn a_set_without_room_for_its_longest_job_is_refused_with_the_window() {
        // The paper's bound p_1 (1 - U) + 1 would take this one; it misses.
        let refusal = admit(&set(&[(2, 2), (13, 1)])).unwrap_err();
        assert!(matches!(refusal, Refusal::Overload { permille: 1076 }), "{refusal}");
        let refusal = admit(&set(&[(13, 5), (4, 2)])).unwrap_err();
        assert_eq!(refusal, Refusal::Blocks { task: 0, budget_ns: 5, demand_ns: 7, window_ns: 5 });
    }

    #[test]
    fn a_full_cpu_is_taken_and_a_fuller_one_refused() {
        assert_eq!(admit(&set(&[(3, 1), (3, 2)])), Ok(()));
        assert_eq!(admit(&set(&[(10, 10)])), Ok(()));
        assert!(matches!(admit(&set(&[(10, 10), (1_000_000, 1)])), Err(Refusal::Overload { .. })));
        assert!(matches!(admit(&set(&[(1, u64::MAX); 3])), Err(Refusal::Overload { .. })));
    }

    #[test]
    fn a_task_without_a_period_is_refused() {
        assert_eq!(admit(&set(&[(5, 1), (0, 0)])), Err(Refusal::NoPeriod { task: 1 }));
        assert_eq!(admit(&[]), Ok(()));
    }

    #[test]
    fn far_periods_are_decided_by_the_safe_budgets() {
        // 100 us beside one hour: 36 million points.
        let hour = 3_600_000_000_000;
        assert_eq!(admit(&set(&[(hour, 50_000), (100_000, 50_000)])), Ok(()));
        let refusal = admit(&set(&[(hour, 50_001), (100_000, 50_000)]));
        assert_eq!(refusal, Err(Refusal::Unproved { task: 0, budget_ns: 50_001, safe_ns: 50_000 }));
    }
}
