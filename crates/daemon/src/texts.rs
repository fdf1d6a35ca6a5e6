// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The texts of the tree's files. What many readers ask for is not read anew for each: the state as
//! long as its file is the same, counters for a tenth of a second.

use crate::board::Board;
use crate::counts::{self, Came};
use crate::interface::Violated;
use crate::tree::{Node, PartitionFile, View, text};
use asmp_host::CpuSet;
use asmp_host::clock::monotonic_ns;
use asmp_host::shown::shown;
use asmp_shield::Shield;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// As long texts are kept that take long to make.
const FRESH: Duration = Duration::from_millis(100);

/// Where they come from.
pub struct Texts {
    shield: Shield,
    board: Arc<Board>,
    kept: Mutex<Kept>,
}

/// What was read last.
#[derive(Default)]
struct Kept {
    view: Option<(StateFile, Arc<View>)>,
    /// Texts by their paths, with the times at which they were made.
    texts: BTreeMap<String, (u64, Arc<str>)>,
}

/// Tells one state from the next: each change replaces the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StateFile {
    number: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Texts {
    pub fn new(shield: Shield, board: Arc<Board>) -> Self {
        Self { shield, board, kept: Mutex::default() }
    }

    #[cfg(test)]
    pub(crate) fn shield(&self) -> &Shield {
        &self.shield
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: there is no state.
    fn state_file(&self) -> Option<StateFile> {
        let found = fs::metadata(self.shield.state_file()).ok()?;
        let changed = (found.mtime(), found.mtime_nsec());
        Some(StateFile { number: found.ino(), bytes: found.len(), changed })
    }

    /// What is so now. Errors: in words.
    pub fn view(&self) -> Result<Arc<View>, String> {
        // Before the state is read: one that is newer is read again.
        let file = self.state_file();
        if let (Some(file), Some((of, view))) = (file, &self.kept().view)
            && *of == file
        {
            return Ok(Arc::clone(view));
        }
        let view = Arc::new(View::read(&self.shield)?);
        let kept = file.map(|file| (file, Arc::clone(&view)));
        *self.kept() = Kept { view: kept, texts: BTreeMap::new() };
        Ok(view)
    }

    /// A kernel without one of the files has no counters.
    fn came(&self, cpus: &CpuSet) -> Vec<Came> {
        counts::came(self.shield.kernel(), cpus).unwrap_or_default()
    }

    /// `None`: its partition has ended, or it is a stream or directory.
    pub fn of(&self, view: &View, node: &Node) -> Option<Arc<str>> {
        if !node.is_costly() {
            return self.new_text(view, node).map(Arc::from);
        }
        let (now_ns, path) = (monotonic_ns(), node.path());
        let is_fresh = |made_ns: u64| now_ns < made_ns.saturating_add(FRESH.as_nanos() as u64);
        if let Some((made_ns, text)) = self.kept().texts.get(&path)
            && is_fresh(*made_ns)
        {
            return Some(Arc::clone(text));
        }
        let text: Arc<str> = self.new_text(view, node)?.into();
        let mut kept = self.kept();
        kept.texts.retain(|_, (made_ns, _)| is_fresh(*made_ns));
        kept.texts.insert(path, (now_ns, Arc::clone(&text)));
        Some(text)
    }

    fn new_text(&self, view: &View, node: &Node) -> Option<String> {
        let state = || self.board.state(monotonic_ns());
        match node {
            Node::Metrics => {
                let partitions = &view.state.partitions;
                let cpus = partitions.iter().fold(CpuSet::new(), |all, one| all.union(&one.cpus));
                Some(counts::metrics(partitions, &state(), &self.came(&cpus)))
            }
            Node::OfPartition(name, PartitionFile::Noise) => {
                let partition = view.state.partition(name).ok()?;
                Some(counts::lines(&self.came(&partition.cpus)))
            }
            Node::OfPartition(name, PartitionFile::Violations) => {
                view.state.partition(name).ok()?;
                let all = state().violations;
                let own = all.iter().filter(|one| one.partition == *name);
                Some(own.map(line_of_violation).collect())
            }
            _ => text(node, view, &self.shield),
        }
    }
}

fn line_of_violation(violated: &Violated) -> String {
    let Violated { what, cause, tries, .. } = violated;
    let tried = match tries {
        0 => String::new(),
        1 => "; 1 repair left it".to_owned(),
        many => format!("; {many} repairs left it"),
    };
    format!("{} ({}){tried}\n", shown(what), shown(cause))
}
