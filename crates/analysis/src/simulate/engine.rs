//! The event loop: releases and completions in the order of time, one ready queue a core.
//!
//! Three levels, of which the upper always preempts the lower: handlers that only raise a flag, real-time jobs, background
//! jobs (first come, first served). At one instant completions come first, then releases, then the choice of what runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::ControlFlow;

/// Which of the three levels a stream's jobs run at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Handler,
    RealTime,
    Background,
}

/// How a real-time job's place in the queue is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Deadline,
    Rank(u32),
}

/// What releases jobs: a task, background work, or an interrupt's handler or service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    pub level: Level,
    pub key: Key,
    pub core: usize,
    pub cost_ns: u64,
    pub deadline_ns: Option<u64>,
    /// Released when a job of this stream completes, not by time.
    pub after: Option<usize>,
}

/// One release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    pub arrival_ns: u64,
    pub release_ns: u64,
    pub cost_ns: u64,
}

/// Where releases come from, stream by stream, in order of time; `None`: no more.
pub trait Source {
    fn next(&mut self, stream: usize) -> Option<Release>;
    /// What a job that follows another takes.
    fn cost(&mut self, stream: usize) -> u64;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    pub stream: u32,
    /// 0 is the first of its stream.
    pub index: u64,
    pub arrival_ns: u64,
    pub release_ns: u64,
    pub deadline_ns: Option<u64>,
    pub cost_ns: u64,
    pub left_ns: u64,
}

impl Job {
    pub fn stream(&self) -> usize {
        self.stream as usize
    }
}

/// What watches a run.
pub trait Observe {
    /// A job had a core for a while. Called when it leaves the core.
    fn ran(&mut self, _core: usize, _job: &Job, _from_ns: u64, _to_ns: u64) {}
    fn released(&mut self, _job: &Job) {}
    /// `Break` ends the run.
    fn finished(&mut self, _job: &Job, _at_ns: u64) -> ControlFlow<()> {
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
    since_ns: u64,
    until_ns: u64,
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
pub struct Engine<S> {
    streams: Vec<Stream>,
    followers: Vec<Vec<usize>>,
    preemptive: bool,
    source: S,
    cores: Vec<Core>,
    /// Next release of each stream that has one.
    releases: BinaryHeap<Reverse<(u64, usize)>>,
    next: Vec<Option<Release>>,
    counts: Vec<u64>,
    released: u64,
    waiting: usize,
    now_ns: u64,
}

impl<S: Source> Engine<S> {
    pub fn new(streams: Vec<Stream>, preemptive: bool, mut source: S) -> Self {
        let cores = streams.iter().map(|stream| stream.core + 1).max().unwrap_or(1);
        let mut followers = vec![Vec::new(); streams.len()];
        let mut next = vec![None; streams.len()];
        let mut releases = BinaryHeap::new();
        for (index, stream) in streams.iter().enumerate() {
            match stream.after.filter(|before| *before < streams.len()) {
                Some(before) => followers[before].push(index),
                None => {
                    next[index] = source.next(index);
                    releases.extend(next[index].map(|first| Reverse((first.release_ns, index))));
                }
            }
        }
        Self {
            counts: vec![0; streams.len()],
            cores: (0..cores).map(|_| Core::default()).collect(),
            streams,
            followers,
            preemptive,
            source,
            releases,
            next,
            released: 0,
            waiting: 0,
            now_ns: 0,
        }
    }

    pub const fn released(&self) -> u64 {
        self.released
    }

    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Everything that happens before `horizon_ns`; what happens at it belongs to the next call. At most `most_jobs` in all.
    pub fn run_until(&mut self, horizon_ns: u64, most_jobs: u64, observer: &mut impl Observe) -> End {
        loop {
            let release_ns = self.releases.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let mut now_ns = release_ns;
            for core in &self.cores {
                now_ns = now_ns.min(core.running.map_or(u64::MAX, |running| running.until_ns));
            }
            if now_ns >= horizon_ns {
                self.pause(horizon_ns, observer);
                return End::Horizon;
            }
            self.now_ns = now_ns;
            for core in 0..self.cores.len() {
                if self.cores[core].running.is_some_and(|running| running.until_ns == now_ns)
                    && self.complete(core, observer).is_break()
                {
                    return End::Stopped;
                }
            }
            if release_ns == now_ns {
                self.release(now_ns, most_jobs, observer);
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
    pub fn unfinished(&self) -> impl Iterator<Item = Job> + '_ {
        let of_core = |core: &'_ Core| {
            let waiting = core.ready.iter().map(|Reverse(ready)| ready.job).collect::<Vec<_>>();
            waiting.into_iter().chain(core.running.map(|running| running.ready.job))
        };
        self.cores.iter().flat_map(of_core)
    }

    /// Tells the observer of what runs over the horizon, up to there.
    fn pause(&mut self, at_ns: u64, observer: &mut impl Observe) {
        for (index, core) in self.cores.iter_mut().enumerate() {
            if let Some(running) = &mut core.running
                && at_ns > running.since_ns
            {
                observer.ran(index, &running.ready.job, running.since_ns, at_ns);
                running.ready.job.left_ns -= at_ns - running.since_ns;
                running.since_ns = at_ns;
            }
        }
        self.now_ns = at_ns;
    }

    fn complete(&mut self, core: usize, observer: &mut impl Observe) -> ControlFlow<()> {
        let Some(running) = self.cores[core].running.take() else { return ControlFlow::Continue(()) };
        let (job, now_ns) = (running.ready.job, self.now_ns);
        observer.ran(core, &job, running.since_ns, now_ns);
        self.waiting -= 1;
        for index in 0..self.followers[job.stream()].len() {
            let follower = self.followers[job.stream()][index];
            let cost_ns = self.source.cost(follower);
            self.enqueue(
                follower,
                Release { arrival_ns: job.arrival_ns, release_ns: now_ns, cost_ns },
                observer,
            );
        }
        observer.finished(&job, now_ns)
    }

    fn release(&mut self, now_ns: u64, most_jobs: u64, observer: &mut impl Observe) {
        while let Some(stream) = self.due(now_ns) {
            // Any number may fall on one instant, after a long jitter.
            if self.released > most_jobs || self.waiting > MOST_WAITING {
                return;
            }
            let following = self.source.next(stream);
            if let Some(mut first) = self.releases.peek_mut() {
                match following {
                    Some(release) => *first = Reverse((release.release_ns.max(now_ns), stream)),
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

    /// The stream whose release is due, if any.
    fn due(&self, now_ns: u64) -> Option<usize> {
        self.releases.peek().and_then(|Reverse((at_ns, stream))| (*at_ns <= now_ns).then_some(*stream))
    }

    fn enqueue(&mut self, index: usize, release: Release, observer: &mut impl Observe) {
        let stream = &self.streams[index];
        let deadline_ns = stream.deadline_ns.map(|deadline| release.arrival_ns.saturating_add(deadline));
        let job = Job {
            stream: index as u32,
            index: self.counts[index],
            arrival_ns: release.arrival_ns,
            release_ns: release.release_ns,
            deadline_ns,
            cost_ns: release.cost_ns,
            left_ns: release.cost_ns,
        };
        let place = match (stream.level, stream.key) {
            (Level::Handler, _) => 0,
            (Level::RealTime, Key::Deadline) => 1 << LEVEL | deadline_ns.unwrap_or(BELOW).clamp(1, BELOW),
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
        let now_ns = self.now_ns;
        let core = &mut self.cores[index];
        if let (Some(running), Some(Reverse(first))) = (&core.running, core.ready.peek()) {
            let upper = first.place >> LEVEL < running.ready.place >> LEVEL;
            let level = running.ready.place >> LEVEL;
            let ahead = self.preemptive && level == 1 && first.place < running.ready.place;
            if !(upper || ahead) {
                return;
            }
            let mut ready = running.ready;
            if now_ns > running.since_ns {
                observer.ran(index, &ready.job, running.since_ns, now_ns);
                ready.job.left_ns -= now_ns - running.since_ns;
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
            let until_ns = now_ns.saturating_add(ready.job.left_ns);
            core.running = Some(Running { ready, since_ns: now_ns, until_ns });
        }
    }
}
