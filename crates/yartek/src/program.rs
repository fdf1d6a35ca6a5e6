// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are not in an image: links one for an image's area, and sends it to the disk of a
//! board whose shell runs. `yartek/modules/program.h` describes the file.

use crate::board::Board;
use crate::elf::Elf;
use crate::sources;
use crate::tools::{ToolError, compiler, made_by, of_file};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, str};

const MAGIC: u32 = u32::from_be_bytes(*b"YKP1");
/// `yartek/modules/ramdisk.h`: the longest name of a file.
const NAME_BYTES: usize = 15;
/// So many bytes of a file go into a line of the shell, which takes 99.
const LINE_BYTES: usize = 36;

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{0}")]
    Tool(#[from] ToolError),
    #[error("{} is no image of a board: asmp yartek build makes one", path.display())]
    NoImage { path: PathBuf },
    #[error(
        "{} has no yk_program_area for programs: yartek/app/shell shows how an application gives \
         one", path.display()
    )]
    NoArea { path: PathBuf },
    #[error("the program does not fit into the {size} bytes of yk_program_area")]
    TooLong { size: u32 },
    #[error("the image does not call {name}, so it has not got it: call it in the application")]
    NotThere { name: String },
    #[error("the program has no function `void program(void *)`")]
    NoEntry,
}

/// Where programs of an image go.
struct Area {
    address: u32,
    size: u32,
    /// Checksum of the image's code.
    image: u32,
}

fn area(elf: &Elf) -> Option<Area> {
    let of = elf.address("yk_program_area")?;
    let (address, size) = (elf.begin_of(of)?, elf.begin_of(of.checked_add(4)?)?);
    let text = elf.memory(elf.address("yk_port_text")?, elf.address("yk_port_text_end")?)?;
    Some(Area { address, size, image: crc32fast::hash(text) })
}

/// Compiles and links a program for the area of an image. Gives the bytes of its file. Errors: also
/// a program that masks interrupts.
pub fn program(image: &Path, files: &[PathBuf]) -> Result<Vec<u8>, ProgramError> {
    let bytes = fs::read(image).map_err(|cause| of_file(image, cause))?;
    let no_image = || ProgramError::NoImage { path: image.to_owned() };
    let elf = Elf::of(&bytes).ok_or_else(no_image)?;
    let board = Board::of_image(&elf).ok_or_else(no_image)?;
    let area = area(&elf).ok_or_else(|| ProgramError::NoArea { path: image.to_owned() })?;
    let made = linked(&board, &bytes, &area, files)?;
    Elf::of(&made).and_then(|made| file(&made, &board, &area)).ok_or(ProgramError::NoEntry)
}

fn linked(
    board: &Board,
    image: &[u8],
    area: &Area,
    files: &[PathBuf],
) -> Result<Vec<u8>, ProgramError> {
    let dir = tempfile::tempdir().map_err(ToolError::temporary)?;
    let dir = dir.path();
    sources::unpack(dir).map_err(|cause| of_file(dir, cause))?;
    let script = format!(
        "ENTRY(program)\n\
         MEMORY {{ area (rwx) : ORIGIN = {:#x}, LENGTH = {} }}\n\
         SECTIONS {{\n\
         .program : {{ *(.text .text.* .rodata .rodata.* .srodata .srodata.*)\n\
         *(.data .data.* .sdata .sdata.*) }} > area\n\
         .zero (NOLOAD) : {{ *(.bss .bss.* .sbss .sbss.* COMMON) }} > area\n\
         /DISCARD/ : {{ *(.ARM.*) *(.comment) *(.note.*) *(.eh_frame) *(.riscv.attributes) }}\n\
         }}\n",
        area.address, area.size
    );
    for (name, bytes) in [("program.ld", script.as_bytes()), ("image.elf", image)] {
        fs::write(dir.join(name), bytes).map_err(|cause| of_file(&dir.join(name), cause))?;
    }
    let machine = board.machine();
    let mut command = compiler(&machine, dir);
    command.args(["-T", "program.ld", "-Wl,--just-symbols=image.elf,--require-defined=program"]);
    for path in files {
        command.arg(std::path::absolute(path).map_err(|cause| of_file(path, cause))?);
    }
    let made = dir.join("program.elf");
    command.arg("-o").arg(&made);
    made_by(command, &machine, &made).map_err(|error| explained(error, area))
}

/// What the linker says often, in our words.
fn explained(error: ToolError, area: &Area) -> ProgramError {
    let ToolError::Refused { said, .. } = &error else { return error.into() };
    let undefined = said.strip_prefix("undefined reference to ");
    if let Some(name) = undefined.map(|name| name.trim_matches(['`', '\'']).to_owned()) {
        return ProgramError::NotThere { name };
    }
    match said.as_str() {
        "required symbol `program' not defined" => ProgramError::NoEntry,
        _ if said.starts_with("region `area' overflowed") => {
            ProgramError::TooLong { size: area.size }
        }
        _ => error.into(),
    }
}

/// The file of a program that was linked for this area.
fn file(made: &Elf, board: &Board, area: &Area) -> Option<Vec<u8>> {
    let (mut bytes, mut size) = (Vec::new(), 0);
    for part in made.placed() {
        let at = part.address.checked_sub(area.address)?;
        size = size.max(at.checked_add(part.size)?);
        if let Some(of_part) = part.bytes {
            bytes.resize(bytes.len().max(at as usize), 0);
            bytes.truncate(at as usize);
            bytes.extend(of_part);
        }
    }
    let (machine, count) = (board.machine().elf_machine, u32::try_from(bytes.len()).ok()?);
    let entry = made.address("program")?;
    let header = [MAGIC, machine, area.address, count, size, entry, area.image];
    let mut file: Vec<u8> = header.into_iter().flat_map(u32::to_be_bytes).collect();
    let mut check = crc32fast::Hasher::new();
    check.update(&file);
    check.update(&bytes);
    file.extend(check.finalize().to_be_bytes());
    file.extend(bytes);
    (size <= area.size).then_some(file)
}

/// May a file of the disk have this name, and may the shell be given it?
pub fn is_disk_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Lines for a shell that make a file of the disk. Its name is [one that may be](is_disk_name).
pub fn shell_lines(name: &str, bytes: &[u8]) -> Vec<String> {
    let line = |piece: &[u8]| {
        let digits = piece.iter().map(|byte| format!("{byte:02x}"));
        digits.fold(format!("append {name} "), |line, digits| line + &digits)
    };
    bytes.chunks(LINE_BYTES).map(line).collect()
}

/// Why a shell has not got a file.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the line: {0}")]
    Line(#[from] io::Error),
    #[error("it is no shell: it does not ask with `> `")]
    NoShell,
    #[error("the shell says: {said}")]
    Refused { said: String },
    #[error("what was typed came back as `{said}`: end what else writes to the line")]
    Garbled { said: String },
    #[error("the image has a program {name} of its own: give --name with another name")]
    BuiltIn { name: String },
}

/// What a shell says before it waits.
const ASKS: &[u8] = b"\r\n> ";
const MOST_ANSWER_BYTES: usize = 4096;
/// For all of an answer: a board on a busy machine is slow.
const ALL_WITHIN: Duration = Duration::from_secs(10);

/// All that comes up to what ends with this.
fn up_to(line: &mut (impl Read + Write), end: &[u8]) -> Result<String, SendError> {
    let (asked, mut came) = (Instant::now(), Vec::new());
    while !came.ends_with(end) {
        let mut byte = [0];
        let goes_on = came.len() < MOST_ANSWER_BYTES && asked.elapsed() < ALL_WITHIN;
        match line.read(&mut byte) {
            Ok(1) if goes_on => came.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if !is_timeout(&error) => return Err(error.into()),
            _ => return Err(SendError::NoShell),
        }
    }
    Ok(String::from_utf8_lossy(&came).into_owned())
}

/// The shell's answer to a line.
fn answer(line: &mut (impl Read + Write), command: &str) -> Result<String, SendError> {
    line.write_all(format!("{command}\r").as_bytes())?;
    let text = up_to(line, ASKS)?;
    // What is typed comes back first. An answer to something else does not begin with it.
    let (typed, text) = text.split_once("\r\n").unwrap_or((&text, ""));
    if typed != command {
        return Err(SendError::Garbled { said: typed.escape_default().to_string() });
    }
    Ok(text.strip_suffix("> ").unwrap_or(text).trim_end().to_owned())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Puts a file on the disk of a board by its shell, in place of one of that name. The line gives up
/// a read after a while: TCP with a timeout, for example.
pub fn send(line: &mut (impl Read + Write), name: &str, bytes: &[u8]) -> Result<(), SendError> {
    const GIVE_UP: &[u8] = b"\x03";
    line.write_all(GIVE_UP)?;
    // What was on its way before is of no interest.
    up_to(line, b"^C\r\n> ")?;
    // It would hide ours.
    let programs = answer(line, "help")?;
    let mut programs = programs.lines().filter_map(|row| row.strip_prefix("exec "));
    if programs.any(|row| row.split_whitespace().next() == Some(name)) {
        return Err(SendError::BuiltIn { name: name.to_owned() });
    }
    // Says so if there is none.
    answer(line, &format!("rm {name}"))?;
    for command in shell_lines(name, bytes) {
        let said = answer(line, &command)?;
        if !said.is_empty() {
            return Err(SendError::Refused { said });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Sends back what is typed, and answers as it is told to.
    struct Shell {
        typed: Vec<u8>,
        says: VecDeque<u8>,
        answer: &'static str,
    }

    impl Write for Shell {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            for byte in bytes {
                match byte {
                    3 => self.says.extend(b"^C\r\n> "),
                    b'\r' => {
                        let answer = match self.typed.split(|byte| *byte == b' ').next() {
                            Some(b"append") => self.answer,
                            Some(b"help") => "exec   note           append a line\r\n",
                            _ => "",
                        };
                        self.says.extend(format!("\r\n{answer}> ").bytes());
                        self.typed.clear();
                    }
                    _ => {
                        self.says.push_back(*byte);
                        self.typed.push(*byte);
                    }
                }
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Shell {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            match self.says.pop_front() {
                Some(byte) => {
                    room[0] = byte;
                    Ok(1)
                }
                None => Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }

    fn shell(answer: &'static str) -> Shell {
        Shell { typed: vec![], says: VecDeque::new(), answer }
    }

    #[test]
    fn a_shell_that_refuses_a_line_or_is_none_is_told() {
        let bytes: Vec<u8> = (0..200).collect();
        send(&mut shell(""), "count", &bytes).expect("sent");
        let full = send(&mut shell("the disk is full: rm removes files\r\n"), "count", &bytes);
        let said = full.expect_err("refused").to_string();
        assert_eq!(said, "the shell says: the disk is full: rm removes files");
        let mut stale = shell("");
        stale.says.extend(b"well\r\n> ");
        send(&mut stale, "count", &bytes).expect("sent, after what was on its way");
        let built_in = send(&mut shell(""), "note", &bytes).expect_err("refused").to_string();
        assert!(built_in.contains("a program note of its own"), "{built_in}");
        let mut garbled = shell("");
        garbled.says.extend(b"^C\r\n> ^C\r\n> ");
        let garbled = send(&mut garbled, "count", &bytes);
        assert!(matches!(garbled, Err(SendError::Garbled { .. })), "{garbled:?}");
        let silent = send(&mut io::Cursor::new(Vec::new()), "count", &bytes);
        assert!(matches!(silent, Err(SendError::NoShell)));
    }

    #[test]
    fn lines_for_the_shell_hold_each_byte_once_and_fit() {
        let bytes: Vec<u8> = (0..=255).collect();
        let lines = shell_lines(&"n".repeat(NAME_BYTES), &bytes);
        assert!(lines.iter().all(|line| line.len() < 100), "{lines:?}");
        let digits: String = lines
            .iter()
            .filter_map(|line| line.rsplit_once(' '))
            .fold(String::new(), |all, (_, digits)| all + digits);
        let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, expected);
    }

    #[test]
    fn a_name_that_the_shell_would_cut_is_none() {
        assert!(is_disk_name("count") && is_disk_name(&"n".repeat(15)));
        for name in ["", "two words", "a\tb", &"n".repeat(16), "l\u{e4}ngs"] {
            assert!(!is_disk_name(name), "{name}");
        }
    }
}
