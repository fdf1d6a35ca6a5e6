// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fires the tasks of one piece until an iteration is complete, nothing can fire, or the work is
//! used up.
//!
//! Firing one task never takes tokens or room from another's firing, so the order does not matter:
//! if one order completes an iteration all do, and where one gets stuck all do (Lee, Messerschmitt
//! 1987, class S). A memory counts the tokens that are there between firings: a firing reads, then
//! writes.

use super::model::Graph;
use super::piece::Pieces;
use super::refusal::{On, Refusal, Wait};
use crate::numbers::gcd;
#[cfg(feature = "files")]
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};

/// Firings of one task in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Run {
    /// Index of the task.
    pub task: usize,
    pub firings: u64,
}

/// Steps that may still be done; one is a look at a task or at an edge.
pub(super) struct Work {
    left: u64,
}

impl Work {
    pub(super) fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    fn spend(&mut self, steps: usize) -> bool {
        let left = self.left.checked_sub(steps as u64);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// An edge within the piece; its ends are places in the piece.
struct Channel {
    edge: usize,
    from: usize,
    to: usize,
    write: u64,
    read: u64,
    tokens: u64,
    /// Most tokens that were there.
    peak: u64,
    /// Tokens that it may hold; `None`: any number.
    capacity: Option<u64>,
}

pub(super) enum End {
    Done,
    Stuck,
    OutOfWork,
}

enum Ready {
    Finished,
    Firings(u64),
    NoTokens,
    /// Its outputs would have to grow by so much in all, by index of channel.
    NoRoom(u64),
}

/// One piece with its tokens. Self-loops are no part of it: see [`super::schedule`].
pub(super) struct Piece<'a> {
    graph: &'a Graph,
    tasks: &'a [usize],
    left: Vec<u64>,
    channels: Vec<Channel>,
    inputs: Vec<Vec<usize>>,
    outputs: Vec<Vec<usize>>,
    queue: VecDeque<usize>,
    queued: Vec<bool>,
    /// Tasks with their tokens but without room, by the growth they need.
    stalled: BTreeSet<(u64, usize)>,
    growth: Vec<Option<u64>>,
    runs: Vec<Run>,
    runs_kept: usize,
    /// Firings of an iteration of the piece go this often into one of the cluster.
    pub times: u64,
}

impl<'a> Piece<'a> {
    /// `firings` must leave `initial + firings * write` of each edge within 64 bits. Keeps at most
    /// `runs_kept` runs.
    pub(super) fn new(
        graph: &'a Graph,
        pieces: &'a Pieces,
        group: usize,
        firings: &[u64],
        capacity: impl Fn(usize) -> Option<u64>,
        runs_kept: usize,
    ) -> Self {
        let tasks = pieces.groups[group].as_slice();
        let times = tasks.iter().fold(0, |all, &task| gcd(all, firings[task])).max(1);
        let mut piece = Self {
            graph,
            tasks,
            left: tasks.iter().map(|&task| firings[task] / times).collect(),
            channels: Vec::new(),
            inputs: vec![Vec::new(); tasks.len()],
            outputs: vec![Vec::new(); tasks.len()],
            queue: (0..tasks.len()).collect(),
            queued: vec![true; tasks.len()],
            stalled: BTreeSet::new(),
            growth: vec![None; tasks.len()],
            runs: Vec::new(),
            runs_kept,
            times,
        };
        for &task in tasks {
            for &index in graph.outputs(task) {
                let edge = &graph.edges()[index];
                if edge.from == edge.to || !pieces.holds(graph, index) {
                    continue;
                }
                let (from, to) = (pieces.of[edge.from].1, pieces.of[edge.to].1);
                piece.outputs[from].push(piece.channels.len());
                piece.inputs[to].push(piece.channels.len());
                piece.channels.push(Channel {
                    edge: index,
                    from,
                    to,
                    write: edge.write,
                    read: edge.read,
                    tokens: edge.initial,
                    peak: edge.initial,
                    capacity: capacity(index),
                });
            }
        }
        piece
    }

    /// Each task fires as often as it can when its turn comes.
    pub(super) fn run(&mut self, work: &mut Work) -> End {
        while let Some(task) = self.queue.pop_front() {
            self.queued[task] = false;
            if !work.spend(1 + self.inputs[task].len() + self.outputs[task].len()) {
                return End::OutOfWork;
            }
            if let Some(growth) = self.growth[task].take() {
                self.stalled.remove(&(growth, task));
            }
            match self.ready(task) {
                Ready::Firings(count) => self.fire(task, count),
                Ready::NoRoom(growth) => {
                    self.growth[task] = Some(growth);
                    self.stalled.insert((growth, task));
                }
                Ready::NoTokens | Ready::Finished => {}
            }
        }
        if self.left.iter().all(|left| *left == 0) { End::Done } else { End::Stuck }
    }

    fn ready(&self, task: usize) -> Ready {
        let mut count = self.left[task];
        if count == 0 {
            return Ready::Finished;
        }
        for &input in &self.inputs[task] {
            count = count.min(self.channels[input].tokens / self.channels[input].read);
        }
        if count == 0 {
            return Ready::NoTokens;
        }
        let mut growth: u64 = 0;
        for &output in &self.outputs[task] {
            let Channel { tokens, write, capacity, .. } = self.channels[output];
            let Some(capacity) = capacity else { continue };
            let room = capacity.saturating_sub(tokens);
            count = count.min(room / write);
            growth = growth.saturating_add(write.saturating_sub(room));
        }
        if count == 0 { Ready::NoRoom(growth) } else { Ready::Firings(count) }
    }

    fn fire(&mut self, task: usize, count: u64) {
        self.left[task] -= count;
        if self.runs.len() <= self.runs_kept {
            match self.runs.last_mut() {
                Some(last) if last.task == self.tasks[task] => last.firings += count,
                _ => self.runs.push(Run { task: self.tasks[task], firings: count }),
            }
        }
        for at in 0..self.inputs[task].len() {
            let channel = &mut self.channels[self.inputs[task][at]];
            channel.tokens -= count * channel.read;
            if channel.capacity.is_some() {
                let writer = channel.from;
                self.wake(writer);
            }
        }
        for at in 0..self.outputs[task].len() {
            let channel = &mut self.channels[self.outputs[task][at]];
            channel.tokens += count * channel.write;
            channel.peak = channel.peak.max(channel.tokens);
            let reader = channel.to;
            self.wake(reader);
        }
        self.wake(task);
    }

    fn wake(&mut self, task: usize) {
        if self.left[task] > 0 && !std::mem::replace(&mut self.queued[task], true) {
            self.queue.push_back(task);
        }
    }

    /// Gives the stalled task that needs least, and stays within `limit`, room for one firing.
    /// False: none can be helped. Growing while the firing goes on is fair: what was fired before
    /// would have fitted all the same.
    pub(super) fn grow(&mut self, work: &mut Work, limit: impl Fn(usize) -> Option<u64>) -> bool {
        let wanted = |channel: &Channel| channel.tokens + channel.write;
        let mut chosen = None;
        for &(_, task) in &self.stalled {
            let fits = |&output: &usize| {
                let channel = &self.channels[output];
                limit(channel.edge).is_none_or(|limit| wanted(channel) <= limit)
            };
            if !work.spend(1 + self.outputs[task].len()) {
                return false;
            }
            if self.outputs[task].iter().all(fits) {
                chosen = Some(task);
                break;
            }
        }
        let Some(task) = chosen else { return false };
        for &output in &self.outputs[task] {
            let channel = &mut self.channels[output];
            channel.capacity = channel.capacity.map(|capacity| capacity.max(wanted(channel)));
        }
        self.wake(task);
        true
    }

    /// Edges of the piece with their capacity and the most tokens that were there.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (usize, Option<u64>, u64)> {
        self.channels.iter().map(|channel| (channel.edge, channel.capacity, channel.peak))
    }

    /// The order of firings; `None` where it is longer than was to be kept.
    pub(super) fn into_runs(self) -> Option<Vec<Run>> {
        (self.runs.len() <= self.runs_kept).then_some(self.runs)
    }

    /// After [`End::Stuck`]: a ring of tasks that wait for each other. A task that is waited for
    /// has not finished either: a finished writer leaves enough tokens, a finished reader enough
    /// room.
    pub(super) fn deadlock(&self) -> Refusal {
        let mut at = self.left.iter().position(|left| *left > 0).unwrap_or(0);
        let mut seen: Vec<Option<usize>> = vec![None; self.tasks.len()];
        let mut waits = Vec::new();
        while seen[at].is_none() {
            seen[at] = Some(waits.len());
            let tokens = |&&input: &&usize| self.channels[input].tokens < self.channels[input].read;
            let room = |&&output: &&usize| {
                let Channel { tokens, write, capacity, .. } = self.channels[output];
                capacity.is_some_and(|capacity| capacity.saturating_sub(tokens) < write)
            };
            let (channel, on, next) = if let Some(&input) = self.inputs[at].iter().find(tokens) {
                let channel = &self.channels[input];
                (channel, On::Tokens { reads: channel.read, holds: channel.tokens }, channel.from)
            } else if let Some(&output) = self.outputs[at].iter().find(room) {
                let channel = &self.channels[output];
                let memory = channel.capacity.unwrap_or(u64::MAX);
                (
                    channel,
                    On::Room { writes: channel.write, holds: channel.tokens, memory },
                    channel.to,
                )
            } else {
                break;
            };
            waits.push(Wait {
                task: self.graph.tasks()[self.tasks[at]].name.clone(),
                edge: self.graph.edges()[channel.edge].name.clone(),
                on,
            });
            at = next;
        }
        let start = seen[at].unwrap_or(0);
        Refusal::Deadlock { waits: waits.split_off(start.min(waits.len())) }
    }
}
