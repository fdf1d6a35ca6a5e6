// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `partitions.toml`, read and checked, or a directory of such files: asmp-partitions(5).

use crate::exit::{BAD_FILE, code_of, failure};
use crate::print::chain;
use anyhow::Result;
use asmp_analysis::syntax;
use asmp_daemon::policy::FILE as POLICY;
use asmp_host::limited::{MOST_BYTES, read_at_most, read_regular_at_most};
use asmp_shield::declaration::Wrong;
use asmp_shield::{ChangeError, Declaration, Refusal};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// What was read, for the lines of what is refused later. Their partitions follow each other.
pub struct Source {
    files: Vec<File>,
}

struct File {
    path: PathBuf,
    text: String,
    /// How many it declares.
    partitions: usize,
}

/// Reads and checks a file, or all files of a directory, which are one declaration then. Errors:
/// exit code 40 with the place in the file.
pub fn read(path: &Path) -> Result<(Declaration, Source)> {
    let is_dir = path.is_dir();
    let paths = match is_dir {
        true => files_of(path).map_err(|reason| wrong(path, &reason))?,
        false => vec![path.to_owned()],
    };
    let mut all = Declaration::default();
    let mut source = Source { files: Vec::new() };
    for path in paths {
        let bytes = match is_dir {
            // A FIFO among them would never end.
            true => read_regular_at_most(&path, MOST_BYTES),
            false => read_at_most(&path, MOST_BYTES),
        };
        let parsed = text(bytes, SPLIT).and_then(|text| Ok((parse(&text)?, text)));
        let (declaration, text) = parsed.map_err(|reason| wrong(&path, &reason))?;
        source.files.push(File { path, text, partitions: declaration.partitions.len() });
        all.partitions.extend(declaration.partitions);
    }
    all.check().map_err(|error| source.wrong(&error))?;
    Ok((all, source))
}

/// The files `*.toml` of a directory in the order of their names. Errors: in words.
fn files_of(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut files, mut has_policy) = (Vec::new(), false);
    for entry in fs::read_dir(dir).map_err(|error| unreadable(&error))? {
        let path = entry.map_err(|error| unreadable(&error))?.path();
        // Editors keep files of their own with such names.
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // asmpd's file of grants lies in the same directory.
        let is_policy = path.file_name() == Path::new(POLICY).file_name();
        has_policy |= is_policy;
        if !is_hidden && !is_policy && path.extension().is_some_and(|end| end == "toml") {
            files.push(path);
        }
    }
    files.sort();
    match files.is_empty() && !has_policy {
        true => Err("no file in it has a name that ends in .toml".to_owned()),
        false => Ok(files),
    }
}

impl Source {
    /// The error with file and line, where the machine does not have what an entry asks for.
    pub fn place(&self, declaration: &Declaration, error: ChangeError) -> anyhow::Error {
        let place = match error.cause() {
            ChangeError::Refused(refusal) => about(declaration, refusal),
            _ => None,
        };
        let place = place.and_then(|wrong| self.line_of(&wrong));
        let error = anyhow::Error::from(error);
        match place {
            Some((path, line)) => {
                let words = format!("{}: line {line}, {}", path.display(), chain(&error));
                failure(code_of(&error), words)
            }
            None => error,
        }
    }

    /// The refusal of what is wrong in one of the files.
    fn wrong(&self, error: &Wrong) -> anyhow::Error {
        let place = self.line_of(error);
        let (path, line) = place.unwrap_or_else(|| (&self.files[0].path, 1));
        wrong(path, &format!("line {line}, {}", error.reason))
    }

    /// File and line of what is wrong.
    fn line_of(&self, wrong: &Wrong) -> Option<(&Path, usize)> {
        let mut before = 0;
        let file = self.files.iter().find(|file| {
            before += file.partitions;
            wrong.partition < before
        })?;
        let partition = wrong.partition + file.partitions - before;
        Some((&file.path, line_of(&file.text, &Wrong { partition, ..wrong.clone() })?))
    }
}

/// Which entry a refusal is about.
fn about(declaration: &Declaration, refusal: &Refusal) -> Option<Wrong> {
    let reason = String::new();
    match refusal {
        Refusal::BadDeclaration { partition, task, key, .. } => {
            Some(Wrong { partition: *partition, task: *task, key: *key, reason })
        }
        Refusal::Declared { partition, cause } => {
            let mut all = declaration.partitions.iter();
            let partition = all.position(|declared| declared.name == *partition)?;
            Some(Wrong { partition, task: None, key: key_of(cause), reason })
        }
        _ => None,
    }
}

/// The key of a partition that a refusal is about.
fn key_of(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::BadName { .. } => Some("name"),
        Refusal::NoCpus { .. }
        | Refusal::UnknownCpus { .. }
        | Refusal::OfflineCpus { .. }
        | Refusal::TakenCpus { .. }
        | Refusal::ForeignIsolated { .. }
        | Refusal::ExclusiveElsewhere { .. }
        | Refusal::LastCpu { .. }
        | Refusal::Sibling { .. } => Some("cpus"),
        Refusal::TooFewCpus { .. } | Refusal::UnevenCores { .. } | Refusal::NoWholeCores { .. } => {
            Some("count")
        }
        Refusal::UnknownPlace { .. }
        | Refusal::VirtualPlace { .. }
        | Refusal::EmptyPlace { .. } => Some("near"),
        Refusal::UnknownIrq { .. } | Refusal::PerCpuIrq { .. } | Refusal::TakenIrq { .. } => {
            Some("irqs")
        }
        Refusal::TickNotCandidate { .. } | Refusal::TickNeverStops => Some("tick"),
        _ => None,
    }
}

/// A refusal of a file. A line of the file may be of any length; what is shown of it is not.
pub fn wrong(path: &Path, reason: &str) -> anyhow::Error {
    let reason = reason.trim_end();
    let most = 400;
    let shown = match reason.chars().count() {
        count if count > most => {
            let begin = reason.chars().take(most / 2).collect::<String>();
            let end = reason.chars().skip(count - most / 2).collect::<String>();
            format!("{begin} … {end}")
        }
        _ => reason.to_owned(),
    };
    failure(BAD_FILE, format!("{}: {shown}", path.display()))
}

/// What helps where a file that people write is too long.
pub const SPLIT: &str = "split the file";

/// The text of a file of at most so many bytes. Not more than that is read, of a device neither.
/// Errors: why not; of one that is longer, with the cure.
pub fn text_of(path: &Path, most_bytes: u64, cure: &str) -> Result<String, String> {
    text(read_at_most(path, most_bytes), cure)
}

/// What was read as text.
pub fn text(read: io::Result<Vec<u8>>, cure: &str) -> Result<String, String> {
    let bytes = read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => format!("{error}: {cure}"),
        _ => unreadable(&error),
    })?;
    String::from_utf8(bytes).map_err(|_| unreadable(&io::ErrorKind::InvalidData.into()))
}

/// Why a text file cannot be read.
pub fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData => "cannot be read: it is no text (UTF-8)".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

fn parse(text: &str) -> Result<Declaration, String> {
    let declaration: Declaration = toml::from_str(text).map_err(|error| {
        let reason = syntax::in_a_line(text, &error);
        match ["`grant`", "`channel`"].iter().any(|key| reason.contains(&format!("key {key}:"))) {
            true => format!("{reason}; it belongs in {POLICY}: asmp help policy"),
            false => reason,
        }
    })?;
    declaration.check().map_err(|wrong| {
        let number = line_of(text, &wrong).map_or(String::new(), |line| format!("line {line}, "));
        format!("{number}{}", wrong.reason)
    })?;
    Ok(declaration)
}

/// The line, from 1, of the key that is wrong, else of the table where it is missing.
fn line_of(text: &str, wrong: &Wrong) -> Option<usize> {
    let file = DeTable::parse(text).ok()?;
    let mut place = file.get_ref().get("partition")?.get_ref().get(wrong.partition)?;
    if let Some(task) = wrong.task {
        place = place.get_ref().get("task")?.get_ref().get(task)?;
    }
    let table = place.get_ref().as_table()?;
    let key = wrong.key.and_then(|key| table.get_key_value(key));
    let at = key.map_or(place.span(), |(key, _)| key.span()).start;
    Some(text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_shield::{Cpus, Need, Tick, declaration::IrqName};

    #[test]
    fn a_file_declares_partitions() {
        let file = parse(
            "[[partition]]\nname = \"motion\"\ncpus = \"2-3\"\nirqs = [\"eth1\", 24]\n\
             tick = \"keep\"\n\
             [[partition.task]]\ncommand = \"jackd\"\npolicy = \"fifo:80\"\n",
        )
        .unwrap();
        let irqs = file.partitions[0].irqs.iter().map(IrqName::text).collect::<Vec<_>>();
        assert_eq!(irqs, ["eth1", "24"]);
        assert_eq!(file.partitions[0].tick, Tick::Keep);
        let policy = file.partitions[0].tasks[0].policy.unwrap();
        assert_eq!(policy.to_string(), "fifo:80");
    }

    #[test]
    fn a_file_asks_for_cpus_by_number() {
        let text = "[[partition]]\nname = \"a\"\ncount = 2\nnear = 24\nwhole_cores = true\n";
        let need = Need { count: 2, near: Some("24".to_owned()), whole_cores: true };
        let file = parse(text).unwrap();
        assert_eq!(file.partitions[0].wanted(), Ok(Cpus::Needed(need)));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_place() {
        let a = "[[partition]]\nname = \"a\"\n";
        let a3 = format!("{a}cpus = \"3\"\n");
        for (text, says) in [
            (format!("{a3}colour = 1\n"), "colour"),
            (a.to_owned(), "cpus"),
            (format!("{a}cpus = \"three\"\n"), "three"),
            (format!("{a3}count = 2\n"), "either cpus or count"),
            (format!("{a3}near = \"eth1\"\n"), "near and whole_cores go with count"),
            (format!("{a}count = 0\n"), "use 1 or more"),
            (format!("{a}count = -1\n"), "-1"),
            (format!("{a}count = \"2\"\n"), "\"2\""),
            (format!("{a}count = 2\nnear = 1.5\n"), "found 1.5; expected the number of an IRQ"),
            (format!("{a3}{a}cpus = \"2\"\n"), "twice"),
            (format!("{a3}[[partition.task]]\npolicy = \"rr:1\"\n"), "either"),
            (format!("{a3}[[partition.task]]\ncommand = \"x\"\npolicy = \"rr:0\"\n"), "1 to 99"),
            (
                format!("{a3}[[partition.task]]\ncommand = \"a-name-of-17-byte\"\n"),
                "\"a-name-of-17-by\"",
            ),
            ("[[partition]\n".to_owned(), "expected"),
            (format!("{a3}irqs = [-4]\n"), "line 4, irqs = [-4]: found -4; expected the number of"),
            (format!("{a3}irqs = [1.5]\n"), "found 1.5; expected the number of an IRQ line"),
            (format!("{a3}irqs = [4294967296]\n"), "found 4294967296; expected"),
            (format!("{a}cpus = 3\n"), "found 3; expected a text in quotes, such as \"3\""),
            (format!("{a3}tick = 1979-05-27\n"), "in quotes"),
            ("[[grant]]\nusers = [1]\n".to_owned(), "belongs in /etc/asmp/policy.toml"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
            assert!(error.starts_with("line "), "{text}: {error}");
        }
    }

    #[test]
    fn what_only_the_whole_file_shows_to_be_wrong_is_said_with_its_line() {
        let two = "# CPUs\n[[partition]]\nname = \"a\"\ncpus = \"2\"\n\n[[partition]]\n";
        let b = format!("{two}name = \"b\"\n");
        let b3 = format!("{b}cpus = \"3\"\n");
        let task = format!("{b3}[[partition.task]]\ncommand = \"x\"\n\n[[partition.task]]\n");
        for (text, says) in [
            (format!("{two}cpus = \"3\"\nname = \"a\"\n"), "line 8, partition a is declared"),
            (b.clone(), "line 6, partition b: cpus or count is missing"),
            (format!("{b}count = 1\ncpus = \"3\"\n"), "line 8, partition b: use either cpus or"),
            (format!("{b3}\nnear = 24\n"), "line 10, partition b: near and whole_cores"),
            (format!("{b3}whole_cores = true\n"), "line 9, partition b: near and whole_cores"),
            (format!("{b}count = 0\n"), "line 8, partition b: count = 0"),
            (format!("{b3}irq_priority = 0\n"), "line 9, partition b: irq_priority 0: use 1 to"),
            (task.clone(), "line 12, partition b: a task has either command or unit"),
            (
                format!("{task}unit = \"y\"\ncommand = \"y\"\n"),
                "line 13, partition b: a task has either command or unit",
            ),
            (
                format!("{task}policy = \"rr:1\"\ncommand = \"sixteen-letters-\"\n"),
                "line 14, partition b: command \"sixteen-letters-\" matches no task",
            ),
            (
                "partition = [\n{ name = \"a\", cpus = \"2\" },\n{ name = \"b\" }]\n".to_owned(),
                "line 3, partition b: cpus or count is missing",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }

    /// A directory with these files.
    fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    /// What is said of a directory, without its path.
    fn refused(dir: &tempfile::TempDir) -> String {
        let error = read(dir.path()).err().expect("it is refused");
        assert_eq!(code_of(&error), BAD_FILE);
        chain(&error).replace(&format!("{}", dir.path().display()), "DIR")
    }

    const A: &str = "[[partition]]\nname = \"a\"\ncpus = \"3\"\n";
    const B: &str = "# CPUs\n[[partition]]\nname = \"b\"\ncpus = \"2\"\n";

    #[test]
    fn the_files_of_a_directory_are_one_declaration_in_the_order_of_their_names() {
        let dir = dir(&[
            ("20-a.toml", A),
            ("10-b.toml", B),
            (".#10-b.toml", "none"),
            ("10-b.toml~", "none"),
            ("README", "none"),
        ]);
        let (declaration, source) = read(dir.path()).unwrap();
        let names: Vec<&str> = declaration.partitions.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["b", "a"]);
        let refusal =
            Refusal::Declared { partition: "a".to_owned(), cause: Box::new(Refusal::NotRoot) };
        let placed = chain(&source.place(&declaration, ChangeError::Refused(refusal)));
        assert!(placed.contains("20-a.toml: line 1, "), "{placed}");
    }

    #[test]
    fn what_is_wrong_in_a_directory_is_said_with_file_and_line() {
        let a2 = format!("{A}cpu = 1\n");
        for (files, says) in [
            (vec![("a.toml", A), ("b.toml", &a2)], "DIR/b.toml: line 4, "),
            (vec![("a.toml", A), ("b.toml", B), ("c.toml", A)], "DIR/c.toml: line 2, partition a"),
            (vec![("b", B)], "DIR: no file in it has a name that ends in .toml"),
        ] {
            let error = refused(&dir(&files));
            assert!(error.starts_with(says), "{error}");
        }
        let fifo = dir(&[("a.toml", A)]);
        let made = std::process::Command::new("mkfifo").arg(fifo.path().join("b.toml")).status();
        assert!(made.unwrap().success());
        assert!(refused(&fifo).starts_with("DIR/b.toml: cannot be read: not a regular file"));
    }
}
