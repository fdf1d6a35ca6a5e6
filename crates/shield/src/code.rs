// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of refusals and failures: the exit codes of asmp(8), and what asmpd answers. Refusals
//! have numbers by what the caller must change, so that scripts need not parse text.

use crate::partition::Refusal;
use crate::shield::ChangeError;
use crate::state::{RUN_DIR, StateError};

pub const UNEXPECTED: u8 = 1;
pub const USAGE: u8 = 2;
pub const UNDONE: u8 = 3;
pub const STRICT: u8 = 4;
pub const UNPROVED: u8 = 5;
pub const NOT_UNDONE: u8 = 6;
pub const BUSY: u8 = 8;
pub const BAD_STATE: u8 = 9;
pub const NOT_ROOT: u8 = 10;
pub const NO_PARTITION: u8 = 32;
pub const NOT_INSIDE: u8 = 35;
pub const BAD_FILE: u8 = 40;
pub const POLICY_REFUSED: u8 = 42;
pub const NO_TIMERLAT: u8 = 53;
pub const TRACER_IN_USE: u8 = 55;

impl Refusal {
    pub fn code(&self) -> u8 {
        match self {
            Self::NotRoot => NOT_ROOT,
            Self::NotGranted { .. } => 29,
            Self::NoCgroupV2 => 11,
            Self::CpusetV1 { .. } => 12,
            Self::NoCpuset => 13,
            Self::InContainer | Self::ContainedPids => 15,
            Self::KernelTooOld { .. } => 14,
            Self::NoCpus { .. } | Self::UnknownCpus { .. } => 20,
            Self::OfflineCpus { .. } => 21,
            Self::TakenCpus { .. }
            | Self::ForeignIsolated { .. }
            | Self::ExclusiveElsewhere { .. } => 22,
            Self::Displaces { .. } => STRICT,
            Self::EmptiesScope { .. } => 46,
            Self::Orphans { .. } => 25,
            Self::LastCpu { .. } => 23,
            Self::Sibling { .. } => 24,
            Self::TooFewCpus { .. } => 26,
            Self::UnknownPlace { .. } | Self::VirtualPlace { .. } | Self::EmptyPlace { .. } => 27,
            Self::UnevenCores { .. } | Self::NoWholeCores { .. } => 28,
            Self::BadName { .. } => 30,
            Self::NameTaken { .. } => 31,
            Self::NoPartition { .. } => NO_PARTITION,
            Self::UnknownTask { .. } => 33,
            Self::StarvedKworker { .. } | Self::StarvedUndo { .. } => 47,
            Self::NoRoomForDeadlines { .. } => 48,
            Self::CannotShare { .. } => 57,
            Self::BoundKernelThread { .. } | Self::Holder { .. } => 34,
            Self::NotInside { .. } | Self::IrqNotInside { .. } => NOT_INSIDE,
            Self::UnknownIrq { .. } | Self::PerCpuIrq { .. } => 36,
            Self::TakenIrq { .. } => 37,
            Self::TickNotCandidate { .. } | Self::TickNeverStops => 38,
            Self::RealTimeInside { .. } => 39,
            Self::Inseparable { .. } => 44,
            Self::NoTimerlat => NO_TIMERLAT,
            Self::TracerInUse { .. } | Self::Measuring => TRACER_IN_USE,
            Self::BadDeclaration { .. } => BAD_FILE,
            Self::Declared { cause, .. } => cause.code(),
            Self::BadPriority { .. } => USAGE,
        }
    }
}

impl ChangeError {
    pub fn code(&self) -> u8 {
        match self.cause() {
            Self::Interrupted { signal } => of_signal(*signal),
            // Never a cause.
            Self::AfterUndoing { .. } => UNEXPECTED,
            Self::Refused(refusal) => refusal.code(),
            Self::Busy { .. } => BUSY,
            Self::Undone { .. } => UNDONE,
            Self::PolicyRefused { .. } => POLICY_REFUSED,
            Self::Strict { .. } => STRICT,
            Self::Unproved { .. } => UNPROVED,
            Self::NotUndone { .. } => NOT_UNDONE,
            Self::State(StateError::Unreadable { .. } | StateError::Foreign { .. }) => BAD_STATE,
            // Full, read-only, or not our own.
            Self::Host(error) | Self::State(StateError::Host(error))
                if error.path().starts_with(RUN_DIR) =>
            {
                BAD_STATE
            }
            Self::Host(_) | Self::State(StateError::Host(_)) => UNEXPECTED,
        }
    }
}

/// As a shell says it of a command that a signal ended.
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
