// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compilers and QEMU: builds an image, and runs it.
//!
//! QEMU counts instructions instead of time (`-icount`): an instruction takes 32 ns of virtual
//! time, whatever this machine does meanwhile, so two runs print the same bytes.

use crate::elf::{Elf, Sizes};
use crate::footprint::{Part, parts};
use crate::image::Masking;
use crate::sources;
use std::ffi::OsString;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

/// How a board's programs are made and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine<'a> {
    /// The directory below `yartek/port`.
    pub port: &'a str,
    /// QEMU's command.
    pub qemu: &'a [String],
    pub qemu_package: &'a str,
    /// QEMU's options that connect the serial line to its character device `serial`.
    pub serial: &'a [String],
    pub compiler: &'a str,
    pub flags: &'a [String],
    /// `e_machine` of its images.
    pub elf_machine: u32,
    pub masking: &'a Masking,
}

/// What runs on the kernel, besides the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Application<'a> {
    /// Prints each job.
    Spin,
    /// Nothing: for sizes.
    Empty,
    /// Measures the kernel.
    Bench,
    /// C files of the user.
    Files(&'a [PathBuf]),
}

/// Where the serial line of a board ends.
#[derive(Clone, Copy)]
pub enum Serial<'a> {
    /// Nowhere: what the board sends is lost. Time passes as fast as this machine allows.
    Nowhere,
    /// At a pseudoterminal, to which a link is made there. `told` is called with it. Time does not
    /// pass faster than here.
    Terminal { link: &'a Path, told: &'a dyn Fn(&Path) },
    /// At a port of TCP, on this machine alone. `told` is called once it is open. Time does not
    /// pass faster than here, or as fast as this machine allows.
    Tcp { port: u16, is_fast: bool, told: Option<&'a dyn Fn()> },
}

impl Serial<'_> {
    /// QEMU's character device.
    fn device(self) -> OsString {
        match self {
            Self::Nowhere => "null,id=serial".into(),
            Self::Terminal { link, .. } => {
                let mut device = OsString::from("pty,id=serial,path=");
                // A comma ends a value, two are one.
                device.push(link.to_string_lossy().replace(',', ",,"));
                device
            }
            Self::Tcp { port, .. } => {
                format!("socket,id=serial,host=127.0.0.1,port={port},server=on,wait=off").into()
            }
        }
    }
}

/// Why there is no image, or no run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("there is no {program} here: install the package {package}")]
    Missing { program: String, package: String },
    #[error(
        "{program} is of version {found}, and {OLDEST_QEMU} or newer is needed: install {package} \
         from a newer release (on Debian 12: from bookworm-backports)"
    )]
    TooOld { program: String, found: String, package: String },
    #[error("{compiler} refuses the program, and says: {said}")]
    Refused { compiler: String, said: String },
    #[error("{function} masks interrupts ({instruction}), which no proof counts: leave that out")]
    Masks { function: String, instruction: String },
    #[error("{0}: no image of a board: asmp yartek build makes one", path.display())]
    NoImage { path: PathBuf },
    #[error("{program} cannot be run: {cause}")]
    Program { program: String, cause: io::Error },
    #[error("{0}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("QEMU did not start the image: {said}")]
    NotStarted { said: String },
    #[error("port {port}: {cause}: give another")]
    PortTaken { port: u16, cause: io::Error },
}

impl ToolError {
    pub(crate) fn temporary(cause: io::Error) -> Self {
        of_file(&std::env::temp_dir(), cause)
    }
}

const OLDEST_QEMU: u32 = 10;
/// A guest that prints more is ended.
const MOST_CONSOLE_BYTES: u64 = 256 << 20;

impl Machine<'_> {
    /// Debian's package of QEMU, of the compiler, or of a program beside it.
    fn package(&self, program: &str) -> String {
        match program.rsplit_once('-') {
            Some((target, "gcc")) => format!("gcc-{target}"),
            Some((target, "objdump")) => format!("binutils-{target}"),
            _ => self.qemu_package.to_owned(),
        }
    }

    fn not_run(&self, program: &str, cause: io::Error) -> ToolError {
        let (package, program) = (self.package(program), program.to_owned());
        match cause.kind() {
            io::ErrorKind::NotFound => ToolError::Missing { program, package },
            _ => ToolError::Program { program, cause },
        }
    }
}

pub(crate) fn of_file(path: &Path, cause: io::Error) -> ToolError {
    ToolError::File { path: path.to_owned(), cause }
}

/// Compiles kernel, port, table and application, and says what each source has of the image, which
/// is written in place. Errors: also a program that masks interrupts once the kernel runs.
pub fn build(
    machine: &Machine,
    application: Application,
    table: &str,
    image: &Path,
) -> Result<Vec<Part>, ToolError> {
    let dir = tempfile::tempdir().map_err(ToolError::temporary)?;
    sources::unpack(dir.path()).map_err(|cause| of_file(dir.path(), cause))?;
    let written = dir.path().join("table.c");
    fs::write(&written, table).map_err(|cause| of_file(&written, cause))?;
    let port = Path::new("port").join(machine.port);
    let mut command = compiler(machine, dir.path());
    command.arg("-T").arg(port.join("link.ld"));
    let mut files = vec![port.join("start.S"), port.join("port.c")];
    files.extend(sources::kernel());
    match application {
        Application::Spin => files.push("app/spin/main.c".into()),
        Application::Empty => files.push("app/empty/main.c".into()),
        Application::Bench => files.push("app/bench/main.c".into()),
        Application::Files(of_user) => {
            for path in of_user {
                files.push(std::path::absolute(path).map_err(|cause| of_file(path, cause))?);
            }
        }
    }
    files.push("table.c".into());
    let made = dir.path().join("image.elf");
    command.args(&files).arg("-Wl,-Map=map").arg("-o").arg(&made);
    let bytes = made_by(command, machine, &made)?;
    fs::write(image, bytes).map_err(|cause| of_file(image, cause))?;
    let map = dir.path().join("map");
    let map = fs::read(&map).map_err(|cause| of_file(&map, cause))?;
    Ok(parts(&String::from_utf8_lossy(&map), &files))
}

/// The board's compiler, in a directory with our sources.
pub(crate) fn compiler(machine: &Machine, dir: &Path) -> Command {
    let mut command = Command::new(machine.compiler);
    command.current_dir(dir).args(machine.flags).args([
        "-std=c11",
        "-Os",
        "-g",
        "-ffreestanding",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-fno-pie",
        "-ffunction-sections",
        "-fdata-sections",
        // It would call memcpy() inside memcpy().
        "-fno-tree-loop-distribute-patterns",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Iinclude",
        "-Ikernel",
        "-Imodules",
        "-Wl,--gc-sections,--build-id=none,-z,noexecstack,--no-warn-rwx-segments",
    ]);
    command.arg(format!("-DYK_MACHINE={}", machine.elf_machine));
    // Another compiler may know more warnings: that stops no user.
    command.args(std::env::var_os("ASMP_CI").map(|_| "-Werror"));
    command.arg("-I").arg(Path::new("test").join(machine.port));
    command
}

/// What the compiler makes. Errors: also what masks interrupts.
pub(crate) fn made_by(
    mut command: Command,
    machine: &Machine,
    made: &Path,
) -> Result<Vec<u8>, ToolError> {
    let output = command.output().map_err(|cause| machine.not_run(machine.compiler, cause))?;
    if !output.status.success() {
        let said = reason(&String::from_utf8_lossy(&output.stderr));
        return Err(ToolError::Refused { compiler: machine.compiler.to_owned(), said });
    }
    let disassembler = crate::image::disassembler(machine.compiler);
    let masking = crate::image::masking(&disassembler, made, machine.masking);
    if let Some(found) = masking.map_err(|cause| machine.not_run(&disassembler, cause))? {
        return Err(ToolError::Masks { function: found.function, instruction: found.instruction });
    }
    fs::read(made).map_err(|cause| of_file(made, cause))
}

/// What kernel, port and table need, without an application: the table has no entries.
pub fn sizes(machine: &Machine, table: &str) -> Result<Sizes, ToolError> {
    let image = tempfile::NamedTempFile::new().map_err(ToolError::temporary)?;
    build(machine, Application::Empty, table, image.path())?;
    let bytes = fs::read(image.path()).map_err(|cause| of_file(image.path(), cause))?;
    let no_image = || ToolError::NoImage { path: image.path().to_owned() };
    Elf::of(&bytes).and_then(|elf| elf.sizes()).ok_or_else(no_image)
}

/// The line that says most of what compiler and linker say.
fn reason(said: &str) -> String {
    // What the linker says, and where in its line that begins.
    const OF_LINKER: [(&str, &str); 4] = [
        ("undefined reference to ", "undefined"),
        ("multiple definition of ", "multiple"),
        (" overflowed by ", "region `"),
        (" not defined", "required symbol `"),
    ];
    let of_linker = OF_LINKER.iter().find_map(|(what, begin)| {
        let line = said.lines().find(|line| line.contains(what))?;
        line[line.find(begin)?..].split(';').next()
    });
    let error = || said.lines().find(|line| line.contains("error: "));
    of_linker.or_else(error).or(said.lines().next()).unwrap_or("nothing").trim().to_owned()
}

/// Are all programs installed that a board needs? Errors: the one that is missing.
pub fn missing(machine: &Machine) -> Result<(), ToolError> {
    let asked = Command::new(machine.compiler).arg("--version").output();
    asked.map_err(|cause| machine.not_run(machine.compiler, cause))?;
    machine.qemu.first().map_or(Ok(()), |program| version(machine, program))
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With QEMU's exit code, the guest's own.
    Exit(i32),
    /// By us: it went on for longer than allowed, or printed more.
    Ended,
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub console: String,
    pub ending: Ending,
}

fn version(machine: &Machine, program: &str) -> Result<(), ToolError> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|cause| machine.not_run(program, cause))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.split_whitespace().skip_while(|word| *word != "version").nth(1);
    let found = found.unwrap_or("unknown");
    let major = found.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major >= OLDEST_QEMU) {
        return Ok(());
    }
    let (package, program) = (machine.package(program), program.to_owned());
    Err(ToolError::TooOld { program, found: found.to_owned(), package })
}

/// What QEMU says of a pseudoterminal, before the guest says anything.
const TERMINAL: &str = "char device redirected to ";

/// All that a program prints there, as it comes.
fn reader(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // What could be read counts.
            let _ = stream.take(MOST_CONSOLE_BYTES).read_to_end(&mut bytes);
        }
        // Fails if we no longer wait.
        let _ = sender.send(bytes);
    });
    receiver
}

/// Ends when it is dropped, and with us, however we end.
struct Guest(Child);

impl Guest {
    fn start(mut command: Command) -> io::Result<Self> {
        let parent = process::id();
        let end_with_parent = move || {
            // SAFETY: prctl with this option takes one number and touches no memory.
            let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // No signal comes if we have ended before.
            match set == 0 && std::os::unix::process::parent_id() == parent {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        };
        // SAFETY: what runs between fork and exec makes two system calls, and allocates nothing.
        unsafe { command.pre_exec(end_with_parent) };
        command.spawn().map(Self)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for what QEMU opens. It does not come if QEMU ends before.
fn tell<T>(guest: &mut Child, opened: impl Fn() -> Option<T>, told: impl FnOnce(T)) {
    const LOOK_EACH: Duration = Duration::from_millis(5);
    while matches!(guest.try_wait(), Ok(None)) {
        if let Some(what) = opened() {
            return told(what);
        }
        thread::sleep(LOOK_EACH);
    }
}

/// Does a program listen at this port of 127.0.0.1? To connect would take the place of the client.
fn listens(port: u16) -> bool {
    // Addresses stand there as a word of this machine; 0A is a socket that listens.
    let address = u32::from_ne_bytes([127, 0, 0, 1]);
    let listens = format!(" {address:08X}:{port:04X} 00000000:0000 0A ");
    fs::read_to_string("/proc/net/tcp").is_ok_and(|sockets| sockets.contains(&listens))
}

/// How long an instruction takes on a board, by the board's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// About what the paper's processor needed.
    Board,
    /// Long enough to be counted by any board's clock.
    Instructions,
}

impl Pace {
    /// QEMU's `-icount shift=`: an instruction takes 2^shift ns.
    const fn shift(self) -> u32 {
        match self {
            Self::Board => 5,
            Self::Instructions => 10,
        }
    }

    pub(crate) const fn ps(self) -> u64 {
        1000 << self.shift()
    }
}

/// The emulator moves its clock to the next timer as soon as the CPU sleeps. Its main loop may see
/// that the CPU sleeps before the last instructions are counted, and the timer then is late by
/// them: up to 130 in 1 of 10 runs where this machine is busy. While it records, the main loop
/// waits for the CPU. Its recording is not kept.
const AT_ONCE: &str = "sleep=off,rr=record,rrfile=/dev/null";

/// Runs an image. A guest with a trace ends itself at `until_ticks` after its epoch; any guest is
/// ended once `wall` has passed on this machine.
pub fn run(
    machine: &Machine,
    image: &Path,
    until_ticks: u64,
    wall: Duration,
    serial: Serial,
) -> Result<Output, ToolError> {
    run_at(Pace::Board, machine, image, until_ticks, wall, serial)
}

pub(crate) fn run_at(
    pace: Pace,
    machine: &Machine,
    image: &Path,
    until_ticks: u64,
    wall: Duration,
    serial: Serial,
) -> Result<Output, ToolError> {
    let bytes = fs::read(image).map_err(|cause| of_file(image, cause))?;
    let no_image = || ToolError::NoImage { path: image.to_owned() };
    let elf = Elf::of(&bytes).ok_or_else(no_image)?;
    let (program, words) = machine.qemu.split_first().ok_or_else(no_image)?;
    version(machine, program)?;
    let mut command = Command::new(program);
    let time = match serial {
        Serial::Nowhere => AT_ONCE,
        // What comes from outside does not come while QEMU records.
        Serial::Tcp { is_fast: true, .. } => "sleep=off",
        Serial::Tcp { is_fast: false, .. } | Serial::Terminal { .. } => "sleep=on",
    };
    command.args(words).args(["-icount", &format!("shift={},{time}", pace.shift())]);
    command.args(["-display", "none", "-monitor", "none", "-serial", "stdio"]);
    command.arg("-chardev").arg(serial.device()).args(machine.serial);
    command.arg("-kernel").arg(image);
    if let Some(address) = elf.end_of_trace() {
        let order = if elf.is_big_endian() { "on" } else { "off" };
        command.arg("-device").arg(format!(
            "loader,addr={address:#x},data={until_ticks:#x},data-len=8,data-be={order}"
        ));
    }
    if let Serial::Tcp { port, .. } = serial {
        // QEMU says that in many words. It opens the port itself, in a moment.
        TcpListener::bind(("127.0.0.1", port))
            .map_err(|cause| ToolError::PortTaken { port, cause })?;
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut guest = Guest::start(command).map_err(|cause| machine.not_run(program, cause))?;
    match serial {
        Serial::Terminal { link, told } => {
            tell(&mut guest.0, || fs::read_link(link).ok(), |path| told(&path));
        }
        Serial::Tcp { port, told: Some(told), .. } => {
            tell(&mut guest.0, || listens(port).then_some(()), |()| told());
        }
        Serial::Tcp { told: None, .. } | Serial::Nowhere => {}
    }
    let console = reader(guest.0.stdout.take());
    let errors = reader(guest.0.stderr.take());
    let text = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes);
        match text.split_once('\n') {
            Some((first, rest)) if first.starts_with(TERMINAL) => rest.to_owned(),
            _ => text.into_owned(),
        }
    };
    let (bytes, is_over) = match console.recv_timeout(wall) {
        Ok(bytes) => {
            let is_over = bytes.len() as u64 == MOST_CONSOLE_BYTES;
            (bytes, is_over)
        }
        Err(_) => {
            // The reader then has all of it.
            let _ = guest.0.kill();
            (console.recv().unwrap_or_default(), true)
        }
    };
    if is_over {
        return Ok(Output { console: text(bytes), ending: Ending::Ended });
    }
    let status = guest.0.wait().map_err(|cause| machine.not_run(program, cause))?;
    let said = text(errors.recv().unwrap_or_default());
    match status.code() {
        Some(0) => {}
        Some(_) if bytes.is_empty() && !said.is_empty() => {
            let said = said.lines().next().unwrap_or_default().to_owned();
            return Err(ToolError::NotStarted { said });
        }
        _ => {}
    }
    Ok(Output { console: text(bytes), ending: Ending::Exit(status.code().unwrap_or(1)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_names_the_cause_is_told() {
        let of_linker = "in: In function `main':\n\
                         ld: /tmp/c.o:(.rodata): undefined reference to `blink'\n\
                         collect2: error: ld returned 1 exit status\n";
        assert_eq!(reason(of_linker), "undefined reference to `blink'");
        let of_compiler = "main.c: In function 'main':\nmain.c:3:1: error: expected ';'\n";
        assert_eq!(reason(of_compiler), "main.c:3:1: error: expected ';'");
        for (of_linker, expected) in [
            (
                "ld: a.elf section `.bss' will not fit in region `ram'\n\
              ld: region `ram' overflowed by 12 bytes\ncollect2: error: ld returned 1 exit status",
                "region `ram' overflowed by 12 bytes",
            ),
            (
                "ld: start.o: in function `reset':\n(.text+0x0): multiple definition of `reset'; \
              main.o:(.text+0x4): first defined here\ncollect2: error: ld returned 1 exit status",
                "multiple definition of `reset'",
            ),
            (
                "ld: required symbol `program' not defined\ncollect2: error: ld returned 1",
                "required symbol `program' not defined",
            ),
        ] {
            assert_eq!(reason(of_linker), expected);
        }
        assert_eq!(reason("out of memory"), "out of memory");
        assert_eq!(reason(""), "nothing");
    }
}
