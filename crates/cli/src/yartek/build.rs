// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek build`: the table of a proved set, and an image with it.

use super::guest::of_tool;
use super::project::Project;
use super::{board_help, on_board};
use crate::analyze::files::{write, wrong};
use crate::exit::{NOT_PROVED, UNEXPECTED, USAGE, failure};
use crate::output::write_bytes;
use crate::table::table;
use anyhow::Result;
use asmp_yartek::{Application, Part};
use std::fs;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML or CSV, or a directory
    ///
    /// `asmp help analysis` describes the file. A directory has one task set, *.toml, and the
    /// application, *.c. Example: asmp yartek build robot.toml --board mcf5208evb
    #[arg(value_name = "tasks.toml|DIR")]
    file: PathBuf,
    /// The board [default: the one that the file names]
    #[arg(long, value_name = "NAME", long_help = board_help("the one that the file names"))]
    board: Option<String>,
    /// Write the image, for QEMU's -kernel [default: beside the task set]
    ///
    /// It needs the compiler of the board. Without -o and --table, the image of robot.toml is
    /// robot.elf in the same directory. Example: -o image.elf
    #[arg(short = 'o', long = "image", value_name = "FILE")]
    image: Option<PathBuf>,
    /// Write the table, a file of C
    ///
    /// It goes with yartek.h of the repository, and needs no compiler. Without -o no image is made.
    /// Example: --table table.c
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// A C file of the application; repeatable
    ///
    /// It has the entries that the file names, main() and yk_fault(). Without it the image of a
    /// file prints each job. It is added to those of a directory. Example: --app main.c --app
    /// sonar.c
    #[arg(long = "app", value_name = "FILE")]
    app: Vec<PathBuf>,
    /// Build a set that is not proved
    ///
    /// The image says `unproved` in its banner. Example: --unproved
    #[arg(long)]
    unproved: bool,
}

/// Errors: nothing is written.
pub fn build(args: &Args) -> Result<u8> {
    let mut project = Project::at(&args.file)?;
    project.sources.extend(args.app.iter().cloned());
    let set = on_board(&project.tasks, args.board.as_deref())?;
    let beside = project.tasks.with_extension("elf");
    let image = match (args.image.as_deref(), &args.table) {
        (None, None) => Some(&*beside),
        (None, Some(_)) if !args.app.is_empty() => {
            return Err(failure(USAGE, "--app goes into an image: give -o FILE, too"));
        }
        (image, _) => image,
    };
    let outputs = [("-o", image), ("--table", args.table.as_deref())];
    project.keep(&set.file.inputs, &outputs)?;
    let (file, board) = (project.tasks.display(), &set.board.name);
    let proof = match set.doubt() {
        None => format!("np-edf: {}", set.answer()),
        Some(_) if args.unproved => "unproved".to_owned(),
        Some(doubt) => {
            let what = format!("{file}: np-edf on {board}: {}: {doubt}", set.answer());
            return Err(failure(NOT_PROVED, format!("{what}: --unproved builds it nevertheless")));
        }
    };
    let source = set.table.source(Some(&proof));
    let (mut parts, mut bytes) = (vec![], None);
    if let Some(image) = image {
        let application = project.application()?;
        let entries = set.table.tasks.iter().map(|task| (&task.name, &task.entry));
        let mut entries =
            entries.chain(set.table.lines.iter().map(|line| (&line.name, &line.entry)));
        let first = entries.find_map(|(of, entry)| Some((of, entry.as_ref()?)));
        if let (Some((of, entry)), Application::Spin) = (first, application) {
            let what = format!("{file}: {of} has the entry {entry}: name the file that has it");
            let cure = "for example --app main.c, or give the directory that has both";
            return Err(failure(USAGE, format!("{what}, {cure}")));
        }
        let made = tempfile::NamedTempFile::new();
        let made = made.map_err(|error| failure(UNEXPECTED, error.to_string()))?;
        let built = asmp_yartek::build(&set.board.machine(), application, &source, made.path());
        parts = built.map_err(|error| of_tool(&error))?;
        let read = fs::read(made.path()).map_err(|error| wrong(image, &error.to_string()))?;
        bytes = Some((image, read));
    }
    if let Some(path) = &args.table {
        write(path, &source)?;
    }
    if let Some((image, bytes)) = bytes {
        write_bytes(image, &bytes)?;
    }
    let tasks = set.table.tasks.len();
    for (_, path) in outputs.iter().filter_map(|(option, path)| Some((option, (*path)?))) {
        println!("{}: {tasks} tasks for {board}, {proof}", path.display());
    }
    if !parts.is_empty() {
        print!("{}", table(&rows(&parts)));
    }
    Ok(0)
}

/// Sizes by source in bytes, the largest first, and their sums.
fn rows(parts: &[Part]) -> Vec<[String; 3]> {
    let row = |name: &str, flash: u64, ram: u64| {
        [format!("  {name}"), format!("{flash:>9}"), format!("{ram:>9}")]
    };
    let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum();
    let mut rows = vec![["  part", "flash (B)", "  RAM (B)"].map(str::to_owned)];
    rows.extend(parts.iter().map(|part| row(&part.name, part.flash_bytes, part.ram_bytes)));
    rows.push(row("all", sum(|part| part.flash_bytes), sum(|part| part.ram_bytes)));
    rows
}
