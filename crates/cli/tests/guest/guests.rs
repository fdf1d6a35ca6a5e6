// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guests of the lab, and which of them a test is for.
//!
//! Problem:  one binary holds all tests and runs in every guest. A guest costs minutes, and what a
//!           test checks often depends on the kernel's series, or on systemd, or on neither.
//! Approach: each test declares on how many kernels it runs ([`On`]) and how they are booted
//!           ([`Boot`]). The binary learns from `ASMP_GUEST` in which guest it is and runs what is
//!           meant for that one; the rest is counted as "elsewhere". Nightly runs more: see
//!           [`Tier`].

/// One of Debian's kernels, as `tests/vm/kernels.sh` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 7.x, PREEMPT_RT.
    SidRt,
    /// 7.x without PREEMPT_RT.
    Sid,
    /// Between the two, PREEMPT_RT.
    BackportsRt,
    /// 6.12, PREEMPT_RT.
    TrixieRt,
    /// 6.12 without PREEMPT_RT.
    Trixie,
}

/// Whose machine language a guest speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    Amd64,
    Arm64,
}

/// How a guest is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boot {
    /// The lab's own PID 1, and `nohz_full=1-3 rcu_nocbs=1-3`.
    Bare,
    /// As `Bare`, with systemd as PID 1.
    Systemd,
    /// As `Systemd`, with our services enabled and the partition motion, CPU 3, in /etc/asmp.
    Persistent,
    /// Without any boot parameter of ours.
    Plain,
    /// As `Plain`, with two threads a core.
    Smt,
    /// As `Bare`, without `tsc=reliable`: the kernel watches its clock as on other machines.
    Watched,
    /// As `Bare`, with CPU 3 isolated at boot, and locked down as Secure Boot does it.
    Locked,
    /// As `Bare`, with CPU 3 isolated at boot also from managed interrupts, and without debugfs.
    Blind,
    /// As `Bare`, with 24 CPUs, all but CPU 0 candidates.
    Large,
}

/// The kernels a test runs on, among those that are booted as it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// One guest in all: what `asmp` decides before it asks the kernel for anything.
    One,
    /// The newest and the oldest series; nightly all kernels with PREEMPT_RT.
    OnePerSeries,
    /// As `One`; nightly every kernel with PREEMPT_RT.
    OneThenRt,
    /// One kernel with PREEMPT_RT and one without.
    RtAndNot,
    /// One kernel without PREEMPT_RT; nightly as `RtAndNot`.
    NotThenRt,
    /// Every kernel with PREEMPT_RT.
    Rt,
    /// Every kernel without PREEMPT_RT.
    NotRt,
    /// As `One`; nightly every kernel.
    OneThenAll,
    /// Every kernel.
    All,
}

/// How much is run. The later holds what the earlier does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// `make test`.
    Ci,
    /// `make nightly`: more guests, more kernels for a test, each step killed on all of them.
    Nightly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    pub kernel: Kernel,
    pub architecture: Architecture,
    pub boot: Boot,
}

const fn guest(kernel: Kernel, boot: Boot) -> Guest {
    Guest { kernel, architecture: Architecture::Amd64, boot }
}

const fn arm64(kernel: Kernel, boot: Boot) -> Guest {
    Guest { kernel, architecture: Architecture::Arm64, boot }
}

const NIGHTLY: [Guest; 22] = [
    guest(Kernel::SidRt, Boot::Bare),
    guest(Kernel::TrixieRt, Boot::Bare),
    guest(Kernel::Sid, Boot::Bare),
    guest(Kernel::SidRt, Boot::Systemd),
    guest(Kernel::SidRt, Boot::Plain),
    guest(Kernel::Sid, Boot::Smt),
    arm64(Kernel::SidRt, Boot::Bare),
    guest(Kernel::SidRt, Boot::Persistent),
    guest(Kernel::Trixie, Boot::Persistent),
    // As Debian 13 installs it.
    guest(Kernel::Trixie, Boot::Systemd),
    guest(Kernel::BackportsRt, Boot::Bare),
    guest(Kernel::Trixie, Boot::Bare),
    arm64(Kernel::TrixieRt, Boot::Bare),
    guest(Kernel::SidRt, Boot::Watched),
    guest(Kernel::Sid, Boot::Watched),
    guest(Kernel::BackportsRt, Boot::Watched),
    guest(Kernel::TrixieRt, Boot::Watched),
    guest(Kernel::Trixie, Boot::Watched),
    guest(Kernel::SidRt, Boot::Locked),
    guest(Kernel::TrixieRt, Boot::Locked),
    guest(Kernel::SidRt, Boot::Blind),
    guest(Kernel::SidRt, Boot::Large),
];

impl Tier {
    /// The guests that are booted.
    pub fn guests(self) -> &'static [Guest] {
        match self {
            Self::Ci => &NIGHTLY[..8],
            Self::Nightly => &NIGHTLY,
        }
    }

    /// `ci`, `nightly`.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "ci" => Some(Self::Ci),
            "nightly" => Some(Self::Nightly),
            _ => None,
        }
    }
}

impl Kernel {
    const ALL: [(Self, &str); 5] = [
        (Self::SidRt, "sid-rt"),
        (Self::Sid, "sid"),
        (Self::BackportsRt, "backports-rt"),
        (Self::TrixieRt, "trixie-rt"),
        (Self::Trixie, "trixie"),
    ];

    fn is_rt(self) -> bool {
        matches!(self, Self::SidRt | Self::BackportsRt | Self::TrixieRt)
    }
}

impl Boot {
    const ALL: [(Self, &str); 9] = [
        (Self::Bare, "bare"),
        (Self::Systemd, "systemd"),
        (Self::Persistent, "persistent"),
        (Self::Plain, "plain"),
        (Self::Smt, "smt"),
        (Self::Watched, "watched"),
        (Self::Locked, "locked"),
        (Self::Blind, "blind"),
        (Self::Large, "large"),
    ];
}

fn by_name<T: Copy>(all: &[(T, &str)], name: &str) -> Option<T> {
    all.iter().find(|(_, known)| *known == name).map(|(one, _)| *one)
}

fn name_of<T: PartialEq>(all: &[(T, &'static str)], one: &T) -> &'static str {
    all.iter().find(|(known, _)| known == one).map_or("?", |(_, name)| name)
}

const ARM64: &str = "@arm64";

impl Guest {
    /// `KERNEL:BOOT` or `KERNEL@arm64:BOOT`, as `tests/vm/test.sh` takes it.
    pub fn of(name: &str) -> Option<Self> {
        let (kernel, boot) = name.split_once(':')?;
        let (kernel, of) = match kernel.strip_suffix(ARM64) {
            Some(kernel) => (kernel, arm64 as fn(Kernel, Boot) -> Self),
            None => (kernel, guest as fn(Kernel, Boot) -> Self),
        };
        Some(of(by_name(&Kernel::ALL, kernel)?, by_name(&Boot::ALL, boot)?))
    }
}

impl std::fmt::Display for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let architecture = match self.architecture {
            Architecture::Amd64 => "",
            Architecture::Arm64 => ARM64,
        };
        let (kernel, boot) = (name_of(&Kernel::ALL, &self.kernel), name_of(&Boot::ALL, &self.boot));
        write!(f, "{kernel}{architecture}:{boot}")
    }
}

impl On {
    /// Whether a test that asks for one of `boots` (the first counts for [`On::One`]) runs in this
    /// guest.
    pub fn runs_in(self, boots: &[Boot], guest: Guest, tier: Tier) -> bool {
        let kernel = guest.kernel;
        boots.contains(&guest.boot)
            && match self {
                Self::OneThenRt if tier == Tier::Nightly => kernel.is_rt(),
                Self::OneThenAll if tier == Tier::Nightly => true,
                Self::One | Self::OneThenRt | Self::OneThenAll => {
                    kernel == Kernel::SidRt && boots.first() == Some(&guest.boot)
                }
                Self::OnePerSeries if tier == Tier::Nightly => kernel.is_rt(),
                Self::OnePerSeries => matches!(kernel, Kernel::SidRt | Kernel::TrixieRt),
                Self::NotThenRt if tier == Tier::Ci => kernel == Kernel::Sid,
                Self::RtAndNot | Self::NotThenRt => matches!(kernel, Kernel::SidRt | Kernel::Sid),
                Self::Rt => kernel.is_rt(),
                Self::NotRt => !kernel.is_rt(),
                Self::All => true,
            }
    }
}
