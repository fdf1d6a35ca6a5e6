// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who runs next: the scheduling policies in general-purpose L4 microkernels (the tour's table 2),
//! and those of a kernel that keeps to priorities. Pure.

use super::ThreadId;

/// Whether messages carry the CPU with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Table 2: the message path switches to a partner without asking the scheduler.
    Direct,
    /// "Full scheduling": after each message the highest ready priority runs.
    PriorityPreserving,
}

/// Who goes on after a `Send()` that found its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSend {
    /// The one of higher priority; of equal ones the sender.
    Highest,
    /// L4/MIPS, early versions.
    Receiver,
    /// L4/MIPS, later versions.
    Sender,
}

/// What an interrupt thread does when its handler has replied and nothing is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IrqDone {
    /// L4-embedded.
    Scheduler,
    /// L4Ka: to the idle thread, which then calls the scheduler.
    Idle,
}

/// In which order senders that wait for one receiver are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queueing {
    Fifo,
    Priority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub mode: Mode,
    pub on_send: OnSend,
    pub irq_done: IrqDone,
    pub queueing: Queueing,
    /// Who is waited for runs at the priority of who waits for it to receive or to reply.
    pub inheritance: bool,
}

impl Policy {
    pub const L4_EMBEDDED: Self = Self {
        mode: Mode::Direct,
        on_send: OnSend::Highest,
        irq_done: IrqDone::Scheduler,
        queueing: Queueing::Fifo,
        inheritance: false,
    };
    pub const L4KA: Self = Self { irq_done: IrqDone::Idle, ..Self::L4_EMBEDDED };
    /// What a real-time system should use.
    pub const REAL_TIME: Self = Self {
        mode: Mode::PriorityPreserving,
        queueing: Queueing::Priority,
        inheritance: true,
        ..Self::L4_EMBEDDED
    };
}

/// A thread, or the in-kernel thread of an interrupt line (`None`), and its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub thread: Option<ThreadId>,
    pub priority: u16,
}

impl Candidate {
    /// Interrupt threads are above all others.
    pub const IRQ: Self = Self { thread: None, priority: u16::MAX };
}

/// The rows of table 2: situations in which it is open who runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation {
    SwitchTo(ThreadId),
    Yield,
    SliceEnds,
    SendBlocks,
    ReceiveBlocks,
    Send {
        current: Candidate,
        dest: Candidate,
    },
    Receive {
        from: ThreadId,
    },
    Call {
        dest: ThreadId,
    },
    /// The reply reached `dest`; `next` is the sender from which the server has received, if there
    /// is one.
    ReplyWait {
        dest: Candidate,
        next: Option<Candidate>,
    },
    SendReceive {
        dest: Candidate,
        from: Option<Candidate>,
    },
    /// `current`: `None` for the idle thread or an interrupt thread.
    Interrupt {
        current: Option<Candidate>,
        handler: Candidate,
    },
    /// An interrupt thread has delivered its message to a handler that was busy.
    IrqSends {
        handler: ThreadId,
    },
    IrqDone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The highest ready priority.
    Scheduler,
    /// This thread, on its own timeslice.
    Direct(ThreadId),
    /// This thread, on what is left of the timeslice of who ran.
    Donate(ThreadId),
    /// The interrupt thread, whose message is then delivered.
    Irq,
    Idle,
}

/// Table 2, row by row.
pub fn decide(policy: &Policy, situation: Situation) -> Choice {
    // Explicit, so it is kept in both modes.
    if let Situation::SwitchTo(to) = situation {
        return Choice::Donate(to);
    }
    if policy.mode == Mode::PriorityPreserving {
        return Choice::Scheduler;
    }
    let direct = |candidate: Candidate| candidate.thread.map_or(Choice::Irq, Choice::Direct);
    match situation {
        Situation::SwitchTo(to) => Choice::Donate(to),
        Situation::Yield
        | Situation::SliceEnds
        | Situation::SendBlocks
        | Situation::ReceiveBlocks => Choice::Scheduler,
        Situation::Send { current, dest } => match policy.on_send {
            OnSend::Highest if dest.priority > current.priority => direct(dest),
            OnSend::Highest | OnSend::Sender => direct(current),
            OnSend::Receiver => dest.thread.map_or(Choice::Irq, Choice::Donate),
        },
        Situation::Receive { from } => Choice::Donate(from),
        Situation::Call { dest } => Choice::Donate(dest),
        // Strictly higher: of equal ones the next client, which starves those served.
        Situation::ReplyWait { dest, next } | Situation::SendReceive { dest, from: next } => {
            direct(next.filter(|next| dest.priority <= next.priority).unwrap_or(dest))
        }
        Situation::Interrupt { current: Some(current), handler } => {
            direct(if handler.priority > current.priority { handler } else { current })
        }
        Situation::Interrupt { current: None, handler } => {
            handler.thread.map_or(Choice::Irq, Choice::Donate)
        }
        Situation::IrqSends { handler } => Choice::Donate(handler),
        Situation::IrqDone => match policy.irq_done {
            IrqDone::Scheduler => Choice::Scheduler,
            IrqDone::Idle => Choice::Idle,
        },
    }
}
