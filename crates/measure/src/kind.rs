// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the measured task runs: the kinds of ASMP-Linux section 6.1, by names that say it. The
//! paper's names are read too.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Policy and place of a measured task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// SCHED_OTHER, anywhere.
    #[serde(alias = "N")]
    Normal,
    /// SCHED_FIFO on the CPU that takes all device interrupts.
    #[serde(alias = "Rw")]
    FifoIrq,
    /// SCHED_FIFO on a CPU that takes none.
    #[serde(alias = "Rb")]
    Fifo,
    /// In a partition, tick kept.
    #[serde(alias = "Aon")]
    PartitionTick,
    /// In a partition, tick off.
    #[serde(alias = "Aoff")]
    Partition,
    /// In a partition whose CPU other tasks share in user mode (ARTiS).
    Shared,
    /// The same without that guarantee: they are in the kernel there, too.
    BestEffort,
}

impl Kind {
    /// In the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Normal,
        Self::FifoIrq,
        Self::Fifo,
        Self::PartitionTick,
        Self::Partition,
        Self::BestEffort,
        Self::Shared,
    ];

    /// As the command line and `run.json` have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::FifoIrq => "fifo-irq",
            Self::Fifo => "fifo",
            Self::PartitionTick => "partition-tick",
            Self::Partition => "partition",
            Self::Shared => "shared",
            Self::BestEffort => "best-effort",
        }
    }

    /// ASMP-Linux has no shared CPUs.
    const fn of_paper(self) -> &'static str {
        match self {
            Self::Normal => "N",
            Self::FifoIrq => "Rw",
            Self::Fifo => "Rb",
            Self::PartitionTick => "Aon",
            Self::Partition => "Aoff",
            Self::Shared | Self::BestEffort => self.word(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is = |kind: &Self| {
            [kind.word(), kind.of_paper()].iter().any(|name| name.eq_ignore_ascii_case(text))
        };
        Self::ALL.into_iter().find(is).ok_or_else(|| {
            format!(
                "invalid kind {text:?}: expected normal, fifo-irq, fifo, partition-tick, \
                 partition, shared or best-effort"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_by_its_word_and_by_the_papers_name() {
        for (word, paper) in [
            ("normal", "N"),
            ("fifo-irq", "Rw"),
            ("fifo", "Rb"),
            ("partition-tick", "Aon"),
            ("partition", "Aoff"),
            ("shared", "shared"),
            ("best-effort", "best-effort"),
        ] {
            let kind: Kind = word.parse().unwrap();
            assert_eq!(kind.to_string(), word);
            assert_eq!(serde_json::to_value(kind).unwrap(), word);
            for text in [paper.to_owned(), paper.to_lowercase(), word.to_uppercase()] {
                assert_eq!(text.parse(), Ok(kind), "{text}");
            }
            for text in [word, paper] {
                assert_eq!(serde_json::from_value::<Kind>(text.into()).unwrap(), kind, "{text}");
            }
        }
        let refused = "Q".parse::<Kind>().unwrap_err();
        assert!(refused.contains("\"Q\"") && refused.contains("partition-tick"), "{refused}");
    }
}
