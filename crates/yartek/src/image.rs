// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does an image mask interrupts once it runs?
//!
//! Masked interrupts delay the alarm, handlers and the guard, and no proof counts that; for longer
//! than a wrap they stop the clock. `main` runs before the kernel, `yk_fault` after a failure:
//! those may. The start of a port sets the processor to hear all interrupts, which masks none.

use std::path::Path;
use std::process::Command;
use std::{io, str};

/// An instruction that masks interrupts, and the function that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Masking {
    pub function: String,
    pub instruction: String,
}

const MAY: [&str; 2] = ["main", "yk_fault"];
/// The level in the status register of a ColdFire: interrupts up to it are masked.
const LEVEL: u32 = 0x700;

/// The disassembler beside a compiler.
pub(crate) fn disassembler(compiler: &str) -> String {
    compiler.strip_suffix("gcc").map_or_else(|| "objdump".to_owned(), |to| format!("{to}objdump"))
}

pub(crate) fn masking(disassembler: &str, image: &Path) -> io::Result<Option<Masking>> {
    let output = Command::new(disassembler).arg("-d").arg(image).output()?;
    let text = str::from_utf8(&output.stdout).unwrap_or_default();
    // An image has code: without any the disassembler has failed.
    match output.status.success() && text.contains(">:") {
        true => Ok(first(text)),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// The first in a disassembly, as objdump prints it.
fn first(text: &str) -> Option<Masking> {
    let mut function = "";
    for line in text.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            function = name;
            continue;
        }
        // Address, bytes, name and operands.
        let Some(code) = line.splitn(3, '\t').nth(2) else { continue };
        let words: Vec<&str> = code.split_whitespace().collect();
        if !MAY.contains(&function) && masks(&words) {
            let instruction = words.join(" ");
            return Some(Masking { function: function.to_owned(), instruction });
        }
    }
    None
}

fn masks(words: &[&str]) -> bool {
    let [name, operands @ ..] = words else { return false };
    let operands = operands.concat().to_lowercase();
    let immediate = || {
        let text = operands.strip_prefix('#')?.split(',').next()?;
        match text.strip_prefix("0x") {
            Some(text) => u32::from_str_radix(text, 16).ok(),
            None => text.parse().ok(),
        }
    };
    // What is not known may mask.
    let sets_level = || immediate().is_none_or(|number: u32| number & LEVEL != 0);
    match *name {
        "cpsid" => true,
        "msr" => ["primask", "basepri", "faultmask"].iter().any(|mask| operands.starts_with(mask)),
        "stop" | "strldsr" => sets_level(),
        name => name.starts_with("move") && operands.ends_with(",%sr") && sets_level(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(line: &str) -> Option<String> {
        let text = format!("40000400 <f>:\n40000438:\t46fc 2000      \t{line}\n");
        first(&text).map(|masking| masking.instruction)
    }

    #[test]
    fn instructions_that_mask_are_told_from_those_that_do_not() {
        for masks in [
            "cpsid\ti",
            "msr\tPRIMASK, r0",
            "msr\tBASEPRI_MAX, r3",
            "msr\tFAULTMASK, r0",
            "movew #9984,%sr",
            "movew %d0,%sr",
            "stop #8448",
            "strldsr #0x2700",
        ] {
            assert!(instruction(masks).is_some(), "{masks}");
        }
        for does_not in [
            "cpsie\ti",
            "mrs\tr0, PRIMASK",
            "msr\tPSP, r0",
            "movew #8192,%sr",
            "movew %sr,%d0",
            "stop #8192",
            "stopper #1",
            "wfi",
        ] {
            assert_eq!(instruction(does_not), None);
        }
    }

    #[test]
    fn the_start_of_an_application_may_mask_and_its_jobs_may_not() {
        let text = "1 <main>:\n 2:\tb672\tcpsid\ti\n\n3 <work>:\n 4:\tb672\tcpsid\ti\n";
        let found = first(text).expect("one");
        assert_eq!((&*found.function, &*found.instruction), ("work", "cpsid i"));
    }
}
