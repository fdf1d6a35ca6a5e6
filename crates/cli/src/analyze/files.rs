// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the computing commands read and write: task sets, pictures, JSON. Errors have exit code 40.

use crate::exit::{NO_TASKS, UNDECIDED, USAGE, failure};
pub use crate::file::wrong;
use crate::file::{SPLIT, text, text_of};
pub use crate::output::write;
use anyhow::Result;
use asmp_analysis::file::{FileError, Places};
use asmp_analysis::{About, Inapplicable, Stop, TimeBase, Verdict, Workload, file};
use asmp_host::limited::{MOST_BYTES, read_json_at_most};
use asmp_measure::run::{Experiment, Run};
use serde_json::{Map, Value};
use std::cell::{OnceCell, RefCell};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn read(path: &Path) -> Result<String> {
    text_of(path, MOST_BYTES, SPLIT).map_err(|reason| wrong(path, &reason))
}

/// Reads what another command printed. It may be 16 times as long as a file that people write.
pub fn read_output(path: &Path) -> Result<String> {
    let cure = "analyze one policy, or replay the counterexample alone";
    let read = read_json_at_most(path, MOST_BYTES << 4);
    if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidData) {
        return Err(wrong(
            path,
            "is no output of asmp analyze --json: it begins with neither { nor [",
        ));
    }
    text(read, cure).map_err(|reason| wrong(path, &reason))
}

/// A task set and its text, for the lines of what is refused later.
pub struct TaskFile {
    pub workload: Workload,
    /// What was read: the file itself, and the runs of measured costs.
    pub inputs: Vec<PathBuf>,
    path: PathBuf,
    text: String,
    is_csv: bool,
    places: OnceCell<Places>,
}

/// A task set: CSV by the name of the file, else TOML.
pub fn tasks(path: &Path) -> Result<TaskFile> {
    let text = read(path)?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let inputs = RefCell::new(vec![path.to_owned()]);
    let measured = |run: &str| longest_of(&beside.join(run), &inputs);
    let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let parse = if is_csv { file::from_csv } else { file::from_toml };
    let workload = parse(&text, &measured).map_err(|error| match error {
        FileError::NoTasks => failure(NO_TASKS, format!("{}: {error}", path.display())),
        error => wrong(path, &error.to_string()),
    })?;
    let (path, inputs) = (path.to_owned(), inputs.take());
    Ok(TaskFile { workload, inputs, path, text, is_csv, places: OnceCell::new() })
}

impl TaskFile {
    /// The refusal with file and line, where it is about an entry of the file.
    pub fn placed(&self, refusal: Inapplicable) -> Inapplicable {
        let places = self.places.get_or_init(|| match self.is_csv {
            true => Places::in_csv(&self.text),
            false => Places::in_toml(&self.text),
        });
        match places.line_of(&self.text, &refusal) {
            Some(line) => {
                let place = format!("{}: line {line}", self.path.display());
                Inapplicable::InFile { place, reason: Box::new(refusal) }
            }
            None => refusal,
        }
    }

    /// The same in verdicts. What one reason is of all chains or CPUs is looked up once.
    pub fn place<'a>(&self, verdicts: impl Iterator<Item = &'a mut Verdict>) {
        let mut last: Option<(Inapplicable, Inapplicable)> = None;
        for verdict in verdicts {
            let Verdict::DoesNotApply { reason } = verdict else { continue };
            let placed = match &last {
                Some((refusal, placed)) if refusal == reason => placed.clone(),
                _ => self.placed(reason.clone()),
            };
            last = Some((std::mem::replace(reason, placed.clone()), placed));
        }
    }

    /// No answer: exit code 61, with the file, and the line of what is to blame.
    pub fn undecided(&self, stop: Stop) -> anyhow::Error {
        let words = match stop {
            Stop::Inapplicable(refusal) => match self.placed(refusal) {
                placed @ Inapplicable::InFile { .. } => placed.to_string(),
                refusal => format!("{}: {refusal}", self.path.display()),
            },
            Stop::Doubt(doubt) => format!("{}: {doubt}", self.path.display()),
        };
        failure(UNDECIDED, words)
    }

    /// The same of a chain.
    pub fn undecided_by_chain(&self, name: &str, what: &str) -> anyhow::Error {
        let (about, what) = (About::Chain(name.to_owned()), format!("chain {name}: {what}"));
        self.undecided(Inapplicable::Set { about, key: "", what }.into())
    }
}

/// The longest turn of a measured loop. A latency is no execution time.
fn longest_of(dir: &Path, inputs: &RefCell<Vec<PathBuf>>) -> Result<u64, String> {
    let run = Run::read(dir).map_err(|error| error.to_string())?;
    inputs.borrow_mut().extend(run.files());
    if run.provenance.experiment != Experiment::Overhead {
        return Err(format!("{}: measures latency, not execution time", dir.display()));
    }
    let mut longest = None;
    let read = run.each_sample(|sample| longest = longest.max(Some(sample.value_ns)));
    read.map_err(|error| error.to_string())?;
    longest.ok_or_else(|| format!("{}: has no samples", dir.display()))
}

/// Refuses an option that would replace a file that the command reads, or that another option
/// writes, before anything is written. Devices and pipes may be named twice.
pub fn separate(inputs: &[PathBuf], outputs: &[(&str, Option<&Path>)]) -> Result<()> {
    let mut known: Vec<(FileIdentity, String)> = Vec::new();
    for path in inputs {
        known.extend(identity(path).map(|one| (one, "a file that the command reads".to_owned())));
    }
    for (option, path) in outputs {
        let Some((path, one)) = path.and_then(|path| Some((path, identity(path)?))) else {
            continue;
        };
        if let Some((_, other)) = known.iter().find(|(known, _)| *known == one) {
            let what = format!("{option} {}: this is {other}", path.display());
            return Err(failure(USAGE, format!("{what}: name another file")));
        }
        known.push((one, format!("the file of {option}")));
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum FileIdentity {
    /// Device and inode.
    There(u64, u64),
    New(PathBuf),
}

/// `None`: a device or a pipe, or in a directory that is not there.
fn identity(path: &Path) -> Option<FileIdentity> {
    match std::fs::metadata(path) {
        Ok(there) if there.is_file() => Some(FileIdentity::There(there.dev(), there.ino())),
        Ok(_) => None,
        Err(_) => {
            let parent = path.parent().filter(|parent| *parent != Path::new(""));
            let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(FileIdentity::New(parent.join(path.file_name()?)))
        }
    }
}

/// Prints JSON of schema 1. Times of the library are ticks; here they are nanoseconds: a number, or
/// a text such as "4000000/3" where the time is not a whole number of them.
pub fn print_json(mut value: Value, time: TimeBase) -> Result<()> {
    value["schema"] = 1.into();
    crate::print::json(&in_ns(value, time))?;
    Ok(())
}

/// As `print_json` prints it.
pub fn in_ns(value: Value, time: TimeBase) -> Value {
    rename(value, &|key, value| match key {
        "ticks" => ("ns".to_owned(), each(value, &|ticks| exact_ns(ticks, time))),
        "guaranteed" => (key.to_owned(), each(value, &|ticks| exact_ns(ticks, time))),
        _ => match key.strip_suffix("_ticks") {
            Some(name) => (format!("{name}_ns"), each(value, &|ticks| exact_ns(ticks, time))),
            None => (key.to_owned(), value),
        },
    })
}

/// The inverse, for what `print_json` printed. A time that is not a whole number of ticks remains
/// as it is, and is refused by its field.
pub fn in_ticks(value: Value, time: TimeBase) -> Value {
    rename(value, &|key, value| match key.strip_suffix("_ns") {
        Some(name) => (format!("{name}_ticks"), each(value, &|ns| ticks_of(ns, time))),
        None => (key.to_owned(), value),
    })
}

fn exact_ns(ticks: Value, time: TimeBase) -> Value {
    let Some(exact) = ticks.as_u64().map(|ticks| time.duration(ticks)) else { return ticks };
    match exact.denominator() {
        1 => exact.numerator_ns().into(),
        below => format!("{}/{below}", exact.numerator_ns()).into(),
    }
}

fn ticks_of(ns: Value, time: TimeBase) -> Value {
    let text = match &ns {
        Value::String(fraction) => format!("{fraction} ns"),
        other => format!("{other} ns"),
    };
    let ticks = text.parse().ok().and_then(|exact| time.ticks(exact));
    ticks.map_or(ns, Value::from)
}

fn each(value: Value, convert: &dyn Fn(Value) -> Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(convert).collect(),
        one => convert(one),
    }
}

fn rename(value: Value, field: &dyn Fn(&str, Value) -> (String, Value)) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| field(&key, rename(value, field)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(|item| rename(item, field)).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ticks_become_nanoseconds_and_come_back() {
        let time = TimeBase::NANOSECONDS.including("1/3 ns".parse().unwrap()).unwrap();
        let ticks =
            json!({ "a_ticks": [3, 4, null], "b": { "by_ticks": 7, "job": 4 }, "c_ticks": null });
        let ns =
            json!({ "a_ns": [1, "4/3", null], "b": { "by_ns": "7/3", "job": 4 }, "c_ns": null });
        assert_eq!(in_ns(ticks.clone(), time), ns);
        assert_eq!(in_ticks(ns.clone(), time), ticks);
        let coarse = in_ticks(ns, TimeBase::NANOSECONDS);
        assert_eq!(coarse["b"]["by_ticks"], "7/3", "left for the field to refuse");
        assert_eq!(
            in_ns(json!({ "cost": { "guaranteed": 5 } }), time)["cost"]["guaranteed"],
            "5/3"
        );
    }
}
