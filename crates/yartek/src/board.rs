// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What we know of a board: `board.toml` of its port.

use crate::clock::Rate;
use crate::elf::Elf;
use crate::image::Masking;
use crate::sources;
use crate::tools::Machine;
use serde::Deserialize;

/// A board.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    pub name: String,
    /// For people.
    pub processor: String,
    /// QEMU's command, and Debian's package of it.
    machine: Vec<String>,
    machine_package: String,
    /// QEMU's options that connect the serial line to its character device `serial`.
    serial: Vec<String>,
    compiler: String,
    flags: Vec<String>,
    /// `e_machine` of its images.
    elf_machine: u32,
    /// Which instructions mask interrupts, which of these do not, and functions of the port that
    /// may: `image.rs`.
    masking: Masking,
    ticks_per_s_num: u32,
    ticks_per_s_den: u32,
    pub flash_bytes: u64,
    pub ram_bytes: u64,
    /// To begin a job the kernel needs D(n) = a + b n instructions, if the table has n tasks.
    pub dispatch_a_instructions: u64,
    pub dispatch_b_instructions: u64,
    /// A handler that raises a line, puts it into the queue, and masks its source.
    pub handler_instructions: u64,
    /// An arrival of a sporadic task takes a + b n, if the table has n tasks: its handler, and what
    /// it makes the kernel do beyond D(n).
    pub arrive_a_instructions: u64,
    pub arrive_b_instructions: u64,
    /// The least distance of two interrupts of the clock itself, which preempt a job, too.
    pub clock_interrupt_ticks: u64,
    pub clock_interrupt_instructions: u64,
    /// An instruction, as QEMU counts.
    pub instruction_ps: u64,
}

/// A name of no board.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no board {name}: use one of {}", known.join(", "))]
pub struct NoBoard {
    name: String,
    known: Vec<String>,
}

impl Board {
    /// Of the ports that this library has.
    pub fn all() -> Vec<Self> {
        // A test reads each.
        let read = |text: &str| toml::from_str(text).expect("a board that a test has read");
        sources::boards().map(read).collect()
    }

    pub fn named(name: &str) -> Result<Self, NoBoard> {
        let all = Self::all();
        let known = || all.iter().map(|board| board.name.clone()).collect();
        let found = all.iter().find(|board| board.name == name).cloned();
        found.ok_or_else(|| NoBoard { name: name.to_owned(), known: known() })
    }

    /// The board that an image is for. `None`: it is for none of ours.
    pub fn of_image(elf: &Elf) -> Option<Self> {
        let machine = elf.machine()?;
        Self::all().into_iter().find(|board| board.elf_machine == machine)
    }

    pub fn machine(&self) -> Machine<'_> {
        Machine {
            port: &self.name,
            qemu: &self.machine,
            qemu_package: &self.machine_package,
            serial: &self.serial,
            compiler: &self.compiler,
            flags: &self.flags,
            elf_machine: self.elf_machine,
            masking: &self.masking,
        }
    }

    /// Ticks of its clock in a second.
    pub fn rate(&self) -> Rate {
        Rate::new(self.ticks_per_s_num, self.ticks_per_s_den).expect("a test has read it")
    }

    /// How late the kernel begins a job at most, in thousandths of a tick: D(n), and an interrupt
    /// of the clock, which may fall into it.
    pub fn dispatch_milli_ticks(&self, tasks: usize) -> u64 {
        let instructions = self.dispatch_instructions(tasks) + self.clock_interrupt_instructions;
        self.rate().ticks_of_ps(1000 * instructions * self.instruction_ps)
    }

    /// What the kernel needs at most to begin a job of so many tasks, without interrupts: D(n).
    pub fn dispatch_instructions(&self, tasks: usize) -> u64 {
        self.dispatch_a_instructions + self.dispatch_b_instructions * tasks as u64
    }

    /// What an arrival takes at most, if the table has so many tasks.
    pub fn arrive_instructions(&self, tasks: usize) -> u64 {
        self.arrive_a_instructions + self.arrive_b_instructions * tasks as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_board_can_be_read_and_has_names_of_its_own() {
        let all = Board::all();
        let names: Vec<&str> = all.iter().map(|board| &*board.name).collect();
        assert!(names.is_sorted() && names.contains(&"mcf5208evb"), "{names:?}");
        for (at, board) in all.iter().enumerate() {
            assert!(board.rate().ticks_of_ps(1_000_000_000_000) > 1_000_000, "of a second");
            assert!(board.dispatch_milli_ticks(1) > 1000);
            let is_other =
                |other: &Board| other.name != board.name && other.elf_machine != board.elf_machine;
            assert!(all[..at].iter().all(is_other), "{}: as of a board before", board.name);
        }
    }

    #[test]
    fn an_unknown_board_is_refused_with_those_there_are() {
        let error = Board::named("arduino").expect_err("none").to_string();
        let names: Vec<String> = Board::all().into_iter().map(|board| board.name).collect();
        assert_eq!(error, format!("no board arduino: use one of {}", names.join(", ")));
    }
}
