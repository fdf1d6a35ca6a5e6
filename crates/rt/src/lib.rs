//! For real-time programs: what runs inside a partition. Nothing here allocates or waits for the time-sharing
//! side once it is set up, unless it says so.

pub mod executive;
pub mod virtual_cpu;
