// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `partitions.toml`, read and checked: asmp-partitions(5).

use crate::exit::{BAD_FILE, code_of, failure};
use crate::print::chain;
use anyhow::Result;
use asmp_analysis::syntax;
use asmp_host::limited::{MOST_BYTES, read_at_most};
use asmp_shield::declaration::Wrong;
use asmp_shield::{ChangeError, Declaration, Refusal};
use std::io;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A file and its text, for the lines of what is refused later.
pub struct Source {
    path: PathBuf,
    text: String,
}

/// Reads and checks a file. Errors: exit code 40 with the place in the file.
pub fn read(path: &Path) -> Result<(Declaration, Source)> {
    let bad = |reason: String| wrong(path, &reason);
    let text = text_of(path, MOST_BYTES, SPLIT).map_err(bad)?;
    let declaration = parse(&text).map_err(bad)?;
    Ok((declaration, Source { path: path.to_owned(), text }))
}

impl Source {
    /// The error with file and line, where the machine does not have what an entry asks for.
    pub fn place(&self, declaration: &Declaration, error: ChangeError) -> anyhow::Error {
        let line = match error.cause() {
            ChangeError::Refused(refusal) => self.line_of(declaration, refusal),
            _ => None,
        };
        let error = anyhow::Error::from(error);
        match line {
            Some(line) => {
                let words = format!("{}: line {line}, {}", self.path.display(), chain(&error));
                failure(code_of(&error), words)
            }
            None => error,
        }
    }

    fn line_of(&self, declaration: &Declaration, refusal: &Refusal) -> Option<usize> {
        let reason = String::new();
        let wrong = match refusal {
            Refusal::BadDeclaration { partition, task, key, .. } => {
                Wrong { partition: *partition, task: *task, key: *key, reason }
            }
            Refusal::Declared { partition, cause } => {
                let mut all = declaration.partitions.iter();
                let partition = all.position(|declared| declared.name == *partition)?;
                Wrong { partition, task: None, key: key_of(cause), reason }
            }
            _ => return None,
        };
        line_of(&self.text, &wrong)
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
    let declaration: Declaration =
        toml::from_str(text).map_err(|error| syntax::in_a_line(text, &error))?;
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
}
