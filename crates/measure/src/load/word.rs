// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which load: the papers' ones, and their names.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The papers' loads, by names that say what they do. The papers' names are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Nothing.
    #[serde(alias = "IDL")]
    Idle,
    /// k p processes that compute.
    #[serde(alias = "CPU")]
    Cpu,
    /// k p processes that write without waiting for the disk.
    #[serde(alias = "AIO")]
    AsyncIo,
    /// k p processes that write and wait for the disk.
    #[serde(alias = "SIO")]
    Io,
    /// (k/2) p of each of the three.
    #[serde(alias = "MIX")]
    Mixed,
    /// ARTiS: computing, disk, network and kernel locks, one of each a CPU.
    #[serde(alias = "ARTIS")]
    Artis,
    /// L4RTL section 4.1: mixed, and on each CPU a program that keeps its caches dirty and its TLB
    /// full.
    #[serde(alias = "FLOOD")]
    Cache,
    /// Of an import: its file does not say what else the machine did.
    Unknown,
}

impl Load {
    /// Those that can be made, in the order of tables.
    pub const ALL: [Self; 7] =
        [Self::Idle, Self::Cpu, Self::AsyncIo, Self::Io, Self::Mixed, Self::Artis, Self::Cache];

    /// As the command line and `run.json` have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Cpu => "cpu",
            Self::AsyncIo => "async-io",
            Self::Io => "io",
            Self::Mixed => "mixed",
            Self::Artis => "artis",
            Self::Cache => "cache",
            Self::Unknown => "unknown",
        }
    }

    /// Its processes write files; without a disk below them they wait for none.
    pub const fn writes(self) -> bool {
        match self {
            Self::Idle | Self::Cpu | Self::Unknown => false,
            Self::AsyncIo | Self::Io | Self::Mixed | Self::Artis | Self::Cache => true,
        }
    }

    const fn of_paper(self) -> &'static str {
        match self {
            Self::Idle => "IDL",
            Self::Cpu => "CPU",
            Self::AsyncIo => "AIO",
            Self::Io => "SIO",
            Self::Mixed => "MIX",
            Self::Artis => "ARTIS",
            Self::Cache => "FLOOD",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Load {
    type Err = String;

    /// One that can be made.
    fn from_str(text: &str) -> Result<Self, String> {
        let is = |load: &Self| {
            [load.word(), load.of_paper()].iter().any(|name| name.eq_ignore_ascii_case(text))
        };
        Self::ALL.into_iter().find(is).ok_or_else(|| {
            format!(
                "invalid load {text:?}: expected idle, cpu, async-io, io, mixed, artis or cache"
            )
        })
    }
}
