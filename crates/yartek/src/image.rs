// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does an image mask interrupts once it runs?
//!
//! Masked interrupts delay the alarm, handlers and the guard, and no proof counts that; for longer
//! than a wrap they stop the clock. `main` runs before the kernel, `yk_fault` after a failure:
//! those may. The start of a port sets the processor to hear all interrupts, which masks none.

use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::{io, str};

/// Which instructions mask interrupts on a board. A pattern is an instruction as objdump prints it,
/// in small letters, with one blank after the name and no other. `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Masking {
    /// Patterns of those that mask, or may do so.
    instructions: Vec<String>,
    /// Patterns of those among them that do not.
    except: Vec<String>,
    /// Functions of the port that may, besides those of [`MAY`].
    port_functions: Vec<String>,
}

/// An instruction that masks interrupts, and the function that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub function: String,
    pub instruction: String,
}

const MAY: [&str; 2] = ["main", "yk_fault"];

/// The disassembler beside a compiler.
pub(crate) fn disassembler(compiler: &str) -> String {
    compiler.strip_suffix("gcc").map_or_else(|| "objdump".to_owned(), |to| format!("{to}objdump"))
}

pub(crate) fn masking(
    disassembler: &str,
    image: &Path,
    masking: &Masking,
) -> io::Result<Option<Found>> {
    let output = Command::new(disassembler).arg("-d").arg(image).output()?;
    let text = str::from_utf8(&output.stdout).unwrap_or_default();
    // An image has code: without any the disassembler has failed.
    match output.status.success() && text.contains(">:") {
        true => Ok(masking.first(text)),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

impl Masking {
    /// The first in a disassembly, as objdump prints it.
    fn first(&self, text: &str) -> Option<Found> {
        let mut function = "";
        for line in text.lines() {
            if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <"))
            {
                function = name;
                continue;
            }
            // Address, bytes, name and operands.
            let Some(code) = line.splitn(3, '\t').nth(2) else { continue };
            let words: Vec<&str> = code.split_whitespace().collect();
            let may = MAY.contains(&function) || self.port_functions.iter().any(|f| f == function);
            if !may && self.masks(&words) {
                let instruction = words.join(" ");
                return Some(Found { function: function.to_owned(), instruction });
            }
        }
        None
    }

    fn masks(&self, words: &[&str]) -> bool {
        let [name, operands @ ..] = words else { return false };
        let instruction = format!("{name} {}", operands.concat()).to_lowercase();
        let is_one_of = |all: &[String]| all.iter().any(|pattern| fits(pattern, &instruction));
        is_one_of(&self.instructions) && !is_one_of(&self.except)
    }
}

/// Does all of the text fit a pattern?
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((begin, rest)) => text.strip_prefix(begin).is_some_and(|text| {
            let mut ends = text.char_indices().map(|(at, _)| &text[at..]).chain([""]);
            ends.any(|end| fits(rest, end))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(board: &str) -> Masking {
        let board = crate::Board::named(board).expect("a board");
        board.machine().masking.clone()
    }

    /// Of these lines, those that the board's rules find.
    fn found<'a>(board: &str, lines: &[&'a str]) -> Vec<&'a str> {
        let masking = of(board);
        let is_found = |line: &&&str| {
            let text = format!("40000400 <f>:\n40000438:\t46fc 2000      \t{line}\n");
            masking.first(&text).is_some()
        };
        lines.iter().filter(is_found).copied().collect()
    }

    #[test]
    fn instructions_that_mask_are_told_from_those_that_do_not() {
        let on_arm = ["cpsid\ti", "msr\tPRIMASK, r0", "msr\tBASEPRI_MAX, r3", "msr\tFAULTMASK, r0"];
        assert_eq!(found("mps2-an385", &on_arm), on_arm);
        let on_arm = ["cpsie\ti", "mrs\tr0, PRIMASK", "msr\tPSP, r0", "wfi"];
        assert_eq!(found("mps2-an385", &on_arm), [""; 0]);
        let on_coldfire = ["movew #9984,%sr", "movew %d0,%sr", "stop #8448", "strldsr #0x2700"];
        assert_eq!(found("mcf5208evb", &on_coldfire), on_coldfire);
        let on_coldfire = ["movew #8192,%sr", "movew %sr,%d0", "stop #8192", "stopper #1"];
        assert_eq!(found("mcf5208evb", &on_coldfire), [""; 0]);
        let on_riscv = [
            "csrc\tmstatus,8",
            "csrw\tmstatus,t0",
            "csrwi\tmie,0",
            "csrrc\ta5,mstatus,a4",
            "csrrw\ta5,mie,a4",
            "csrrwi\ta5,mstatus,0",
            "csrrci\ta5,mie,8",
        ];
        assert_eq!(found("rv32-virt", &on_riscv), on_riscv);
        let on_riscv = ["csrs\tmstatus,8", "csrr\tt0,mie", "csrrs\tt0,mie,t1", "csrw\tmtvec,t0"];
        assert_eq!(found("rv32-virt", &on_riscv), [""; 0]);
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, does) in [
            ("stop *", "stop #1", true),
            ("stop *", "stop", false),
            ("move* *,%sr", "movew d0,%sr", true),
            ("move* *,%sr", "movew %sr,d0", false),
            ("a*b*c", "axxbxxbc", true),
            ("a*b*c", "axxbxxbcd", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, text), does, "{pattern} {text}");
        }
    }

    #[test]
    fn the_start_of_an_application_may_mask_and_its_jobs_may_not() {
        let text = "1 <main>:\n 2:\tb672\tcpsid\ti\n\n3 <work>:\n 4:\tb672\tcpsid\ti\n";
        let found = of("mps2-an385").first(text).expect("one");
        assert_eq!((&*found.function, &*found.instruction), ("work", "cpsid i"));
        let of_the_port = Masking { port_functions: vec!["work".to_owned()], ..of("mps2-an385") };
        assert_eq!(of_the_port.first(text), None);
    }
}
