// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time, timeslices and the scheduler of the virtual CPU.

use super::decision::{Candidate, Choice, Situation, decide};
use super::*;

/// Steps without time passing that are taken for a livelock.
const STANDING: u32 = 100_000;

/// What came of going on by one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    On,
    /// A thread driven from outside has the CPU and no step.
    Outside(ThreadId),
    /// Nothing happens before the limit.
    Limit,
}

impl VirtualCpu {
    /// Lets time pass until `limit_ns`, or longer by the kernel's work that begins before it.
    pub fn run_until(&mut self, limit_ns: u64) -> Result<(), Livelock> {
        loop {
            match self.go_on(limit_ns)? {
                Went::On => {}
                // No caller drives it now: it keeps the CPU and waits for one.
                Went::Outside(_) | Went::Limit => return Ok(()),
            }
        }
    }

    /// One event, one step, or one stretch of computing.
    pub(super) fn go_on(&mut self, limit_ns: u64) -> Result<Went, Livelock> {
        debug_assert!(
            self.ready.iter().all(|thread| self.current != Some(*thread)
                && self.threads[thread.0].state == State::Ready)
        );
        if let Some(due) = self.due.first_entry().filter(|due| due.key().0 <= self.now_ns) {
            match due.remove() {
                Due::Wake(thread) => self.wake(thread),
                Due::Raise(line) => self.raise(line),
                // A line that is not in the table was refused by it; nothing waits for that.
                Due::Flag(flags, line) => drop(flags.raise(line)),
            }
            return Ok(Went::On);
        }
        if self.now_ns >= limit_ns {
            return Ok(Went::Limit);
        }
        let next_ns =
            self.due.first_key_value().map_or(limit_ns, |((at_ns, _), _)| (*at_ns).min(limit_ns));
        let Some(current) = self.current else {
            if !self.schedule() {
                self.go_idle();
                self.counts.idle_ns += next_ns - self.now_ns;
                self.pass(next_ns - self.now_ns);
            }
            return Ok(Went::On);
        };
        self.standing += 1;
        if self.standing > STANDING {
            return Err(Livelock { at_ns: self.now_ns, thread: current });
        }
        let thread = &self.threads[current.0];
        match thread.step() {
            Some(Step::Compute(length_ns)) => {
                let slice_ns = self.payer().and_then(|payer| payer.slice_ns.map(|_| payer.left_ns));
                let left_ns = length_ns - thread.computed_ns;
                let run_ns = left_ns.min(next_ns - self.now_ns).min(slice_ns.unwrap_or(u64::MAX));
                self.compute(current, run_ns, length_ns);
            }
            None if thread.outside => return Ok(Went::Outside(current)),
            step => self.take(current, step),
        }
        Ok(Went::On)
    }

    fn take(&mut self, current: ThreadId, step: Option<Step>) {
        match step {
            None => {
                self.threads[current.0].state = State::Ended;
                self.reschedule();
            }
            Some(Step::WaitUntil(until_ns)) if until_ns <= self.now_ns => self.complete(current),
            Some(Step::WaitUntil(until_ns)) => {
                self.threads[current.0].state = State::Sleeping { until_ns };
                self.plan(until_ns, Due::Wake(current));
                self.choose(Situation::ReceiveBlocks);
            }
            Some(Step::Yield) => {
                self.complete(current);
                self.ready.push(current);
                self.current = None;
                self.choose(Situation::Yield);
            }
            Some(Step::SwitchTo(to)) => {
                self.complete(current);
                // To one that cannot run it is nothing.
                if self.ready.contains(&to) && !self.threads[to.0].stopped {
                    self.choose(Situation::SwitchTo(to));
                }
            }
            Some(_) => self.message(current),
        }
    }

    fn compute(&mut self, current: ThreadId, run_ns: u64, length_ns: u64) {
        self.pass(run_ns);
        let thread = &mut self.threads[current.0];
        thread.ran_ns += run_ns;
        thread.computed_ns += run_ns;
        if thread.computed_ns == length_ns {
            self.complete(current);
        }
        let Some(payer) = self.payer else { return };
        let account = &mut self.threads[payer.0];
        if let Some(slice_ns) = account.slice_ns {
            account.left_ns -= run_ns;
            if account.left_ns == 0 {
                account.left_ns = slice_ns;
                self.slice_ended(current, payer);
            }
        }
    }

    /// Who paid goes behind its equals; who ran on a donation only loses the CPU.
    fn slice_ended(&mut self, current: ThreadId, payer: ThreadId) {
        self.note(What::SliceEnd(payer));
        self.current = None;
        if current == payer {
            self.ready.push(current);
        } else {
            self.ready.insert(0, current);
            if let Some(at) = self.ready.iter().position(|thread| *thread == payer) {
                let payer = self.ready.remove(at);
                self.ready.push(payer);
            }
        }
        self.choose(Situation::SliceEnds);
    }

    fn payer(&self) -> Option<&Thread> {
        self.payer.map(|payer| &self.threads[payer.0])
    }

    pub(super) fn pass(&mut self, time_ns: u64) {
        if time_ns > 0 {
            self.now_ns = self.now_ns.saturating_add(time_ns);
            self.standing = 0;
        }
    }

    /// A timer has run out.
    fn wake(&mut self, thread: ThreadId) {
        // A sleep that was cut short leaves its timer behind.
        if let State::Sleeping { until_ns } = self.threads[thread.0].state
            && until_ns <= self.now_ns
        {
            self.end_sleep(thread);
        }
    }

    pub(super) fn end_sleep(&mut self, thread: ThreadId) {
        self.complete(thread);
        self.ready.push(thread);
        self.preempt(thread);
    }

    /// The present step of a thread has ended; the thread is ready, but in no queue.
    pub(super) fn complete(&mut self, thread: ThreadId) {
        let entry = &mut self.threads[thread.0];
        let step = entry.at;
        entry.computed_ns = 0;
        entry.at += 1;
        if entry.at == entry.steps.len()
            && let Then::Repeat(to) = entry.then
        {
            entry.at = to;
        }
        entry.state = State::Ready;
        self.note(What::Done(thread, step));
    }

    /// Applies table 2.
    pub(super) fn choose(&mut self, situation: Situation) {
        match decide(&self.policy, situation) {
            Choice::Scheduler => self.reschedule(),
            Choice::Direct(thread) => self.switch(thread, false),
            Choice::Donate(thread) => self.switch(thread, true),
            Choice::Irq => {}
            Choice::Idle => {
                self.put_back();
                self.go_idle();
            }
        }
    }

    /// The highest ready priority gets the CPU; the current thread keeps it among equals.
    fn reschedule(&mut self) {
        if self.current_is_ready() {
            self.counts.schedules += 1;
            self.pass(self.costs.schedule_ns);
            if let Some(thread) = self.highest() {
                self.preempt(thread);
            }
        } else {
            self.current = None;
            self.schedule();
        }
    }

    /// Finds a thread for a CPU that has none; `false`: there is none.
    fn schedule(&mut self) -> bool {
        match self.highest() {
            Some(thread) => {
                self.counts.schedules += 1;
                self.pass(self.costs.schedule_ns);
                self.switch(thread, false);
                true
            }
            None => false,
        }
    }

    /// A ready thread takes the CPU from one of lower priority. An idle CPU finds it by itself.
    pub(super) fn preempt(&mut self, thread: ThreadId) {
        let lower =
            self.current.is_some_and(|current| self.priority(thread) > self.priority(current));
        if lower && self.ready.contains(&thread) && !self.threads[thread.0].stopped {
            self.switch(thread, false);
        }
    }

    fn highest(&self) -> Option<ThreadId> {
        let runnable = self.ready.iter().copied().filter(|thread| !self.threads[thread.0].stopped);
        // The last of equal maxima is taken: look from the end.
        runnable.rev().max_by_key(|thread| self.priority(*thread))
    }

    /// Gives the CPU to a ready thread; nothing changes if it cannot run. `donate`: on what is left
    /// of the timeslice of who ran. The tour's kernels let it run "at least until the next timer
    /// tick, and at most for its own timeslice", whatever the donor had; here the donor's rest is
    /// what it gets, nested donations included.
    fn switch(&mut self, to: ThreadId, donate: bool) {
        if self.current != Some(to) {
            let Some(at) = self.ready.iter().position(|thread| *thread == to) else {
                return self.reschedule();
            };
            if self.threads[to.0].stopped {
                return self.reschedule();
            }
            self.ready.remove(at);
            self.put_back();
            self.current = Some(to);
            if !donate || self.payer.is_none() {
                self.payer = Some(to);
            }
        }
        if self.on_cpu != Some(to) {
            self.on_cpu = Some(to);
            self.counts.switches += 1;
            self.pass(self.costs.switch_ns);
            self.note(What::Run(to));
        }
    }

    /// A current thread that can run is preempted: it stays the first of its equals.
    fn put_back(&mut self) {
        let ready = self.current_is_ready();
        if let Some(current) = self.current.take().filter(|_| ready) {
            self.ready.insert(0, current);
        }
    }

    fn go_idle(&mut self) {
        self.payer = None;
        if self.on_cpu.take().is_some() {
            self.counts.switches += 1;
            self.note(What::Idle);
        }
    }

    fn current_is_ready(&self) -> bool {
        self.current.is_some_and(|current| self.threads[current.0].state == State::Ready)
    }

    pub(super) fn candidate(&self, thread: ThreadId) -> Candidate {
        Candidate { thread: Some(thread), priority: self.priority(thread).into() }
    }

    /// With inheritance: the highest priority of the thread and of all that wait for it, through
    /// any number of others.
    pub(super) fn priority(&self, thread: ThreadId) -> u8 {
        let own = self.threads[thread.0].priority;
        if !self.policy.inheritance {
            return own;
        }
        let mut seen = vec![false; self.threads.len()];
        let mut found = vec![thread];
        let mut highest = own;
        seen[thread.0] = true;
        while let Some(holder) = found.pop() {
            highest = highest.max(self.threads[holder.0].priority);
            for (waiter, entry) in self.threads.iter().enumerate() {
                if !seen[waiter] && entry.waits_for(holder) {
                    seen[waiter] = true;
                    found.push(ThreadId(waiter));
                }
            }
        }
        highest
    }
}

impl Thread {
    /// It is blocked until `holder` receives from it or replies to its call.
    fn waits_for(&self, holder: ThreadId) -> bool {
        match self.state {
            State::Sending { to } => to == holder,
            State::Receiving(_) => self.step() == Some(Step::Call(holder)),
            _ => false,
        }
    }
}
