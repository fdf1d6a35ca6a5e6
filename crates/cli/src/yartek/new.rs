// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek new`: a project that builds and runs.

use super::{board_by_option, boards, which_board};
use crate::exit::{USAGE, failure};
use crate::file::wrong;
use crate::print::shell_word;
use anyhow::Result;
use asmp_host::store::replace_file;
use asmp_yartek::new_project;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory to make
    ///
    /// Its last name is that of the project: letters, digits, - and _, the first of them a letter
    /// or a digit. If it is there already, it must be empty. Example: asmp yartek new motor --board
    /// mps2-an385
    #[arg(value_name = "DIR")]
    dir: String,
    /// The board
    #[arg(long, value_name = "NAME",
        long_help = format!("The board\n\n{}. Example: --board mps2-an385", boards()))]
    board: Option<String>,
}

pub fn new(args: &Args) -> Result<u8> {
    let given = Path::new(&args.dir);
    let name = name(given).ok_or_else(|| {
        let what = format!("{:?} names no project: end it with letters, digits, - or _", args.dir);
        failure(USAGE, format!("{what}, a letter or a digit first, for example motor"))
    })?;
    let board = match &args.board {
        Some(name) => board_by_option(name)?,
        None => return Err(which_board("give --board NAME")),
    };
    let files = new_project(name, &board);
    // Without a slash or a dot behind it.
    let dir = given.with_file_name(name);
    let parent = dir.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(wrong(parent, "is no directory: make it first"));
    }
    let unmade = |error: io::Error| wrong(&dir, &format!("cannot be made: {error}"));
    if !is_free(&dir).map_err(unmade)? {
        return Err(wrong(&dir, "exists, and is not an empty directory: name another"));
    }
    make(&dir, parent, &files).map_err(unmade)?;
    let shown = dir.to_string_lossy();
    println!("{shown}: {} files for {}, README.md says what they are", files.len(), board.name);
    // No option.
    let at = if shown.starts_with('-') { format!("./{shown}") } else { shown.into_owned() };
    let at = shell_word(&at);
    println!("  asmp yartek check {at}\n  asmp yartek run {at} --for 1s");
    Ok(0)
}

/// It becomes a part of file names, commands and texts. `None`: the path ends with no such name.
fn name(dir: &Path) -> Option<&str> {
    let name = dir.file_name()?.to_str()?;
    let is_letter = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    (name.starts_with(char::is_alphanumeric) && name.chars().all(is_letter)).then_some(name)
}

fn is_free(dir: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
        Ok(about) => Ok(about.is_dir() && fs::read_dir(dir)?.next().is_none()),
    }
}

/// All of it or nothing: it is made beside, and gets its name last. A kill leaves what is beside.
fn make(dir: &Path, parent: &Path, files: &[(String, String)]) -> io::Result<()> {
    let mut beside = tempfile::Builder::new();
    let all = Permissions::from_mode(0o777);
    let beside = beside.prefix(".asmp-new-").permissions(all).tempdir_in(parent)?;
    for (name, text) in files {
        replace_file(&beside.path().join(name), text.as_bytes(), 0o666)?;
    }
    // An empty directory is replaced.
    if let Ok(empty) = fs::symlink_metadata(dir) {
        fs::set_permissions(beside.path(), empty.permissions())?;
    }
    fs::rename(beside.path(), dir)?;
    // There is nothing of that name to remove.
    let _ = beside.keep();
    Ok(())
}
