//! For real-time programs on a stock kernel, each real-time task in its own address space: threads with releases,
//! channels between processes, executives, and a virtual CPU to test them on. The only crate with lock-free
//! code; nothing here allocates or waits for the time-sharing side once it is set up, unless it says so.

#[cfg(not(loom))]
pub mod call;
#[cfg(loom)]
#[path = "call/desk.rs"]
pub mod desk;
#[cfg(not(loom))]
pub mod executive;
#[cfg(not(loom))]
pub mod fifo;
#[cfg(not(loom))]
pub mod futex;
#[cfg(not(loom))]
pub mod mbuff;
#[cfg(not(loom))]
pub mod plain;
pub mod ring;
pub mod seqlock;
#[cfg(not(loom))]
pub mod shm;
pub mod thread;
#[cfg(not(loom))]
pub mod typed;
#[cfg(not(loom))]
pub mod virtual_cpu;

/// Its programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/rt.md")]
struct Guide;
