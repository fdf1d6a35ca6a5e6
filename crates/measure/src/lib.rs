//! Measurements: what really happens on CPUs. Changes no system setting.

pub mod noise;
