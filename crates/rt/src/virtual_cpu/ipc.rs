// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages and interrupts of the virtual CPU. A message step has a send phase and a receive phase,
//! as the L4 system call; when both are over, table 2 says who runs.

use super::decision::{Candidate, Situation};
use super::*;

impl Thread {
    /// The answer to a call leaves the client as it is: a server may call others while it serves.
    fn remember(&mut self, client: Option<Partner>) {
        if !matches!(self.step(), Some(Step::Call(_))) {
            self.client = client;
        }
    }
}

/// What the receive phase came to.
enum Received {
    /// There is no receive phase.
    NotAsked,
    Blocks,
    /// From a thread.
    From(ThreadId),
    FromLine,
}

impl VirtualCpu {
    /// The message step of the current thread.
    pub(super) fn message(&mut self, current: ThreadId) {
        self.counts.messages += 1;
        self.pass(self.costs.message_ns);
        let Some(step) = self.threads[current.0].step() else { return };
        let (to, from) = self.phases(current, step);

        let (mut reached, mut replied) = (None, None);
        match to {
            None => {}
            Some(Partner::Line(line)) => replied = Some(line),
            Some(Partner::Thread(dest)) if self.accepts(dest, Partner::Thread(current)) => {
                self.hand_over(dest, Partner::Thread(current));
                reached = Some(dest);
            }
            Some(Partner::Thread(_)) if step == Step::ReplyWait => self.counts.lost_replies += 1,
            Some(Partner::Thread(dest)) => {
                self.threads[current.0].state = State::Sending { to: dest };
                self.threads[dest.0].senders.push_back(Partner::Thread(current));
                return self.choose(Situation::SendBlocks);
            }
        }
        let received = match from {
            None => {
                self.complete(current);
                Received::NotAsked
            }
            Some(from) => self.receive(current, from),
        };
        if matches!(received, Received::Blocks) {
            // The next thread, which may be this one, comes from the ready ones.
            self.current = None;
        }
        if let Some(line) = replied {
            return self.unmask(line);
        }
        let own = self.candidate(current);
        let reached = reached.map(|dest| self.candidate(dest));
        match (received, reached) {
            // Its receiver may have been gone.
            (Received::NotAsked, None) => {}
            (Received::NotAsked, Some(dest)) => self.choose(Situation::Send { current: own, dest }),
            (Received::Blocks, None) => self.choose(Situation::ReceiveBlocks),
            (Received::Blocks, Some(dest)) => match step {
                Step::Call(to) => self.choose(Situation::Call { dest: to }),
                _ => self.choose(reply(step, dest, None)),
            },
            (Received::From(sender), None) => {
                self.after_receive(sender, Situation::Receive { from: sender })
            }
            (Received::From(sender), Some(dest)) => {
                let next = self.candidate(sender);
                self.after_receive(sender, reply(step, dest, Some(next)));
            }
            (Received::FromLine, None) => self.choose(Situation::IrqSends { handler: current }),
            (Received::FromLine, Some(dest)) => {
                // The interrupt thread is above all; it delivers and passes the CPU on to its
                // handler.
                self.choose(reply(step, dest, Some(Candidate::IRQ)));
                if self.current == Some(current) {
                    self.choose(Situation::IrqSends { handler: current });
                }
            }
        }
    }

    /// The sender's call ends its send phase and waits for us: then the CPU comes back to us with
    /// its donation (`Call()` in table 2).
    fn after_receive(&mut self, sender: ThreadId, situation: Situation) {
        let to_sender = matches!(
            decide(&self.policy, situation),
            Choice::Direct(thread) | Choice::Donate(thread) if thread == sender
        );
        if to_sender && self.threads[sender.0].state != State::Ready {
            if matches!(decide(&self.policy, situation), Choice::Direct(_)) {
                self.payer = Some(sender);
            }
            return;
        }
        self.choose(situation);
    }

    fn phases(&self, thread: ThreadId, step: Step) -> (Option<Partner>, Option<From>) {
        match step {
            Step::Send(to) => (Some(Partner::Thread(to)), None),
            Step::Receive(from) => (None, Some(from)),
            Step::Call(to) => (Some(Partner::Thread(to)), Some(From::Only(Partner::Thread(to)))),
            Step::ReplyWait => (self.threads[thread.0].client, Some(From::Any)),
            Step::SendReceive(to, from) => (Some(Partner::Thread(to)), Some(from)),
            Step::Compute(_) | Step::WaitUntil(_) | Step::SwitchTo(_) | Step::Yield => (None, None),
        }
    }

    fn accepts(&self, receiver: ThreadId, sender: Partner) -> bool {
        matches!(self.threads[receiver.0].state, State::Receiving(from) if from.accepts(sender))
    }

    /// A receiver that waits gets its message and is ready.
    fn hand_over(&mut self, receiver: ThreadId, sender: Partner) {
        self.threads[receiver.0].remember(Some(sender));
        self.complete(receiver);
        self.ready.push(receiver);
    }

    /// The receive phase of a thread whose send phase is over.
    fn receive(&mut self, receiver: ThreadId, from: From) -> Received {
        let Some(sender) = self.take_sender(receiver, from) else {
            self.threads[receiver.0].state = State::Receiving(from);
            self.threads[receiver.0].remember(None);
            return Received::Blocks;
        };
        self.threads[receiver.0].remember(Some(sender));
        self.complete(receiver);
        match sender {
            Partner::Thread(sender) => {
                self.sent(sender);
                Received::From(sender)
            }
            Partner::Line(line) => {
                self.lines[line.0].state = LineState::Handled;
                Received::FromLine
            }
        }
    }

    /// A sender's message was taken: it goes on, or into its receive phase.
    fn sent(&mut self, sender: ThreadId) {
        let from = self.threads[sender.0].step().and_then(|step| self.phases(sender, step).1);
        match from {
            None => self.complete(sender),
            Some(from) => {
                if matches!(self.receive(sender, from), Received::Blocks) {
                    return;
                }
            }
        }
        self.ready.push(sender);
    }

    fn take_sender(&mut self, receiver: ThreadId, from: From) -> Option<Partner> {
        let senders = &self.threads[receiver.0].senders;
        let mut waiting = senders.iter().enumerate().filter(|(_, sender)| from.accepts(**sender));
        let at = match self.policy.queueing {
            Queueing::Fifo => waiting.next()?.0,
            Queueing::Priority => {
                let priority = |sender: &Partner| match *sender {
                    Partner::Thread(thread) => self.candidate(thread).priority,
                    Partner::Line(_) => Candidate::IRQ.priority,
                };
                // Of equal ones the first.
                waiting.rev().max_by_key(|(_, sender)| priority(sender))?.0
            }
        };
        self.threads[receiver.0].senders.remove(at)
    }

    /// An interrupt comes in.
    pub(super) fn raise(&mut self, line: LineId) {
        self.note(What::Interrupt(line));
        self.counts.interrupts += 1;
        let entry = &mut self.lines[line.0];
        if entry.state == LineState::Open {
            let current = self.current.map(|current| self.candidate(current));
            self.deliver(line, current);
        } else {
            entry.pending += 1;
        }
    }

    /// `current`: whom the interrupt found; `None` for the idle thread and interrupt threads. Says
    /// whether the handler was waiting.
    fn deliver(&mut self, line: LineId, current: Option<Candidate>) -> bool {
        let handler = self.lines[line.0].handler;
        let waits = self.accepts(handler, Partner::Line(line));
        if waits {
            self.lines[line.0].state = LineState::Handled;
            self.hand_over(handler, Partner::Line(line));
            self.choose(Situation::Interrupt { current, handler: self.candidate(handler) });
        } else {
            self.lines[line.0].state = LineState::Queued;
            self.threads[handler.0].senders.push_back(Partner::Line(line));
        }
        waits
    }

    /// The handler has replied: the line is open again, or delivers what was raised meanwhile.
    fn unmask(&mut self, line: LineId) {
        let entry = &mut self.lines[line.0];
        entry.state = LineState::Open;
        if entry.pending > 0 {
            entry.pending -= 1;
            if self.deliver(line, None) {
                return;
            }
        }
        self.choose(Situation::IrqDone);
    }
}

/// The row of a reply and of any other step that sends and then receives.
fn reply(step: Step, dest: Candidate, next: Option<Candidate>) -> Situation {
    match step {
        Step::SendReceive(..) => Situation::SendReceive { dest, from: next },
        _ => Situation::ReplyWait { dest, next },
    }
}
