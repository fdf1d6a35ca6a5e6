// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU on virtual time: threads with priorities that are scripts of steps, synchronous
//! messages, interrupts, and the scheduling decisions of the L4 microkernels (Ruocco, "A Real-Time
//! Programmer's Tour of General-Purpose L4 Microkernels", 2008, sections 3 and 4). Deterministic:
//! the same input gives the same trace.
//!
//! It serves two ends: scheduling scenarios are tests ([`VirtualCpu::script`]), and the executives
//! run on it through a [`Caller`], whose thread is driven by the program's own calls instead of a
//! script.
//!
//! What it models: priorities (larger is higher), timeslices accounted to the nanosecond, direct
//! switches and timeslice donation, priority inheritance, message queues, masked and pending
//! interrupts, and a fixed cost of each switch, scheduler run and message. What it does not:
//! caches, a timer tick (nothing happens between events), message contents, timeouts, several CPUs.
//! This is a model for tests: it allocates.

mod caller;
mod decision;
mod engine;
mod ipc;
#[cfg(test)]
mod tests;

pub use caller::{Caller, Latency};
pub use decision::{Candidate, Choice, IrqDone, Mode, OnSend, Policy, Queueing, Situation, decide};

use crate::executive::Flags;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(usize);

/// An interrupt line with its in-kernel thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(usize);

/// Who can be at the other end of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partner {
    Thread(ThreadId),
    Line(LineId),
}

/// From whom a thread will take a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Any,
    Only(Partner),
}

impl From {
    fn accepts(self, sender: Partner) -> bool {
        match self {
            Self::Any => true,
            Self::Only(partner) => partner == sender,
        }
    }
}

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Needs the CPU for that long.
    Compute(u64),
    /// Sleeps until that instant; one that has passed is no sleep.
    WaitUntil(u64),
    /// Blocks until the other takes the message.
    Send(ThreadId),
    /// Blocks until a message comes.
    Receive(From),
    /// Sends, then receives from the same thread only.
    Call(ThreadId),
    /// Replies to the client, the sender of the last message that answered no `Call`, without
    /// blocking, then receives from anyone. Without a client it only receives.
    ReplyWait,
    /// Sends to one thread, then receives.
    SendReceive(ThreadId, From),
    /// Gives the rest of the timeslice to a thread.
    SwitchTo(ThreadId),
    /// Gives up the CPU: `ThreadSwitch(nilthread)`.
    Yield,
}

/// What follows the last step of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    End,
    /// Back to the step of that number.
    Repeat(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    #[error("step {step} names a thread or line that this CPU does not have")]
    Unknown { step: usize },
    #[error("the script of {steps} steps cannot go back to step {to}")]
    NoSuchStep { to: usize, steps: usize },
}

/// Threads that go on for ever without time passing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "at {at_ns} ns {thread:?} and others run step after step without computing: let one compute \
     or wait"
)]
pub struct Livelock {
    pub at_ns: u64,
    pub thread: ThreadId,
}

/// What the kernel's own work takes; it cannot be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Another thread gets the CPU.
    pub switch_ns: u64,
    /// The ready threads are searched and queued.
    pub schedule_ns: u64,
    /// Each step that sends or receives.
    pub message_ns: u64,
}

/// How often the kernel did what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub switches: u64,
    pub schedules: u64,
    pub messages: u64,
    pub interrupts: u64,
    /// Replies whose receiver no longer waited.
    pub lost_replies: u64,
    pub idle_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub at_ns: u64,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A thread gets the CPU.
    Run(ThreadId),
    Idle,
    /// A thread has ended this step.
    Done(ThreadId, usize),
    Interrupt(LineId),
    /// The timeslice of this thread is used up, by itself or by whom it was given to.
    SliceEnd(ThreadId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Sleeping { until_ns: u64 },
    Sending { to: ThreadId },
    Receiving(From),
    Ended,
}

#[derive(Debug)]
struct Thread {
    priority: u8,
    /// `None`: it never ends.
    slice_ns: Option<u64>,
    left_ns: u64,
    state: State,
    stopped: bool,
    steps: Vec<Step>,
    then: Then,
    /// Number of the present step.
    at: usize,
    /// Of the present `Compute`.
    computed_ns: u64,
    /// Sender of the last message that answered no `Call`.
    client: Option<Partner>,
    senders: VecDeque<Partner>,
    /// Driven by a [`Caller`].
    outside: bool,
    ran_ns: u64,
}

impl Thread {
    fn step(&self) -> Option<Step> {
        self.steps.get(self.at).copied()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    Open,
    /// Masked; its message waits for the handler.
    Queued,
    /// Masked until the handler replies.
    Handled,
}

#[derive(Debug)]
struct Line {
    handler: ThreadId,
    state: LineState,
    /// Raised while masked.
    pending: u64,
}

#[derive(Debug)]
enum Due {
    Wake(ThreadId),
    Raise(LineId),
    Flag(Arc<Flags>, usize),
}

#[derive(Debug)]
pub struct VirtualCpu {
    now_ns: u64,
    policy: Policy,
    costs: Costs,
    threads: Vec<Thread>,
    lines: Vec<Line>,
    /// Ready threads but the current one; of equal priority the first runs first.
    ready: Vec<ThreadId>,
    current: Option<ThreadId>,
    /// Whose timeslice the current thread uses.
    payer: Option<ThreadId>,
    /// Who had the CPU last, to count switches.
    on_cpu: Option<ThreadId>,
    /// By instant, then by order of coming.
    due: BTreeMap<(u64, u64), Due>,
    coming: u64,
    counts: Counts,
    trace: Option<Vec<Event>>,
    /// Steps since time last went on.
    standing: u32,
}

impl VirtualCpu {
    pub fn new(policy: Policy, costs: Costs) -> Self {
        Self {
            now_ns: 0,
            policy,
            costs,
            threads: Vec::new(),
            lines: Vec::new(),
            ready: Vec::new(),
            current: None,
            payer: None,
            on_cpu: None,
            due: BTreeMap::new(),
            coming: 0,
            counts: Counts::default(),
            trace: Some(Vec::new()),
            standing: 0,
        }
    }

    /// Adds a thread without a script; larger priorities are higher. `slice_ns`: `None` for a
    /// timeslice without end; one of 0 counts as 1 ns.
    pub fn thread(&mut self, priority: u8, slice_ns: Option<u64>) -> ThreadId {
        let slice_ns = slice_ns.map(|slice_ns| slice_ns.max(1));
        self.threads.push(Thread {
            priority,
            slice_ns,
            left_ns: slice_ns.unwrap_or(0),
            state: State::Ended,
            stopped: false,
            steps: Vec::new(),
            then: Then::End,
            at: 0,
            computed_ns: 0,
            client: None,
            senders: VecDeque::new(),
            outside: false,
            ran_ns: 0,
        });
        ThreadId(self.threads.len() - 1)
    }

    /// Gives a thread its script and makes it ready; only for threads that have none yet, or whose
    /// script has ended (else nothing but the check happens).
    pub fn script(
        &mut self,
        thread: ThreadId,
        steps: &[Step],
        then: Then,
    ) -> Result<(), ScriptError> {
        let known = |step: &Step| match *step {
            Step::Send(to) | Step::Call(to) | Step::SwitchTo(to) => self.knows(Partner::Thread(to)),
            Step::SendReceive(to, from) => self.knows(Partner::Thread(to)) && self.knows_from(from),
            Step::Receive(from) => self.knows_from(from),
            Step::Compute(_) | Step::WaitUntil(_) | Step::ReplyWait | Step::Yield => true,
        };
        if let Some(step) = steps.iter().position(|step| !known(step)) {
            return Err(ScriptError::Unknown { step });
        }
        if let Then::Repeat(to) = then
            && to >= steps.len()
        {
            return Err(ScriptError::NoSuchStep { to, steps: steps.len() });
        }
        let Some(entry) = self.threads.get_mut(thread.0) else {
            return Err(ScriptError::Unknown { step: 0 });
        };
        if entry.state == State::Ended {
            (entry.steps, entry.then, entry.at, entry.computed_ns) = (steps.to_vec(), then, 0, 0);
            entry.state = State::Ready;
            self.ready.push(thread);
        }
        Ok(())
    }

    fn knows(&self, partner: Partner) -> bool {
        match partner {
            Partner::Thread(thread) => thread.0 < self.threads.len(),
            Partner::Line(line) => line.0 < self.lines.len(),
        }
    }

    fn knows_from(&self, from: From) -> bool {
        match from {
            From::Any => true,
            From::Only(partner) => self.knows(partner),
        }
    }

    /// Adds an interrupt line that is delivered to `handler` as a message, masked until the handler
    /// replies.
    pub fn line(&mut self, handler: ThreadId) -> LineId {
        self.lines.push(Line { handler, state: LineState::Open, pending: 0 });
        LineId(self.lines.len() - 1)
    }

    /// Raises an interrupt line at an instant (one that has passed: at once).
    pub fn interrupt_at(&mut self, at_ns: u64, line: LineId) {
        self.plan(at_ns, Due::Raise(line));
    }

    /// Raises a flag of an executive at an instant, as a handler does that defers its work.
    pub fn flag_at(&mut self, at_ns: u64, flags: &Arc<Flags>, line: usize) {
        self.plan(at_ns, Due::Flag(Arc::clone(flags), line));
    }

    /// Takes a thread from the CPU until [`start`](Self::start); messages still reach it.
    pub fn stop(&mut self, thread: ThreadId) {
        self.threads[thread.0].stopped = true;
        if self.current == Some(thread) {
            self.ready.insert(0, thread);
            self.current = None;
        }
    }

    /// Lets a stopped thread go on; it gets the CPU at once if it is above the current one.
    pub fn start(&mut self, thread: ThreadId) {
        self.threads[thread.0].stopped = false;
        self.preempt(thread);
    }

    /// For long runs: the trace is not kept.
    pub fn without_trace(mut self) -> Self {
        self.trace = None;
        self
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub fn trace(&self) -> &[Event] {
        self.trace.as_deref().unwrap_or_default()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// CPU time that a thread has got.
    pub fn ran_ns(&self, thread: ThreadId) -> u64 {
        self.threads[thread.0].ran_ns
    }

    /// When a thread ended its steps of that number, from the trace.
    pub fn done_ns(&self, thread: ThreadId, step: usize) -> Vec<u64> {
        let done = |event: &&Event| event.what == What::Done(thread, step);
        self.trace().iter().filter(done).map(|event| event.at_ns).collect()
    }

    /// Who got the CPU, in order, from the trace; `None`: no thread.
    pub fn runs(&self) -> Vec<(u64, Option<ThreadId>)> {
        let run = |event: &Event| match event.what {
            What::Run(thread) => Some((event.at_ns, Some(thread))),
            What::Idle => Some((event.at_ns, None)),
            _ => None,
        };
        self.trace().iter().filter_map(run).collect()
    }

    fn plan(&mut self, at_ns: u64, due: Due) {
        self.due.insert((at_ns.max(self.now_ns), self.coming), due);
        self.coming += 1;
    }

    fn note(&mut self, what: What) {
        let at_ns = self.now_ns;
        if let Some(trace) = &mut self.trace {
            trace.push(Event { at_ns, what });
        }
    }
}
