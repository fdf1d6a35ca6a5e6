// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every test asks of a set before it starts.

use crate::task::{MAX_TICKS, Task};
use crate::verdict::Inapplicable;

/// More tasks than this are refused: tests are quadratic at worst, and indices fit 32 bits.
pub const MAX_TASKS: usize = 1_000_000;

/// Refuses empty sets, zeros and times beyond [`MAX_TICKS`]. Allocates only the name in a refusal.
pub(crate) fn check(tasks: &[Task]) -> Result<(), Inapplicable> {
    if tasks.is_empty() {
        return Err(Inapplicable::NoTasks);
    }
    if tasks.len() > MAX_TASKS {
        return Err(Inapplicable::TooMany { most: MAX_TASKS });
    }
    for task in tasks {
        let must = [
            (task.cost_ticks(), "cost"),
            (task.period_ticks, "period"),
            (task.deadline_ticks, "deadline"),
        ];
        if let Some((_, what)) = must.iter().find(|(ticks, _)| *ticks == 0) {
            return Err(Inapplicable::Zero { task: task.name.clone(), what });
        }
        let may = [
            (task.jitter_ticks, "jitter"),
            (task.blocking_ticks, "blocking"),
            (task.offset_ticks.unwrap_or(0), "offset"),
        ];
        if let Some((_, what)) = must.iter().chain(&may).find(|(ticks, _)| *ticks > MAX_TICKS) {
            return Err(Inapplicable::TooLong { task: task.name.clone(), what });
        }
    }
    Ok(())
}
