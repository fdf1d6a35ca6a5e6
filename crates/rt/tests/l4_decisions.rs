// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tour's table 2, one test for each row, on the virtual CPU.

use asmp_rt::virtual_cpu::{
    Costs, From, IrqDone, LineId, Mode, OnSend, Partner, Policy, Step, Then, ThreadId, VirtualCpu,
};

const L4: Policy = Policy::L4_EMBEDDED;
const US: u64 = 1000;

fn cpu(policy: Policy) -> VirtualCpu {
    VirtualCpu::new(policy, Costs::default())
}

/// A thread that runs these steps once.
fn thread(cpu: &mut VirtualCpu, priority: u8, steps: &[Step]) -> ThreadId {
    let thread = cpu.thread(priority, None);
    cpu.script(thread, steps, Then::End).unwrap();
    thread
}

/// Who runs from `from_ns` on, in order.
fn order_from(cpu: &mut VirtualCpu, from_ns: u64) -> Vec<ThreadId> {
    cpu.run_until(1_000_000_000).unwrap();
    cpu.runs()
        .into_iter()
        .filter(|(at_ns, _)| *at_ns >= from_ns)
        .filter_map(|(_, who)| who)
        .collect()
}

/// A receiver of low or high priority that waits; a middle thread that is ready; a sender that runs
/// from 10 us on. Returns who runs after the sender's step.
fn after_step(
    policy: Policy,
    receiver: u8,
    sender: u8,
    step: fn(ThreadId) -> Step,
) -> (Vec<ThreadId>, [ThreadId; 3]) {
    let mut cpu = cpu(policy);
    let to = thread(&mut cpu, receiver, &[Step::Receive(From::Any), Step::Compute(5 * US)]);
    let middle = thread(&mut cpu, 20, &[Step::WaitUntil(15 * US), Step::Compute(5 * US)]);
    let from = cpu.thread(sender, None);
    let steps = [Step::WaitUntil(10 * US), Step::Compute(10 * US), step(to), Step::Compute(5 * US)];
    cpu.script(from, &steps, Then::End).unwrap();
    (order_from(&mut cpu, 20 * US), [to, middle, from])
}

#[test]
fn thread_switch_to_a_thread_runs_it_whatever_its_priority() {
    let mut cpu = cpu(L4);
    let low = thread(&mut cpu, 1, &[Step::Compute(US)]);
    let middle = thread(&mut cpu, 2, &[Step::Compute(US)]);
    let high = thread(&mut cpu, 3, &[Step::SwitchTo(low), Step::Compute(US)]);
    assert_eq!(order_from(&mut cpu, 0), [high, low, high, middle]);
}

#[test]
fn thread_switch_to_nobody_runs_the_highest_ready_priority() {
    let mut cpu = cpu(L4);
    let first = thread(&mut cpu, 2, &[Step::Yield, Step::Compute(US)]);
    let second = thread(&mut cpu, 2, &[Step::Compute(US)]);
    let low = thread(&mut cpu, 1, &[Step::Compute(US)]);
    assert_eq!(order_from(&mut cpu, 0), [first, second, first, low]);
}

#[test]
fn the_end_of_a_timeslice_runs_the_next_of_the_highest_ready_priority() {
    let mut cpu = cpu(L4);
    let [a, b] = [(); 2].map(|()| cpu.thread(5, Some(10 * US)));
    let low = cpu.thread(1, None);
    for thread in [a, b, low] {
        cpu.script(thread, &[Step::Compute(15 * US)], Then::End).unwrap();
    }
    cpu.run_until(100 * US).unwrap();
    let runs: Vec<_> =
        cpu.runs().into_iter().filter_map(|(at_ns, who)| Some((at_ns / US, who?))).collect();
    assert_eq!(runs, [(0, a), (10, b), (20, a), (25, b), (30, low)]);
}

#[test]
fn a_send_that_finds_no_receiver_runs_the_highest_ready_priority() {
    let mut cpu = cpu(L4);
    let busy = thread(&mut cpu, 1, &[Step::Compute(US), Step::Receive(From::Any)]);
    let middle = thread(&mut cpu, 2, &[Step::Compute(US)]);
    let high = thread(&mut cpu, 3, &[Step::Send(busy), Step::Compute(US)]);
    let order = order_from(&mut cpu, 0);
    assert_eq!(
        order,
        [high, middle, busy, high, busy],
        "the receive of the low one lets the high one go"
    );
}

#[test]
fn a_receive_that_finds_no_sender_runs_the_highest_ready_priority() {
    let mut cpu = cpu(L4);
    let low = thread(&mut cpu, 1, &[Step::Compute(US)]);
    let middle = thread(&mut cpu, 2, &[Step::Compute(US)]);
    let high = thread(&mut cpu, 3, &[Step::Receive(From::Any)]);
    assert_eq!(order_from(&mut cpu, 0), [high, middle, low]);
}

#[test]
fn a_send_goes_on_with_the_higher_of_sender_and_receiver() {
    let (order, [to, _, from]) = after_step(L4, 30, 25, Step::Send);
    assert_eq!(order[..2], [to, from], "a higher receiver runs at once");
    let (order, [to, middle, from]) = after_step(L4, 5, 25, Step::Send);
    assert_eq!(
        order,
        [middle, to],
        "a lower receiver waits until {from:?} has ended without a switch"
    );
    let (order, [to, middle, from]) = after_step(L4, 25, 25, Step::Send);
    assert_eq!(order, [to, middle], "of equal ones {from:?} goes on");
}

#[test]
fn a_send_on_early_l4_mips_goes_on_with_the_receiver() {
    let policy = Policy { on_send: OnSend::Receiver, ..L4 };
    let (order, [to, middle, from]) = after_step(policy, 5, 25, Step::Send);
    assert_eq!(order, [to, from, middle]);
}

#[test]
fn a_send_on_late_l4_mips_goes_on_with_the_sender() {
    let policy = Policy { on_send: OnSend::Sender, ..L4 };
    let (order, [to, middle, _]) = after_step(policy, 30, 25, Step::Send);
    assert_eq!(order, [to, middle], "the sender ends first, without a switch");
}

#[test]
fn a_receive_switches_to_the_sender_that_waited() {
    let mut cpu = cpu(L4);
    let receiver = thread(
        &mut cpu,
        9,
        &[Step::WaitUntil(10 * US), Step::Receive(From::Any), Step::Compute(US)],
    );
    let sender = thread(&mut cpu, 1, &[Step::Send(receiver), Step::Compute(US)]);
    let middle = thread(&mut cpu, 5, &[Step::WaitUntil(10 * US), Step::Compute(US)]);
    assert_eq!(order_from(&mut cpu, 10 * US), [receiver, sender, receiver, middle]);
}

#[test]
fn a_call_switches_to_the_server_whatever_its_priority() {
    let (order, [server, middle, _]) = after_step(L4, 5, 25, Step::Call);
    assert_eq!(order, [server, middle], "the middle one was ready before");
}

/// A server that has served `first` and finds `second` waiting when it replies. `second` only
/// sends, so that it can run.
fn reply_wait(policy: Policy, first: u8, second: u8) -> (Vec<ThreadId>, [ThreadId; 3]) {
    let mut cpu = cpu(policy);
    let server = cpu.thread(10, None);
    let steps =
        [Step::Receive(From::Any), Step::Compute(20 * US), Step::ReplyWait, Step::Compute(US)];
    cpu.script(server, &steps, Then::End).unwrap();
    let a = thread(&mut cpu, first, &[Step::WaitUntil(US), Step::Call(server), Step::Compute(US)]);
    let b =
        thread(&mut cpu, second, &[Step::WaitUntil(5 * US), Step::Send(server), Step::Compute(US)]);
    (order_from(&mut cpu, 21 * US), [server, a, b])
}

#[test]
fn a_reply_goes_to_the_client_only_if_it_is_strictly_above_the_next() {
    let (order, [_, a, b]) = reply_wait(L4, 31, 30);
    assert_eq!(order[..2], [a, b]);
    let (order, [server, a, b]) = reply_wait(L4, 30, 30);
    assert_eq!(order, [b, a, server], "of equal ones the next");
    let (order, [_, a, b]) = reply_wait(L4, 30, 31);
    assert_eq!(order[..2], [b, a]);
}

#[test]
fn a_reply_without_a_next_client_switches_to_the_client() {
    let mut cpu = cpu(L4);
    let server =
        thread(&mut cpu, 30, &[Step::Receive(From::Any), Step::Compute(5 * US), Step::ReplyWait]);
    let client =
        thread(&mut cpu, 10, &[Step::WaitUntil(US), Step::Call(server), Step::Compute(US)]);
    let middle = thread(&mut cpu, 20, &[Step::WaitUntil(2 * US), Step::Compute(US)]);
    assert_eq!(
        order_from(&mut cpu, US),
        [client, server, client, middle],
        "the middle one is ready since 2 us"
    );
}

/// `current` sends to `dest`, which waits, and receives from `from`, which is sending.
fn send_receive(dest: u8, from: u8) -> (Vec<ThreadId>, [ThreadId; 3]) {
    let mut cpu = cpu(L4);
    let d = thread(&mut cpu, dest, &[Step::Receive(From::Any), Step::Compute(US)]);
    let f = cpu.thread(from, None);
    let current = cpu.thread(10, None);
    let steps = [
        Step::WaitUntil(10 * US),
        Step::SendReceive(d, From::Only(Partner::Thread(f))),
        Step::Compute(US),
    ];
    cpu.script(current, &steps, Then::End).unwrap();
    cpu.script(f, &[Step::Send(current), Step::Compute(US)], Then::End).unwrap();
    (order_from(&mut cpu, 10 * US), [current, d, f])
}

#[test]
fn send_and_receive_goes_on_with_the_higher_partner() {
    let (order, [current, d, f]) = send_receive(6, 5);
    assert_eq!(order, [current, d, current, f]);
    let (order, [current, d, f]) = send_receive(5, 6);
    assert_eq!(order, [current, f, current, d]);
}

/// An interrupt at 10 us whose handler waits, while a thread of priority 20 computes (`busy`) or
/// nobody does.
fn interrupt(
    policy: Policy,
    handler: u8,
    busy: bool,
) -> (Vec<(u64, Option<ThreadId>)>, [ThreadId; 2]) {
    let mut cpu = cpu(policy);
    let server = cpu.thread(handler, None);
    let steps = [Step::ReplyWait, Step::Compute(5 * US)];
    cpu.script(server, &steps, Then::Repeat(0)).unwrap();
    let thread = thread(&mut cpu, 20, &[Step::Compute(if busy { 100 * US } else { 1 })]);
    let line = cpu.line(server);
    cpu.interrupt_at(10 * US, line);
    cpu.run_until(1_000_000_000).unwrap();
    (cpu.runs().into_iter().filter(|(at_ns, _)| *at_ns >= 10 * US).collect(), [server, thread])
}

#[test]
fn an_interrupt_runs_its_handler_only_above_the_current_thread() {
    let (runs, [handler, thread]) = interrupt(L4, 30, true);
    assert_eq!(runs[..2], [(10 * US, Some(handler)), (15 * US, Some(thread))]);
    let (runs, [handler, _]) = interrupt(L4, 20, true);
    assert_eq!(runs[0], (100 * US, Some(handler)), "an equal one goes on");
}

#[test]
fn an_interrupt_of_the_idle_thread_runs_its_handler() {
    let (runs, [handler, _]) = interrupt(L4, 1, false);
    assert_eq!(runs, [(10 * US, Some(handler)), (15 * US, None)]);
}

/// A handler of low priority that is busy while its interrupt comes (10 us), a middle thread ready
/// since 12 us.
fn busy_handler(policy: Policy) -> (Vec<ThreadId>, [ThreadId; 2], VirtualCpu) {
    let mut cpu = cpu(policy);
    let handler = cpu.thread(5, None);
    let line: LineId = cpu.line(handler);
    let own = From::Only(Partner::Line(line));
    let steps =
        [Step::Compute(20 * US), Step::Receive(own), Step::Compute(5 * US), Step::ReplyWait];
    cpu.script(handler, &steps, Then::End).unwrap();
    let middle = thread(&mut cpu, 4, &[Step::Compute(US)]);
    cpu.interrupt_at(10 * US, line);
    (order_from(&mut cpu, 0), [handler, middle], cpu)
}

#[test]
fn an_interrupt_thread_that_could_deliver_at_last_runs_the_handler() {
    let (order, [handler, middle], cpu) = busy_handler(L4);
    assert_eq!(order, [handler, middle]);
    assert_eq!(cpu.done_ns(handler, 1), [20 * US], "delivered when it asks");
    assert_eq!(cpu.done_ns(handler, 2), [25 * US], "and the handler goes on");
}

/// Two interrupts, the second while the first is handled; another thread is ready at the reply, if
/// asked for.
fn second_interrupt(priority: Option<u8>) -> (VirtualCpu, ThreadId) {
    let mut cpu = cpu(L4);
    let handler = cpu.thread(5, None);
    cpu.script(handler, &[Step::ReplyWait, Step::Compute(5 * US)], Then::Repeat(0)).unwrap();
    let line = cpu.line(handler);
    cpu.interrupt_at(10 * US, line);
    cpu.interrupt_at(12 * US, line);
    if let Some(priority) = priority {
        thread(&mut cpu, priority, &[Step::WaitUntil(13 * US), Step::Compute(US)]);
    }
    cpu.run_until(1_000_000).unwrap();
    (cpu, handler)
}

#[test]
fn an_interrupt_that_came_while_masked_is_delivered_by_the_reply() {
    for priority in [None, Some(4)] {
        let (cpu, handler) = second_interrupt(priority);
        assert_eq!(cpu.done_ns(handler, 1), [15 * US, 20 * US]);
        assert_eq!(cpu.counts().interrupts, 2);
    }
    // One above the handler has come meanwhile and made the first run longer.
    let (cpu, handler) = second_interrupt(Some(7));
    assert_eq!(cpu.done_ns(handler, 1), [16 * US, 21 * US]);
}

/// The handler replies while a lower thread is ready: who runs, and how many switches it takes.
fn irq_done(policy: Policy) -> (Vec<Option<ThreadId>>, [ThreadId; 2]) {
    let mut cpu = cpu(policy);
    let handler = cpu.thread(9, None);
    cpu.script(handler, &[Step::ReplyWait, Step::Compute(5 * US)], Then::Repeat(0)).unwrap();
    let other = thread(&mut cpu, 7, &[Step::Compute(100 * US)]);
    let line = cpu.line(handler);
    cpu.interrupt_at(10 * US, line);
    cpu.run_until(50 * US).unwrap();
    (
        cpu.runs().into_iter().filter(|(at_ns, _)| *at_ns >= 15 * US).map(|(_, who)| who).collect(),
        [handler, other],
    )
}

#[test]
fn an_interrupt_thread_without_work_runs_the_scheduler_on_l4_embedded() {
    let (order, [_, other]) = irq_done(L4);
    assert_eq!(order, [Some(other)]);
}

#[test]
fn an_interrupt_thread_without_work_switches_to_idle_on_l4ka() {
    assert_eq!(Policy::L4KA.irq_done, IrqDone::Idle);
    let (order, [_, other]) = irq_done(Policy::L4KA);
    assert_eq!(order, [None, Some(other)]);
}

#[test]
fn a_priority_preserving_kernel_runs_the_highest_after_each_message() {
    let policy = Policy { mode: Mode::PriorityPreserving, ..L4 };
    let (order, [server, middle, _]) = after_step(policy, 5, 25, Step::Call);
    assert_eq!(order, [middle, server], "a call does not take a low server past the middle");
    let (order, [server, a, b]) = reply_wait(policy, 30, 30);
    assert_eq!(order, [a, b, server], "who was served goes on first");
}
