//! Worst response times under EDF and non-preemptive EDF.
//!
//! Spuri, "Analysis of deadline scheduled real-time systems", INRIA RR-2772, 1996; non-preemptive: George, Rivierre, Spuri,
//! INRIA RR-2966, 1996. The worst job of task i arrives at some a after everything else was released together, where a lies
//! where some deadline coincides with its own: `a = k T_j + D_j - D_i`, or `a = k T_i`. For each a within the longest busy
//! period: preemptive, the least `w = (floor(a / T_i) + 1) C_i + sum over D_j <= a + D_i of
//! min(ceil(w / T_j), floor((a + D_i - D_j) / T_j) + 1) C_j`, `R(a) = max(C_i, w - a)`; non-preemptive, the start
//! `w = max over D_j > a + D_i of (C_j - 1) + floor(a / T_i) C_i + sum of min(floor(w / T_j) + 1, …) C_j`,
//! `R(a) = C_i + max(0, w - a)`. Without jitter and sections. For people: the verdict comes from the demand, which is quicker.

use crate::check::check;
use crate::task::{MAX_NS, Task};
use crate::verdict::{Doubt, Effort, Inapplicable, Meter, Stop};

/// Arrivals that are looked at for one task; 8 bytes each.
const MOST_ARRIVALS: usize = 1 << 20;

/// From the arrival, in the order of the set. O(candidates n) steps of an iteration a task.
/// Errors: jitter, blocking; utilisation of 1 or more with a busy period that does not end; effort.
pub fn responses(tasks: &[Task], non_preemptive: bool, effort: &Effort) -> Result<Vec<u64>, Stop> {
    check(tasks)?;
    for task in tasks {
        let task_name = || task.name.clone();
        if task.jitter_ns > 0 {
            return Err(Inapplicable::Knows { task: task_name(), what: "jitter" }.into());
        }
        if task.blocking_ns > 0 {
            return Err(Inapplicable::Knows { task: task_name(), what: "blocking" }.into());
        }
    }
    let mut meter = Meter::new(effort);
    let held_ns =
        if non_preemptive { tasks.iter().map(|task| task.cost_ns() - 1).max().unwrap_or(0) } else { 0 };
    let busy_ns = busy_period(tasks, held_ns, &mut meter)?;
    let each = |index| response(tasks, index, non_preemptive, busy_ns, &mut meter).map_err(Stop::from);
    (0..tasks.len()).map(each).collect()
}

fn busy_period(tasks: &[Task], held_ns: u64, meter: &mut Meter) -> Result<u64, Doubt> {
    let mut end: u64 = 1;
    loop {
        meter.spend(tasks.len(), "busy period")?;
        let mut work = held_ns;
        for task in tasks {
            work = work.saturating_add(end.div_ceil(task.period_ns).saturating_mul(task.cost_ns()));
        }
        if work <= end {
            return Ok(end);
        }
        if work > 4 * MAX_NS {
            return Err(Doubt::Overflow { what: "the longest busy period" });
        }
        end = work;
    }
}

fn response(
    tasks: &[Task],
    index: usize,
    non_preemptive: bool,
    busy_ns: u64,
    meter: &mut Meter,
) -> Result<u64, Doubt> {
    let own = &tasks[index];
    let mut arrivals = Vec::new();
    for task in tasks {
        // k T_j + D_j - D_i for every k that gives 0 <= a < busy_ns.
        let mut at = i128::from(task.deadline_ns) - i128::from(own.deadline_ns);
        if at < 0 {
            at += (-at + i128::from(task.period_ns) - 1) / i128::from(task.period_ns)
                * i128::from(task.period_ns);
        }
        while at < i128::from(busy_ns) {
            meter.spend(1, "response times")?;
            if arrivals.len() == MOST_ARRIVALS {
                return Err(Doubt::Steps {
                    steps: MOST_ARRIVALS as u64,
                    what: "arrivals in the longest busy period",
                });
            }
            arrivals.push(at as u64);
            at += i128::from(task.period_ns);
        }
    }
    arrivals.sort_unstable();
    arrivals.dedup();
    let mut worst_ns = own.cost_ns();
    for arrival_ns in arrivals {
        worst_ns = worst_ns.max(of_arrival(tasks, index, arrival_ns, non_preemptive, meter)?);
    }
    Ok(worst_ns)
}

fn of_arrival(
    tasks: &[Task],
    index: usize,
    arrival_ns: u64,
    non_preemptive: bool,
    meter: &mut Meter,
) -> Result<u64, Doubt> {
    let own = &tasks[index];
    let due_ns = arrival_ns + own.deadline_ns;
    let own_jobs = arrival_ns / own.period_ns + u64::from(!non_preemptive);
    let mut base_ns = own_jobs.saturating_mul(own.cost_ns());
    if non_preemptive {
        let later = tasks.iter().filter(|task| task.deadline_ns > due_ns);
        base_ns = base_ns.saturating_add(later.map(|task| task.cost_ns() - 1).max().unwrap_or(0));
    }
    let mut at_ns = base_ns;
    loop {
        meter.spend(tasks.len(), "response times")?;
        let mut next_ns = base_ns;
        for (other, task) in tasks.iter().enumerate() {
            if other == index || task.deadline_ns > due_ns {
                continue;
            }
            let urgent = (due_ns - task.deadline_ns) / task.period_ns + 1;
            let so_far =
                if non_preemptive { at_ns / task.period_ns + 1 } else { at_ns.div_ceil(task.period_ns) };
            next_ns = next_ns.saturating_add(urgent.min(so_far).saturating_mul(task.cost_ns()));
        }
        if next_ns <= at_ns {
            break;
        }
        at_ns = next_ns;
    }
    let wait_ns = at_ns.saturating_sub(arrival_ns);
    Ok(if non_preemptive { wait_ns.saturating_add(own.cost_ns()) } else { wait_ns.max(own.cost_ns()) })
}
