// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the thread that repairs shares with the thread of the socket ([`crate::socket`]). Neither
//! holds the lock for longer than it takes to copy.

use crate::hold::{Hold, Record};
use crate::interface::{Repaired, State, Violated};
use crate::log::{Entry, Log};
use crate::work::Work;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The last events, the state after the last look, and what clients want done.
pub struct Board {
    shown: Mutex<Shown>,
    /// Readable when there is a new event, or a reply.
    news: OwnedFd,
    wanted: Mutex<Wanted>,
    /// Who may have a partition under a grant.
    users: Mutex<BTreeSet<u32>>,
    /// Readable as often as there is work.
    work: OwnedFd,
    started_ns: u64,
}

#[derive(Default)]
struct Shown {
    log: Log,
    state: State,
}

#[derive(Default)]
struct Wanted {
    /// With the clients that wait for it.
    work: VecDeque<(u64, Work)>,
    replies: Vec<(u64, Vec<u8>)>,
}

impl Board {
    /// Of an asmpd that starts at this time of CLOCK_MONOTONIC. Errors: those of eventfd(2).
    pub fn new(started_ns: u64) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (news, work) = (eventfd(0, flags)?, eventfd(0, flags | EventfdFlags::SEMAPHORE)?);
        Ok(Self {
            shown: Mutex::default(),
            news,
            wanted: Mutex::default(),
            users: Mutex::default(),
            work,
            started_ns,
        })
    }

    /// Adds an event, with the time of day in microseconds since 1970.
    pub fn tell(&self, record: &Record, time_us: u64) {
        self.shown().log.push(record, time_us);
        add_one(&self.news);
    }

    /// This user is granted a partition, or has one.
    pub fn note_user(&self, uid: u32) {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).insert(uid);
    }

    /// May this user have a partition? One who was never granted any has none.
    pub fn knows_user(&self, uid: u32) -> bool {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).contains(&uid)
    }

    /// Queues the work of this client.
    pub fn ask(&self, client: u64, work: Work) {
        self.wanted().work.push_back((client, work));
        add_one(&self.work);
    }

    /// The work that has waited longest, with its client.
    pub fn take_work(&self) -> Option<(u64, Work)> {
        let _ = rustix::io::read(&self.work, &mut [0; 8]);
        self.wanted().work.pop_front()
    }

    /// What this client gets for its work.
    pub fn reply(&self, client: u64, reply: Vec<u8>) {
        self.wanted().replies.push((client, reply));
        add_one(&self.news);
    }

    /// Replies since the last call.
    pub fn replies(&self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.wanted().replies)
    }

    /// Readable while there is work.
    pub fn work(&self) -> BorrowedFd<'_> {
        self.work.as_fd()
    }

    /// Replaces the state after a look.
    pub fn show(&self, hold: &Hold, now_ns: u64) {
        let us_since = |at_ns: u64| now_ns.saturating_sub(at_ns) / 1000;
        let violations = hold.open().map(|(violation, open)| Violated {
            partition: violation.partition.clone(),
            what: violation.what.clone(),
            cause: open.cause.clone(),
            for_us: us_since(open.since_ns),
            tries: open.tries,
        });
        let repaired = hold.repaired_of().iter();
        let repaired =
            repaired.map(|(name, count)| Repaired { partition: name.clone(), count: *count });
        let state = State {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running_us: us_since(self.started_ns),
            blind: hold.is_blind(),
            storming: hold.is_storming(),
            counts: hold.counts,
            repaired: repaired.collect(),
            violations: violations.collect(),
        };
        self.shown().state = state;
    }

    /// The state after the last look, and its times as of now.
    pub fn state(&self, now_ns: u64) -> State {
        let mut state = self.shown().state.clone();
        let running_us = now_ns.saturating_sub(self.started_ns) / 1000;
        let later_us = running_us - state.running_us.min(running_us);
        state.running_us = running_us;
        state.violations.iter_mut().for_each(|one| one.for_us += later_us);
        state
    }

    /// At most so many events after that number, or of all, with that number. `None`: some after it
    /// are kept no more, or there is none of that number.
    pub fn events(&self, after: Option<u64>, most: usize) -> Option<(u64, Vec<Arc<Entry>>)> {
        let shown = self.shown();
        let after = after.unwrap_or_else(|| shown.log.oldest());
        shown.log.after(after).map(|events| (after, events.take(most).cloned().collect()))
    }

    /// The time of the last event, in microseconds since 1970; 0: there is none yet.
    pub fn last_event_us(&self) -> u64 {
        self.shown().log.last_us()
    }

    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// [`Board::news`] is readable again only with the next event.
    pub fn has_read(&self) {
        let _ = rustix::io::read(&self.news, &mut [0; 8]);
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        // A copy that failed leaves what was there.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What cannot be added is there already.
fn add_one(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}
