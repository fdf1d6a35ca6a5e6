// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The step of the plan that a run of `ab` is about.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `tick`, or the setting of the partition.
    pub name: String,
    /// It was done; else the partition did without.
    pub with: bool,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let word = if self.with { "with" } else { "without" };
        write!(f, "{}-{word}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Provenance;
    use crate::run::tests::provenance;

    #[test]
    fn a_step_is_in_the_record_and_a_run_without_one_is_read() {
        let step = Some(Step { name: "irqs".into(), with: false });
        let of_ab = Provenance { step, ..provenance() };
        let text = serde_json::to_string(&of_ab).unwrap();
        assert!(text.contains("\"step\":{\"name\":\"irqs\",\"with\":false}"), "{text}");
        assert_eq!(serde_json::from_str::<Provenance>(&text).unwrap(), of_ab);
        assert_eq!(of_ab.step.unwrap().to_string(), "irqs-without");
        let text = serde_json::to_string(&provenance()).unwrap();
        assert!(!text.contains("step"), "{text}");
        assert_eq!(serde_json::from_str::<Provenance>(&text).unwrap(), provenance());
    }
}
