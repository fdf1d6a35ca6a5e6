// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of the reflective scheduler: actions and their instants. The scheduled program reads
//! and changes it while it runs: that is the reflection.
//!
//! Threads share the table through [`Agenda`], a lock with priority inheritance. They hold it for a
//! time bounded by the number of entries. A change wakes the scheduler.

use crate::executive::Flags;
use crate::executive::pi_mutex::{Guard, PiMutex};
use std::io;
use std::ops::Deref;

/// A scheduled thread or activity, by a number that the program chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Activity(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start(Activity),
    Stop(Activity),
    /// A function of the program, by a number that it chooses. It runs in the scheduler's thread.
    Call(u32),
}

/// Identifies an entry. A table never uses an id twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub id: EntryId,
    pub instant_ns: u64,
    pub action: Action,
    /// The entry is repeated at this distance; after a standstill, once for each missed time.
    /// `None`: it happens once.
    pub every_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table has no room.
    #[error("the table is full ({entries} entries): remove one, or create a larger table")]
    Full { entries: usize },
    /// The repetition distance is 0.
    #[error("invalid repetition of an entry: use more than 0 ns")]
    NoPeriod,
    /// There is no such entry.
    #[error("the entry is not in the table: it was removed or has happened")]
    Gone,
}

/// Entries in order of their instants; entries of one instant in order of insertion. All functions
/// are O(entries) and allocate nothing.
#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
    made: u64,
}

impl Table {
    fn with_capacity(entries: usize) -> Self {
        Self { entries: Vec::with_capacity(entries), made: 0 }
    }

    pub fn insert(
        &mut self,
        instant_ns: u64,
        action: Action,
        every_ns: Option<u64>,
    ) -> Result<EntryId, TableError> {
        if every_ns == Some(0) {
            return Err(TableError::NoPeriod);
        }
        if self.entries.len() == self.entries.capacity() {
            return Err(TableError::Full { entries: self.entries.len() });
        }
        let id = EntryId(self.made);
        self.made += 1;
        self.place(Entry { id, instant_ns, action, every_ns });
        Ok(id)
    }

    /// Removes an entry and returns it.
    pub fn remove(&mut self, id: EntryId) -> Result<Entry, TableError> {
        let at = self.entries.iter().position(|entry| entry.id == id).ok_or(TableError::Gone)?;
        Ok(self.entries.remove(at))
    }

    /// Moves an entry to another instant.
    pub fn shift(&mut self, id: EntryId, instant_ns: u64) -> Result<(), TableError> {
        let entry = self.remove(id)?;
        self.place(Entry { instant_ns, ..entry });
        Ok(())
    }

    /// All entries, soonest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first entry that is due for sure at `instant_ns`; one that comes back is planned again.
    fn pop(&mut self, id: EntryId) -> Option<Entry> {
        let entry = self.remove(id).ok()?;
        if let Some(every_ns) = entry.every_ns {
            // At the end of time it stays there.
            self.place(Entry { instant_ns: entry.instant_ns.saturating_add(every_ns), ..entry });
        }
        Some(entry)
    }

    /// There is room: what is placed was counted or has just been taken out.
    fn place(&mut self, entry: Entry) {
        let at = self.entries.partition_point(|other| other.instant_ns <= entry.instant_ns);
        self.entries.insert(at, entry);
    }
}

/// The table that program and scheduler share.
pub struct Agenda {
    table: PiMutex<Table>,
    changed: Flags,
}

impl Agenda {
    /// A table with room for `entries` entries. Allocates. Errors: those of [`PiMutex::new`].
    pub fn new(entries: usize) -> io::Result<Self> {
        Ok(Self { table: PiMutex::new(Table::with_capacity(entries))?, changed: Flags::new(1) })
    }

    /// Locks the table for reading. Do not block while you hold it.
    pub fn read(&self) -> impl Deref<Target = Table> + '_ {
        self.table.lock()
    }

    /// Locks and changes the table, then wakes the scheduler.
    pub fn change<R>(&self, change: impl FnOnce(&mut Table) -> R) -> R {
        let result = change(&mut self.lock());
        // Line 0 is there.
        let _ = self.changed.raise(0);
        result
    }

    pub(super) fn first(&self) -> Option<Entry> {
        self.lock().entries.first().copied()
    }

    /// The entry if it is still the first and as it was; it is taken out, or planned again if it
    /// comes back.
    pub(super) fn take(&self, entry: &Entry) -> Option<Entry> {
        let mut table = self.lock();
        if table.entries.first() != Some(entry) {
            return None;
        }
        table.pop(entry.id)
    }

    pub(super) fn changed(&self) -> &Flags {
        &self.changed
    }

    fn lock(&self) -> Guard<'_, Table> {
        self.table.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(table: &Table) -> Vec<(u64, Action)> {
        table.entries().iter().map(|entry| (entry.instant_ns, entry.action)).collect()
    }

    #[test]
    fn entries_stand_in_the_order_of_time_then_of_coming() {
        let mut table = Table::with_capacity(4);
        for (at, number) in [(20, 0), (10, 1), (20, 2), (0, 3)] {
            table.insert(at, Action::Call(number), None).unwrap();
        }
        let calls =
            [(0, 3), (10, 1), (20, 0), (20, 2)].map(|(at, number)| (at, Action::Call(number)));
        assert_eq!(order(&table), calls);
    }

    #[test]
    fn a_full_table_refuses_and_stays_as_it_was() {
        let mut table = Table::with_capacity(1);
        table.insert(1, Action::Call(0), None).unwrap();
        assert_eq!(table.insert(2, Action::Call(1), None), Err(TableError::Full { entries: 1 }));
        assert_eq!(table.insert(2, Action::Call(1), Some(0)), Err(TableError::NoPeriod));
        assert_eq!(order(&table), [(1, Action::Call(0))]);
    }

    #[test]
    fn an_entry_is_moved_and_removed_by_its_name_once() {
        let mut table = Table::with_capacity(3);
        let first = table.insert(1, Action::Start(Activity(7)), None).unwrap();
        let second = table.insert(2, Action::Stop(Activity(7)), None).unwrap();
        table.shift(first, 3).unwrap();
        assert_eq!(
            order(&table),
            [(2, Action::Stop(Activity(7))), (3, Action::Start(Activity(7)))]
        );
        assert_eq!(table.remove(second).unwrap().instant_ns, 2);
        assert_eq!(table.remove(second), Err(TableError::Gone));
        assert_eq!(table.shift(second, 9), Err(TableError::Gone));
    }

    #[test]
    fn an_entry_that_comes_back_keeps_its_name_and_its_grid() {
        let agenda = Agenda::new(2).unwrap();
        let id = agenda.change(|table| table.insert(10, Action::Call(0), Some(5))).unwrap();
        let due = agenda.first().unwrap();
        assert_eq!(agenda.take(&due).map(|entry| entry.instant_ns), Some(10));
        assert_eq!(agenda.first().map(|entry| (entry.id, entry.instant_ns)), Some((id, 15)));
        assert_eq!(agenda.take(&due), None, "it has happened");
    }

    #[test]
    fn a_change_from_another_thread_is_told() {
        let agenda = Agenda::new(2).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| agenda.change(|table| table.insert(1, Action::Call(0), None)).unwrap());
            while !agenda.changed().any() {
                agenda.changed().wait_until(u64::MAX);
            }
        });
        assert_eq!(agenda.read().entries().len(), 1);
    }
}
