// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the measured task runs: the kinds of ASMP-Linux section 6.1, by names that say it. The
//! paper's names are read too.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// SCHED_OTHER, anywhere.
    #[serde(rename = "normal", alias = "N")]
    N,
    /// SCHED_FIFO on the CPU that takes all device interrupts.
    #[serde(rename = "fifo-irq", alias = "Rw")]
    Rw,
    /// SCHED_FIFO on a CPU that takes none.
    #[serde(rename = "fifo", alias = "Rb")]
    Rb,
    /// In a partition, tick kept.
    #[serde(rename = "partition-tick", alias = "Aon")]
    Aon,
    /// In a partition, tick off.
    #[serde(rename = "partition", alias = "Aoff")]
    Aoff,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::N, Self::Rw, Self::Rb, Self::Aon, Self::Aoff];

    pub const fn word(self) -> &'static str {
        match self {
            Self::N => "normal",
            Self::Rw => "fifo-irq",
            Self::Rb => "fifo",
            Self::Aon => "partition-tick",
            Self::Aoff => "partition",
        }
    }

    const fn of_paper(self) -> &'static str {
        match self {
            Self::N => "N",
            Self::Rw => "Rw",
            Self::Rb => "Rb",
            Self::Aon => "Aon",
            Self::Aoff => "Aoff",
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
                "invalid kind {text:?}: expected normal, fifo-irq, fifo, partition-tick or \
                 partition"
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
