//! For real-time programs: channels between tasks in address spaces of their own. The only crate with
//! lock-free code; nothing here allocates or enters the kernel once it is set up, unless it says so.

#[cfg(not(loom))]
pub mod call;
#[cfg(loom)]
#[path = "call/desk.rs"]
pub mod desk;
#[cfg(not(loom))]
pub mod futex;
#[cfg(not(loom))]
pub mod mbuff;
pub mod ring;
pub mod seqlock;
#[cfg(not(loom))]
pub mod shm;
