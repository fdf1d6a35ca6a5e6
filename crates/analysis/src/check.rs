//! What every test asks of a set before it starts.

use crate::task::{MAX_NS, Task};
use crate::verdict::Inapplicable;

/// More tasks than this are refused: tests are quadratic at worst, and indices fit 32 bits.
pub const MAX_TASKS: usize = 1_000_000;

/// Refuses empty sets, zeros and times beyond [`MAX_NS`]. Allocates only the name in a refusal.
pub fn check(tasks: &[Task]) -> Result<(), Inapplicable> {
    if tasks.is_empty() {
        return Err(Inapplicable::NoTasks);
    }
    if tasks.len() > MAX_TASKS {
        return Err(Inapplicable::TooMany { most: MAX_TASKS });
    }
    for task in tasks {
        let must = [(task.cost_ns(), "cost"), (task.period_ns, "period"), (task.deadline_ns, "deadline")];
        if let Some((_, what)) = must.iter().find(|(ns, _)| *ns == 0) {
            return Err(Inapplicable::Zero { task: task.name.clone(), what });
        }
        let may = [
            (task.jitter_ns, "jitter"),
            (task.blocking_ns, "blocking"),
            (task.offset_ns.unwrap_or(0), "offset"),
        ];
        if let Some((_, what)) = must.iter().chain(&may).find(|(ns, _)| *ns > MAX_NS) {
            return Err(Inapplicable::TooLong { task: task.name.clone(), what });
        }
    }
    Ok(())
}
