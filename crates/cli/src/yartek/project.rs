// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a subcommand is given: a file alone, or a directory with a task set and its application.

use crate::analyze::files::{separate, wrong};
use anyhow::Result;
use asmp_yartek::Application;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Project {
    /// The task set; of a file alone, whichever file it is.
    pub tasks: PathBuf,
    /// C files of the application.
    pub sources: Vec<PathBuf>,
    headers: Vec<PathBuf>,
    /// `None`: a file alone.
    dir: Option<PathBuf>,
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

impl Project {
    /// Errors: a directory that cannot be read, or has not one task set.
    pub fn at(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            let tasks = path.to_owned();
            return Ok(Self { tasks, sources: vec![], headers: vec![], dir: None });
        }
        let unreadable = |error: std::io::Error| wrong(path, &error.to_string());
        let entries = fs::read_dir(path).map_err(unreadable)?;
        let mut files = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?;
        // Editors keep files of their own with such names.
        files.retain(|file| !file.file_name().is_some_and(is_hidden));
        files.sort();
        let with = |ending: &str| {
            let files = files.iter().filter(|file| file.extension().is_some_and(|e| e == ending));
            files.cloned().collect::<Vec<_>>()
        };
        match with("toml").as_slice() {
            [tasks] => Ok(Self {
                tasks: tasks.clone(),
                sources: with("c"),
                headers: with("h"),
                dir: Some(path.to_owned()),
            }),
            [] => Err(wrong(path, "has no task set, *.toml: asmp yartek new makes a project")),
            several => {
                let what = format!("has {} task sets, *.toml", several.len());
                Err(wrong(path, &format!("{what}: name one, or keep one")))
            }
        }
    }

    /// Errors: an option names one of these files as its output, or a file of the project.
    pub fn keep(&self, files: &[PathBuf], outputs: &[(&str, Option<&Path>)]) -> Result<()> {
        let files = files.iter().chain(&self.sources).chain(&self.headers);
        separate(&files.cloned().collect::<Vec<_>>(), outputs)
    }

    /// What runs on the kernel. Errors: a directory without any.
    pub fn application(&self) -> Result<Application<'_>> {
        match (self.sources.as_slice(), &self.dir) {
            ([], None) => Ok(Application::Spin),
            ([], Some(dir)) => {
                Err(wrong(dir, "has no application, *.c: name its task set instead"))
            }
            (sources, _) => Ok(Application::Files(sources)),
        }
    }
}
