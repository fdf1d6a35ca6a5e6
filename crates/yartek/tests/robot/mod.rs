// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The robot of the case study, `yartek/app/robot`.

pub mod host;
pub mod reference;
