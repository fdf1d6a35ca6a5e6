// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task sets for yartek, a kernel for microcontrollers that runs exactly the schedule that
//! `asmp analyze` has proved. The kernel itself is C, in the directory `yartek` of the repository.

mod bench;
mod board;
mod clock;
mod compare;
#[cfg(feature = "core-c")]
mod core_c;
mod elf;
mod fetch;
mod footprint;
mod image;
mod link;
#[cfg(feature = "core-c")]
mod link_c;
mod map;
mod program;
mod proof;
mod sources;
mod table;
mod tools;
mod trace;

/// What the kernel takes.
pub use bench::{BenchError, Figure, bench};
/// What we know of a board.
pub use board::{Board, NoBoard};
/// The times of a task set in ticks of a board.
pub use clock::{Clock, ClockError, Given, MAX_TICKS, Off, Rate, Times};
/// A guest's jobs beside the simulator's.
pub use compare::{Comparison, Expected, Lateness, Order, expect};
/// The kernel's choice of jobs, on this machine.
#[cfg(feature = "core-c")]
pub use core_c::{Edf, Job, Late, Next, Stats, Task};
/// What an image says of itself.
pub use elf::{Elf, Sizes};
/// Fetches the robot's map.
pub use fetch::{ANSWER_WITHIN, FetchError, Fetched, Robot};
/// What each source has of an image.
pub use footprint::Part;
/// Instructions that a board's program may not have.
pub use image::Masking;
/// Frames over a serial line.
pub use link::{Counts, MAX_FRAME_BYTES, Receiver, Sender};
/// A board's end of a link, on this machine.
#[cfg(feature = "core-c")]
pub use link_c::BoardLink;
/// The map of the robot of the case study.
pub use map::{Map, MapError, Wall, walls};
/// Programs that are not in an image.
pub use program::{ProgramError, SendError, is_disk_name, program, send, shell_lines};
/// Whether a set meets its deadlines on a board.
pub use proof::{Proof, prove};
/// What a project begins with.
pub use sources::new_project;
/// A set as the kernel's table.
pub use table::{MAX_LINES, MAX_TASKS, Owner, Refusal, Table, TableLine, TableTask};
/// Builds images and runs them.
pub use tools::{
    Application, Ending, Machine, Output, Serial, ToolError, build, missing, run, sizes,
};
/// What a guest printed.
pub use trace::{Fault, Partial, Ran, Trace};
