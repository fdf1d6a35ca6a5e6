// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who ran on each CPU of a window, how often and how long, from the events of the kernel. Pure:
//! events come in any portions.
//!
//! A CPU's time is told by its switches: who leaves has run since the switch before. Before the
//! first one it is who leaves there. Without any switch [`Ran::unseen`] names the CPU. It then
//! belongs to the task that leaves it first after the window ([`Ran::next`]), or, while that has
//! not happened either, to the task that the caller finds there in /proc.

use asmp_host::Cpu;
use asmp_host::tracefs::{Event, EventKind};
use std::collections::{BTreeMap, BTreeSet};

/// A task by number and name; number 0 is idle.
pub(super) type Task = (i32, String);

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub cpus: BTreeMap<Cpu, OnCpu>,
    /// Parents and children, in order.
    pub forks: Vec<(i32, i32)>,
    /// Events that cannot be read.
    pub unreadable: u64,
    /// When the window opened. Of what the kernel recorded before, only forks count, and who came.
    begin_ns: u64,
    /// Events later than the last moment that was asked for.
    ahead: Vec<Event>,
}

/// Of one CPU.
#[derive(Debug, Default)]
pub(super) struct OnCpu {
    pub tasks: BTreeMap<Task, Share>,
    pub migrations: BTreeMap<Task, u64>,
    pub user_page_faults: u64,
    pub kernel_page_faults: u64,
    /// Time in which it is not known who ran: events are missing.
    pub unknown_ns: u64,
    now: Now,
    /// Up to here the time is accounted for.
    since_ns: u64,
}

/// What a task had of a CPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// How often the CPU switched to it, and 1 if it had the CPU as the window opened.
    pub switches: u64,
    /// It had the CPU as the window opened.
    pub was_there: bool,
    pub ran_ns: u64,
}

/// Who has the CPU.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Now {
    /// No switch has been seen.
    #[default]
    Unseen,
    /// It came before the window opened.
    WasThere(Task),
    Runs(Task),
    /// Events were lost since the last switch.
    Lost,
}

/// Who had a CPU at the end of the window, as the events after the window tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// None has come.
    Nothing,
    /// The first switch is away from this task: it had the CPU until then.
    Leaves(Task),
    /// One that cannot be read comes first. It may be a switch.
    Unreadable,
}

impl Ran {
    /// A window on these CPUs that opens now.
    pub fn since(cpus: impl IntoIterator<Item = Cpu>, now_ns: u64) -> Self {
        let on_cpu = |cpu| (cpu, OnCpu { since_ns: now_ns, ..OnCpu::default() });
        let cpus = cpus.into_iter().map(on_cpu).collect();
        Self { cpus, begin_ns: now_ns, ..Self::default() }
    }

    /// Takes the events up to `now_ns`, and keeps those after it for the next call.
    pub fn take(&mut self, events: Vec<Event>, now_ns: u64) {
        let mut all = std::mem::take(&mut self.ahead);
        all.extend(events);
        let (now, ahead) = all.into_iter().partition(|event| event.at_ns <= now_ns);
        self.ahead = ahead;
        let now: Vec<Event> = now;
        now.into_iter().for_each(|event| self.event(event));
    }

    fn event(&mut self, event: Event) {
        let Event { at_ns, cpu, kind } = event;
        let is_before = at_ns < self.begin_ns;
        match kind {
            EventKind::Switch { to_tid, to, .. } if is_before => {
                if let Some(on_cpu) = self.cpus.get_mut(&cpu) {
                    on_cpu.now = Now::WasThere((to_tid, to));
                }
            }
            EventKind::Switch { from_tid, from, to_tid, to, .. } => {
                if let Some(on_cpu) = self.cpus.get_mut(&cpu) {
                    on_cpu.switch(at_ns, (from_tid, from), (to_tid, to));
                }
            }
            EventKind::Migration { tid, command, from, to } if !is_before => {
                for cpu in [from, to] {
                    if let Some(on_cpu) = self.cpus.get_mut(&cpu) {
                        *on_cpu.migrations.entry((tid, command.clone())).or_default() += 1;
                    }
                }
            }
            EventKind::Fork { parent, child } => self.forks.push((parent, child)),
            EventKind::PageFault { user } if !is_before => {
                if let Some(on_cpu) = self.cpus.get_mut(&cpu) {
                    let count = match user {
                        true => &mut on_cpu.user_page_faults,
                        false => &mut on_cpu.kernel_page_faults,
                    };
                    *count += 1;
                }
            }
            EventKind::Lost(_) => {
                if let Some(on_cpu) = self.cpus.get_mut(&cpu) {
                    on_cpu.now = Now::Lost;
                }
            }
            EventKind::Unreadable => {
                self.unreadable += 1;
                // It may be a switch.
                if let Some(on_cpu) = self.cpus.get_mut(&cpu).filter(|_| !is_before) {
                    on_cpu.now = Now::Lost;
                }
            }
            // Of before the window; the buffer enables no other event.
            _ => {}
        }
    }

    /// CPUs of which no event says who has them.
    pub fn unseen(&self) -> impl Iterator<Item = Cpu> {
        self.cpus.iter().filter(|(_, on_cpu)| on_cpu.now == Now::Unseen).map(|(cpu, _)| *cpu)
    }

    /// What came after the last moment that was asked for.
    pub fn next(&self, cpu: Cpu) -> Next {
        let mut on_cpu = self.ahead.iter().filter(|event| event.cpu == cpu);
        let told = on_cpu.find_map(|event| match &event.kind {
            EventKind::Switch { from_tid, from, .. } => {
                Some(Next::Leaves((*from_tid, from.clone())))
            }
            EventKind::Unreadable => Some(Next::Unreadable),
            _ => None,
        });
        told.unwrap_or(Next::Nothing)
    }

    /// Children of these tasks, and theirs, are added: what a task of ours makes is ours, though it
    /// may have ended before asmp could ask.
    pub fn with_children(&self, own: &mut BTreeSet<i32>) {
        for (parent, child) in &self.forks {
            if own.contains(parent) {
                own.insert(*child);
            }
        }
    }
}

impl OnCpu {
    /// Every task that has had the CPU, as far as events say.
    pub fn tids(&self) -> impl Iterator<Item = i32> {
        let now = match &self.now {
            Now::WasThere((tid, _)) | Now::Runs((tid, _)) => Some(*tid),
            Now::Unseen | Now::Lost => None,
        };
        self.tasks.keys().map(|(tid, _)| *tid).chain(now)
    }

    fn switch(&mut self, at_ns: u64, from: Task, to: Task) {
        let ran_ns = at_ns.saturating_sub(self.since_ns);
        match std::mem::replace(&mut self.now, Now::Runs(to.clone())) {
            Now::Runs((tid, _)) | Now::WasThere((tid, _)) if tid != from.0 => {
                self.unknown_ns += ran_ns;
            }
            Now::Unseen | Now::WasThere(_) => self.was_there(from, ran_ns),
            Now::Runs(_) => self.tasks.entry(from).or_default().ran_ns += ran_ns,
            Now::Lost => self.unknown_ns += ran_ns,
        }
        self.since_ns = self.since_ns.max(at_ns);
        self.tasks.entry(to).or_default().switches += 1;
    }

    fn was_there(&mut self, task: Task, ran_ns: u64) {
        let share = self.tasks.entry(task).or_default();
        *share = Share { switches: share.switches + 1, was_there: true, ran_ns };
    }

    /// The shares of all tasks and the time that is unknown, up to `now_ns`. `there` is who has had
    /// the CPU all the time where no event says so; `None`: not known.
    pub fn until(&self, now_ns: u64, there: Option<&Task>) -> (BTreeMap<Task, Share>, u64) {
        let mut tasks = self.tasks.clone();
        let ran_ns = now_ns.saturating_sub(self.since_ns);
        match (&self.now, there) {
            (Now::WasThere(task), _) | (Now::Unseen, Some(task)) => {
                let share = Share { switches: 1, was_there: true, ran_ns };
                tasks.insert(task.clone(), share);
            }
            (Now::Runs(task), _) => tasks.entry(task.clone()).or_default().ran_ns += ran_ns,
            (Now::Unseen, None) | (Now::Lost, _) => return (tasks, self.unknown_ns + ran_ns),
        }
        (tasks, self.unknown_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64, kind: EventKind) -> Event {
        Event { at_ns: us * 1000, cpu: 3, kind }
    }

    fn switch(from_tid: i32, to_tid: i32) -> EventKind {
        let (from, to) = (format!("t{from_tid}"), format!("t{to_tid}"));
        let (from_prio, to_prio) = (120, 120);
        EventKind::Switch { from_tid, from, from_prio, to_tid, to, to_prio }
    }

    fn task(tid: i32) -> Task {
        (tid, format!("t{tid}"))
    }

    /// Shares in microseconds and unknown time, of a window from 100 us on.
    fn shares(events: Vec<Event>, until_us: u64, there: Option<i32>) -> (Vec<(i32, u64)>, u64) {
        let mut ran = Ran::since([3], 100_000);
        ran.take(events, until_us * 1000);
        let there = there.map(task);
        let (tasks, unknown_ns) = ran.cpus[&3].until(until_us * 1000, there.as_ref());
        let all = tasks.into_iter().map(|((tid, _), share)| (tid, share.ran_ns / 1000));
        (all.collect(), unknown_ns / 1000)
    }

    #[test]
    fn time_goes_to_who_had_the_cpu_from_the_window_s_opening_to_its_end() {
        let events = vec![at(130, switch(11, 0)), at(150, switch(0, 12)), at(155, switch(12, 11))];
        assert_eq!(shares(events, 200, None), (vec![(0, 20), (11, 75), (12, 5)], 0));
    }

    #[test]
    fn who_has_the_cpu_all_the_time_is_in_no_event_and_is_looked_up() {
        assert_eq!(shares(vec![], 200, Some(11)), (vec![(11, 100)], 0));
        assert_eq!(shares(vec![], 200, None), (vec![], 100), "not known, and not idle");
        let mut ran = Ran::since([2, 3], 0);
        assert_eq!(ran.unseen().collect::<Vec<_>>(), [2, 3]);
        ran.take(vec![at(1, switch(0, 11))], 1_000);
        assert_eq!(ran.unseen().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn time_is_unknown_where_events_are_missing() {
        let lost = || at(0, EventKind::Lost(12));
        let events = vec![at(110, switch(0, 11)), lost(), at(150, switch(12, 0))];
        assert_eq!(shares(events, 200, None), (vec![(0, 60), (11, 0)], 40));
        // Another task leaves than the one that came.
        let events = vec![at(110, switch(0, 11)), at(150, switch(12, 0))];
        assert_eq!(shares(events, 200, None), (vec![(0, 60), (11, 0)], 40));
        let events = vec![at(110, switch(0, 11)), at(150, EventKind::Unreadable)];
        assert_eq!(shares(events, 200, None), (vec![(0, 10), (11, 0)], 90));
        assert_eq!(shares(vec![lost()], 200, Some(11)), (vec![], 100), "11 may have come later");
    }

    #[test]
    fn portions_give_what_all_events_at_once_give() {
        let events =
            || vec![at(110, switch(0, 11)), at(150, switch(11, 12)), at(190, switch(12, 0))];
        let whole = shares(events(), 200, None);
        for cut in 0..=3 {
            let mut ran = Ran::since([3], 100_000);
            let mut first = events();
            let second = first.split_off(cut);
            // The second portion is read early: it waits until its time.
            ran.take([first, second].concat(), 120_000);
            assert_eq!(ran.cpus[&3].until(120_000, None).0[&task(11)].ran_ns, 10_000);
            ran.take(Vec::new(), 160_000);
            ran.take(Vec::new(), 200_000);
            let (tasks, unknown_ns) = ran.cpus[&3].until(200_000, None);
            let all = tasks.into_iter().map(|((tid, _), share)| (tid, share.ran_ns / 1000));
            assert_eq!((all.collect::<Vec<_>>(), unknown_ns), whole);
        }
    }

    #[test]
    fn what_was_recorded_before_the_window_counts_only_for_who_was_there() {
        let before = || {
            let moved = EventKind::Migration { tid: 11, command: "t11".into(), from: 3, to: 1 };
            let fault = EventKind::PageFault { user: true };
            vec![
                at(40, switch(0, 12)),
                at(50, EventKind::Fork { parent: 12, child: 13 }),
                at(60, moved),
                at(70, fault),
                at(80, EventKind::Unreadable),
                at(90, switch(12, 11)),
            ]
        };
        let mut ran = Ran::since([3], 100_000);
        ran.take(before(), 100_000);
        assert_eq!((ran.forks.as_slice(), ran.unreadable), ([(12, 13)].as_slice(), 1));
        assert!(ran.cpus[&3].migrations.is_empty() && ran.cpus[&3].user_page_faults == 0);
        let there = Share { switches: 1, was_there: true, ran_ns: 100_000 };
        assert_eq!(ran.cpus[&3].until(200_000, None), (BTreeMap::from([(task(11), there)]), 0));
        let later = [before(), vec![at(150, switch(11, 0))]].concat();
        assert_eq!(shares(later, 200, None), (vec![(0, 50), (11, 50)], 0));
    }

    #[test]
    fn switches_count_and_who_was_there_counts_once() {
        let mut ran = Ran::since([3], 0);
        ran.take(vec![at(1, switch(11, 0)), at(2, switch(0, 11)), at(3, switch(11, 0))], 9_000);
        let (tasks, _) = ran.cpus[&3].until(9_000, None);
        assert_eq!(tasks[&task(11)], Share { switches: 2, was_there: true, ran_ns: 2_000 });
    }
}
