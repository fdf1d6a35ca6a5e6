// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek program`: a program for the disk of a board that runs.

use super::guest::of_tool;
use super::tcp_port;
use crate::analyze::files::{separate, write};
use crate::exit::{BAD_FILE, BAD_GUEST, NO_TOOL, NOT_ON_BOARD, USAGE, failure};
use anyhow::Result;
use asmp_yartek::{ANSWER_WITHIN, ProgramError, is_disk_name, send, shell_lines};
use std::net::TcpStream;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// C files of the program
    ///
    /// One has `void program(void *)`, where it begins. Example: asmp yartek program count.c
    /// --image shell.elf --to tcp:5555
    #[arg(value_name = "FILE.c", required = true)]
    sources: Vec<PathBuf>,
    /// The image that the board runs
    ///
    /// `asmp yartek build` has made it. Its application has a yk_program_area. Example: --image
    /// shell.elf
    #[arg(long, value_name = "FILE")]
    image: PathBuf,
    /// Send it to a board that runs, by its serial line
    ///
    /// The line of `asmp yartek run --serial tcp:PORT`, with a shell. A file of that name on its
    /// disk is replaced. Example: --to tcp:5555
    #[arg(long, value_name = "tcp:PORT", required_unless_present = "output")]
    to: Option<String>,
    /// Its name on the disk [default: that of the first C file]
    ///
    /// 15 letters, digits and signs at most. Example: --name count
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write lines that a shell makes the file of
    ///
    /// For a line that is no port of TCP: a terminal program sends them, each after the shell has
    /// asked. Example: -o count.txt
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn program(args: &Args) -> Result<u8> {
    let name = name(args)?;
    let port = args.to.as_deref().map(|to| {
        let other = || Err("give tcp: and a port, for example tcp:5555".to_owned());
        let port = tcp_port(to).unwrap_or_else(other);
        port.map_err(|what| failure(USAGE, format!("--to: {what}")))
    });
    let port = port.transpose()?;
    let inputs: Vec<PathBuf> = args.sources.iter().chain([&args.image]).cloned().collect();
    separate(&inputs, &[("-o", args.output.as_deref())])?;
    let bytes =
        asmp_yartek::program(&args.image, &args.sources).map_err(|error| refused(&error))?;
    let size = bytes.len();
    if let Some(output) = &args.output {
        let lines = shell_lines(&name, &bytes).join("\n");
        write(output, &format!("rm {name}\n{lines}\n"))?;
        println!("{}: makes the file {name}, {size} bytes", output.display());
    }
    if let Some(port) = port {
        sent(port, &name, &bytes)?;
        println!("tcp:{port}: {name}, {size} bytes; there `exec {name}` begins it");
    }
    Ok(0)
}

fn name(args: &Args) -> Result<String> {
    let of_file = || args.sources.first().and_then(|path| path.file_stem());
    let name = args.name.clone().or_else(|| of_file().map(|name| name.to_string_lossy().into()));
    let name = name.unwrap_or_default();
    if is_disk_name(&name) {
        return Ok(name);
    }
    let cure = "give --name with 1 to 15 letters, digits or signs";
    Err(failure(USAGE, format!("{name} is no name for the board's disk: {cure}")))
}

fn sent(port: u16, name: &str, bytes: &[u8]) -> Result<()> {
    let failed = |what: String| failure(BAD_GUEST, format!("tcp:{port}: {what}"));
    let mut line = TcpStream::connect(("127.0.0.1", port)).map_err(|error| {
        let cure = format!("start the image with asmp yartek run IMAGE --serial tcp:{port}");
        failed(format!("{error}: {cure}"))
    })?;
    let timeout = line.set_read_timeout(Some(ANSWER_WITHIN));
    timeout.map_err(|error| failed(error.to_string()))?;
    send(&mut line, name, bytes).map_err(|error| failed(error.to_string()))
}

fn refused(error: &ProgramError) -> anyhow::Error {
    let code = match error {
        ProgramError::Tool(error) => return of_tool(error),
        ProgramError::NoImage { .. } | ProgramError::NoArea { .. } => BAD_FILE,
        ProgramError::TooLong { .. } => NOT_ON_BOARD,
        ProgramError::NotThere { .. } | ProgramError::NoEntry => NO_TOOL,
    };
    failure(code, error.to_string())
}
