// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event loop: releases and completions in the order of time, one ready queue a core.
//!
//! Three levels, of which the upper always preempts the lower: handlers that only raise a flag,
//! real-time jobs, background jobs (first come, first served). At one instant completions come
//! first, then releases, then the choice of what runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::ControlFlow;

/// Which of the three levels a stream's jobs run at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Handler,
    RealTime,
    Background,
}

/// How a real-time job's place in the queue is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Deadline,
    Rank(u32),
}

/// What releases jobs: a task, background work, or an interrupt's handler or service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub level: Level,
    pub key: Key,
    pub core: usize,
    pub cost_ticks: u64,
    pub deadline_ticks: Option<u64>,
    /// Released when a job of this stream completes, not by time.
    pub after: Option<usize>,
}

/// One release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub arrival_ticks: u64,
    pub release_ticks: u64,
    pub cost_ticks: u64,
}

/// Where releases come from, stream by stream, in order of time; `None`: no more.
pub(crate) trait Source {
    fn next(&mut self, stream: usize) -> Option<Release>;
    /// What a job that follows another takes, and how much later than the end of that it is
    /// released.
    fn following(&mut self, stream: usize) -> (u64, u64);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    pub stream: u32,
    /// 0 is the first of its stream.
    pub index: u64,
    pub arrival_ticks: u64,
    pub release_ticks: u64,
    pub deadline_ticks: Option<u64>,
    pub cost_ticks: u64,
    pub left_ticks: u64,
}

impl Job {
    pub fn stream(&self) -> usize {
        self.stream as usize
    }
}

/// What watches a run.
pub trait Observe {
    /// A job had a core for a while. Called when it leaves the core.
    fn ran(&mut self, _core: usize, _job: &Job, _from_ticks: u64, _to_ticks: u64) {}
    fn released(&mut self, _job: &Job) {}
    /// A job runs for the first time. At one instant completions come before.
    fn started(&mut self, _job: &Job, _at_ticks: u64) {}
    /// `Break` ends the run.
    fn finished(&mut self, _job: &Job, _at_ticks: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Horizon,
    /// The observer had seen enough.
    Stopped,
    /// As many jobs as allowed were released.
    Jobs,
    /// More jobs wait than allowed: overload.
    Backlog,
}

/// In a ready queue; the least is next. Level in the top two bits, deadline or rank below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ready {
    place: u64,
    /// In order of release.
    number: u64,
    job: Job,
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.place, self.number).cmp(&(other.place, other.number))
    }
}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Clone, Copy)]
struct Running {
    ready: Ready,
    since_ticks: u64,
    until_ticks: u64,
}

/// A job that follows another, and is released some time after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Later {
    at_ticks: u64,
    /// In the order of completion of what it follows.
    number: u64,
    stream: usize,
    release: Release,
}

impl Ord for Later {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ticks, self.number).cmp(&(other.at_ticks, other.number))
    }
}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Default)]
struct Core {
    ready: BinaryHeap<Reverse<Ready>>,
    running: Option<Running>,
}

/// Waiting jobs of all cores together; more is an overload that would eat the memory.
const MOST_WAITING: usize = 1 << 20;
const LEVEL: u32 = 62;
const BELOW: u64 = (1 << LEVEL) - 1;

/// A run that can be continued. Memory: streams and waiting jobs.
#[derive(Debug)]
pub(crate) struct Engine<S> {
    streams: Vec<Stream>,
    followers: Vec<Vec<usize>>,
    preemptive: bool,
    source: S,
    cores: Vec<Core>,
    /// Next release of each stream that has one.
    releases: BinaryHeap<Reverse<(u64, usize)>>,
    next: Vec<Option<Release>>,
    later: BinaryHeap<Reverse<Later>>,
    delayed: u64,
    /// Of each stream that follows another: its last release.
    last_ticks: Vec<u64>,
    /// Of each stream: its jobs in `later`.
    held: Vec<usize>,
    counts: Vec<u64>,
    released: u64,
    waiting: usize,
    now_ticks: u64,
}

impl<S: Source> Engine<S> {
    pub(crate) fn new(streams: Vec<Stream>, preemptive: bool, mut source: S) -> Self {
        let cores = streams.iter().map(|stream| stream.core + 1).max().unwrap_or(1);
        let mut followers = vec![Vec::new(); streams.len()];
        let mut next = vec![None; streams.len()];
        let mut releases = BinaryHeap::new();
        for (index, stream) in streams.iter().enumerate() {
            match stream.after.filter(|before| *before < streams.len()) {
                Some(before) => followers[before].push(index),
                None => {
                    next[index] = source.next(index);
                    releases.extend(next[index].map(|first| Reverse((first.release_ticks, index))));
                }
            }
        }
        Self {
            counts: vec![0; streams.len()],
            last_ticks: vec![0; streams.len()],
            held: vec![0; streams.len()],
            cores: (0..cores).map(|_| Core::default()).collect(),
            streams,
            followers,
            preemptive,
            source,
            releases,
            next,
            later: BinaryHeap::new(),
            delayed: 0,
            released: 0,
            waiting: 0,
            now_ticks: 0,
        }
    }

    pub(crate) const fn released(&self) -> u64 {
        self.released
    }

    pub(crate) const fn now_ticks(&self) -> u64 {
        self.now_ticks
    }

    /// Everything that happens before `horizon_ticks`; what happens at it belongs to the next call.
    /// At most `most_jobs` in all.
    pub(crate) fn run_until(
        &mut self,
        horizon_ticks: u64,
        most_jobs: u64,
        observer: &mut impl Observe,
    ) -> End {
        loop {
            let release_ticks = self.releases.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let later_ticks = self.later.peek().map_or(u64::MAX, |Reverse(later)| later.at_ticks);
            let mut now_ticks = release_ticks.min(later_ticks);
            for core in &self.cores {
                now_ticks =
                    now_ticks.min(core.running.map_or(u64::MAX, |running| running.until_ticks));
            }
            if now_ticks >= horizon_ticks {
                self.pause(horizon_ticks, observer);
                return End::Horizon;
            }
            self.now_ticks = now_ticks;
            for core in 0..self.cores.len() {
                if self.cores[core].running.is_some_and(|running| running.until_ticks == now_ticks)
                    && self.complete(core, observer).is_break()
                {
                    return End::Stopped;
                }
            }
            while let Some(later) = self.later_due(now_ticks) {
                self.waiting -= 1;
                self.held[later.stream] -= 1;
                self.enqueue(later.stream, later.release, observer);
            }
            if release_ticks == now_ticks {
                self.release(now_ticks, most_jobs, observer);
                if self.released > most_jobs {
                    return End::Jobs;
                }
                if self.waiting > MOST_WAITING {
                    return End::Backlog;
                }
            }
            for core in 0..self.cores.len() {
                self.dispatch(core, observer);
            }
        }
    }

    /// What is released and not finished, with the work that is left.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = Job> + '_ {
        let of_core = |core: &'_ Core| {
            let waiting = core.ready.iter().map(|Reverse(ready)| ready.job).collect::<Vec<_>>();
            waiting.into_iter().chain(core.running.map(|running| running.ready.job))
        };
        self.cores.iter().flat_map(of_core)
    }

    /// Tells the observer of what runs over the horizon, up to there.
    fn pause(&mut self, at_ticks: u64, observer: &mut impl Observe) {
        for (index, core) in self.cores.iter_mut().enumerate() {
            if let Some(running) = &mut core.running
                && at_ticks > running.since_ticks
            {
                observer.ran(index, &running.ready.job, running.since_ticks, at_ticks);
                running.ready.job.left_ticks -= at_ticks - running.since_ticks;
                running.since_ticks = at_ticks;
            }
        }
        self.now_ticks = at_ticks;
    }

    fn complete(&mut self, core: usize, observer: &mut impl Observe) -> ControlFlow<()> {
        let Some(running) = self.cores[core].running.take() else {
            return ControlFlow::Continue(());
        };
        let (job, now_ticks) = (running.ready.job, self.now_ticks);
        observer.ran(core, &job, running.since_ticks, now_ticks);
        self.waiting -= 1;
        for index in 0..self.followers[job.stream()].len() {
            let follower = self.followers[job.stream()][index];
            let (cost_ticks, late_ticks) = self.source.following(follower);
            let release_ticks = now_ticks.saturating_add(late_ticks);
            // Not before the one that came before it.
            let at_ticks = release_ticks.max(self.last_ticks[follower]);
            self.last_ticks[follower] = at_ticks;
            let release =
                Release { arrival_ticks: job.arrival_ticks, release_ticks: at_ticks, cost_ticks };
            if at_ticks == now_ticks && self.held[follower] == 0 {
                self.enqueue(follower, release, observer);
            } else {
                self.delayed += 1;
                self.waiting += 1;
                self.held[follower] += 1;
                let number = self.delayed;
                self.later.push(Reverse(Later { at_ticks, number, stream: follower, release }));
            }
        }
        observer.finished(&job, now_ticks)
    }

    fn release(&mut self, now_ticks: u64, most_jobs: u64, observer: &mut impl Observe) {
        while let Some(stream) = self.due(now_ticks) {
            // Any number may fall on one instant, after a long jitter.
            if self.released > most_jobs || self.waiting > MOST_WAITING {
                return;
            }
            let following = self.source.next(stream);
            if let Some(mut first) = self.releases.peek_mut() {
                match following {
                    Some(release) => {
                        *first = Reverse((release.release_ticks.max(now_ticks), stream))
                    }
                    None => {
                        PeekMut::pop(first);
                    }
                }
            }
            if let Some(release) = std::mem::replace(&mut self.next[stream], following) {
                self.enqueue(stream, release, observer);
            }
        }
    }

    /// The job that follows another and is due, if any.
    fn later_due(&mut self, now_ticks: u64) -> Option<Later> {
        let due = self.later.peek_mut().filter(|first| first.0.at_ticks <= now_ticks)?;
        let Reverse(later) = PeekMut::pop(due);
        Some(later)
    }

    /// The stream whose release is due, if any.
    fn due(&self, now_ticks: u64) -> Option<usize> {
        self.releases
            .peek()
            .and_then(|Reverse((at_ticks, stream))| (*at_ticks <= now_ticks).then_some(*stream))
    }

    fn enqueue(&mut self, index: usize, release: Release, observer: &mut impl Observe) {
        let stream = &self.streams[index];
        let deadline_ticks =
            stream.deadline_ticks.map(|deadline| release.arrival_ticks.saturating_add(deadline));
        let job = Job {
            stream: index as u32,
            index: self.counts[index],
            arrival_ticks: release.arrival_ticks,
            release_ticks: release.release_ticks,
            deadline_ticks,
            cost_ticks: release.cost_ticks,
            left_ticks: release.cost_ticks,
        };
        let place = match (stream.level, stream.key) {
            (Level::Handler, _) => 0,
            (Level::RealTime, Key::Deadline) => {
                1 << LEVEL | deadline_ticks.unwrap_or(BELOW).clamp(1, BELOW)
            }
            (Level::RealTime, Key::Rank(rank)) => 1 << LEVEL | (u64::from(rank) + 1),
            (Level::Background, _) => 2 << LEVEL,
        };
        self.counts[index] += 1;
        self.released += 1;
        self.waiting += 1;
        observer.released(&job);
        self.cores[stream.core].ready.push(Reverse(Ready { place, number: self.released, job }));
    }

    /// Lets the first of the queue run if it may.
    fn dispatch(&mut self, index: usize, observer: &mut impl Observe) {
        let now_ticks = self.now_ticks;
        let core = &mut self.cores[index];
        if let (Some(running), Some(Reverse(first))) = (&core.running, core.ready.peek()) {
            let upper = first.place >> LEVEL < running.ready.place >> LEVEL;
            let level = running.ready.place >> LEVEL;
            let ahead = self.preemptive && level == 1 && first.place < running.ready.place;
            if !(upper || ahead) {
                return;
            }
            let mut ready = running.ready;
            if now_ticks > running.since_ticks {
                observer.ran(index, &ready.job, running.since_ticks, now_ticks);
                ready.job.left_ticks -= now_ticks - running.since_ticks;
            }
            if level == 1 && !self.preemptive {
                // A job that has started goes on before any other of its level.
                ready.place = 1 << LEVEL;
            }
            core.running = None;
            core.ready.push(Reverse(ready));
        }
        if core.running.is_none()
            && let Some(Reverse(ready)) = core.ready.pop()
        {
            if ready.job.left_ticks == ready.job.cost_ticks {
                observer.started(&ready.job, now_ticks);
            }
            let until_ticks = now_ticks.saturating_add(ready.job.left_ticks);
            core.running = Some(Running { ready, since_ticks: now_ticks, until_ticks });
        }
    }
}

/// Two observers of one run.
impl<A: Observe, B: Observe> Observe for (&mut A, &mut B) {
    fn ran(&mut self, core: usize, job: &Job, from_ticks: u64, to_ticks: u64) {
        self.0.ran(core, job, from_ticks, to_ticks);
        self.1.ran(core, job, from_ticks, to_ticks);
    }

    fn released(&mut self, job: &Job) {
        self.0.released(job);
        self.1.released(job);
    }

    fn started(&mut self, job: &Job, at_ticks: u64) {
        self.0.started(job, at_ticks);
        self.1.started(job, at_ticks);
    }

    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        self.0.finished(job, at_ticks)?;
        self.1.finished(job, at_ticks)
    }
}
