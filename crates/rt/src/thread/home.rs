//! Where a process was before it entered a partition, recorded where `asmp` looks for it: among the partition's tasks in
//! its state. So `asmp destroy` sends the process home, and knows which of its threads were real-time when they came.
//!
//! Only that list is touched, under the lock of all who change partitions; the rest of the state is handed on as it
//! was read. A record whose process has ended does no harm, and goes when the next process enters.

use crate::thread::refusal::Refusal;
use asmp_host::Kernel;
use asmp_host::store::{Lock, Store};
use asmp_host::task::{self, Placed, TaskId};
use serde_json::Value;
use std::time::Duration;

pub const STATE: &str = "state.json";
/// How long to wait for an `asmp` that is at work.
const PATIENCE: Duration = Duration::from_secs(10);

/// The right to change the state.
pub fn lock(store: &Store) -> Result<Lock, Refusal> {
    store.lock(PATIENCE)?.ok_or(Refusal::Busy { patience: PATIENCE })
}

/// Records a process in a partition, instead of what was recorded of it there. Call with the lock held.
pub fn record(kernel: &dyn Kernel, store: &Store, partition: &str, placed: Placed) -> Result<(), Refusal> {
    let lives = |id: TaskId| task::identify(kernel, id.tid) == Some(id);
    change(store, partition, |tasks| {
        tasks.retain(|known| known.task != placed.task && lives(known.task));
        tasks.push(placed);
    })
}

/// Takes a record away. Call with the lock held.
pub fn forget(store: &Store, partition: &str, process: TaskId) -> Result<(), Refusal> {
    change(store, partition, |tasks| tasks.retain(|known| known.task != process))
}

fn change(store: &Store, partition: &str, edit: impl FnOnce(&mut Vec<Placed>)) -> Result<(), Refusal> {
    let bytes = store.read(STATE)?.unwrap_or_default();
    let bad =
        |error: serde_json::Error| Refusal::BadState { path: store.path(STATE), reason: error.to_string() };
    let state = serde_json::from_slice(&bytes).map_err(bad)?;
    let after = edited(state, partition, edit).map_err(bad)?;
    Ok(store.replace(STATE, after.to_string().as_bytes())?)
}

/// The state with other tasks in one partition. Pure.
fn edited(
    mut state: Value,
    partition: &str,
    edit: impl FnOnce(&mut Vec<Placed>),
) -> serde_json::Result<Value> {
    let partitions = state["partitions"].as_array_mut();
    if let Some(found) = partitions.into_iter().flatten().find(|found| found["name"] == partition) {
        let mut tasks: Vec<Placed> = serde_json::from_value(found["tasks"].take())?;
        edit(&mut tasks);
        found["tasks"] = serde_json::to_value(tasks)?;
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = r#"{"irq_home":null,"originals":{"/proc/irq/1/smp_affinity_list":{"shape":"list","text":"0-3"}},"partitions":[{"created_s":18446744073709551615,"name":"audio","tasks":[]},{"name":"motion","tasks":[{"alone":true,"command":"old","from":"/","real_time":[],"task":{"start_ticks":1,"tid":5}}]}],"schema":1}"#;

    fn placed(tid: i32) -> Placed {
        let task = TaskId { tid, start_ticks: 4242 };
        Placed {
            task,
            command: "axis".into(),
            alone: false,
            from: "/user.slice".into(),
            real_time: vec![task], policy: None }
    }

    #[test]
    fn a_record_comes_and_goes_and_every_other_byte_stays() {
        let before: Value = serde_json::from_str(STATE).unwrap();
        assert_eq!(before.to_string(), STATE, "the test's own text is as it would be written");
        let with = edited(before.clone(), "motion", |tasks| tasks.push(placed(77))).unwrap();
        let added = r#",{"alone":false,"command":"axis","from":"/user.slice","real_time":[{"start_ticks":4242,"tid":77}],"task":{"start_ticks":4242,"tid":77}}]}],"schema""#;
        assert_eq!(with.to_string(), STATE.replace("]}],\"schema\"", added));
        let again = edited(with, "motion", |tasks| tasks.retain(|known| known.task.tid != 77)).unwrap();
        assert_eq!(again.to_string(), STATE);
    }

    #[test]
    fn tasks_that_this_library_does_not_know_are_an_error() {
        let strange: Value =
            serde_json::from_str(r#"{"partitions":[{"name":"motion","tasks":[{"tid":5}]}]}"#).unwrap();
        assert!(edited(strange, "motion", |_| ()).is_err());
    }
}
