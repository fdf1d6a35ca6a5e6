// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may use the CPUs of a partition: its own tasks alone, or others too while these cannot delay
//! its real-time tasks (ARTiS: Marquet, Piel, Soula, Dekeyser 2004).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Who may use the CPUs of a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Its own tasks alone.
    #[default]
    Isolated,
    /// Other tasks too, but only in user mode: there real-time tasks preempt them at once.
    Shared,
    /// Other tasks too, without a guarantee: what they do in the kernel delays real-time tasks.
    BestEffort,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Isolated, Self::Shared, Self::BestEffort];

    pub fn is_isolated(&self) -> bool {
        *self == Self::Isolated
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Isolated => "isolated",
            Self::Shared => "shared",
            Self::BestEffort => "best-effort",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("invalid mode {text:?}: use isolated, shared or best-effort"))
    }
}
