// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tour says goes wrong, and what mends it: priority inversion, a loaded server, timeslice
//! donation, and the price of keeping to priorities.

use asmp_rt::virtual_cpu::{
    Costs, From, Mode, Partner, Policy, Queueing, Step, Then, ThreadId, VirtualCpu, What,
};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const L4: Policy = Policy::L4_EMBEDDED;
const PRESERVING: Policy = Policy { mode: Mode::PriorityPreserving, ..L4 };

/// A (high) calls B (server of priority `server`), which has been busy with another client's
/// request for 1 ms of 5 ms; C (middle) becomes ready with `middle_ns` of work at the same time.
/// Returns how long A waits for its reply.
fn call_of_a(policy: Policy, server: u8, middle_ns: u64) -> u64 {
    const SECTION: u64 = 5 * MS;
    let mut cpu = VirtualCpu::new(policy, Costs::default());
    let b = cpu.thread(server, None);
    let a = cpu.thread(30, None);
    let c = cpu.thread(20, None);
    let other = cpu.thread(5, None);
    cpu.script(b, &[Step::ReplyWait, Step::Compute(SECTION)], Then::Repeat(0)).unwrap();
    cpu.script(other, &[Step::Call(b)], Then::End).unwrap();
    cpu.script(a, &[Step::WaitUntil(MS), Step::Call(b)], Then::End).unwrap();
    cpu.script(c, &[Step::WaitUntil(MS), Step::Compute(middle_ns)], Then::End).unwrap();
    cpu.run_until(u64::MAX).unwrap();
    // The rest of the other's section and A's own are no inversion.
    cpu.done_ns(a, 1)[0] - MS - (SECTION - MS) - SECTION
}

#[test]
fn without_inheritance_the_middle_delays_the_high_one_without_bound() {
    for policy in [L4, PRESERVING] {
        for middle_ms in [1, 100, 10_000, 1_000_000] {
            assert!(call_of_a(policy, 10, middle_ms * MS) >= middle_ms * MS, "{policy:?}");
        }
    }
}

#[test]
fn with_inheritance_the_high_one_waits_for_the_critical_section_only() {
    for mode in [Mode::Direct, Mode::PriorityPreserving] {
        let policy = Policy { mode, inheritance: true, ..L4 };
        for middle_ms in [1, 100, 10_000, 1_000_000] {
            assert_eq!(call_of_a(policy, 10, middle_ms * MS), 0, "{policy:?}");
        }
    }
}

#[test]
fn a_server_at_the_ceiling_needs_no_inheritance() {
    for policy in [L4, PRESERVING] {
        assert_eq!(call_of_a(policy, 30, 1000 * MS), 0, "{policy:?}");
    }
}

#[test]
fn inheritance_goes_through_a_chain_of_servers() {
    let delay = |policy: Policy| {
        let mut cpu = VirtualCpu::new(policy, Costs::default());
        let [back, front] = [5, 10].map(|priority| cpu.thread(priority, None));
        let a = cpu.thread(30, None);
        let c = cpu.thread(20, None);
        cpu.script(back, &[Step::ReplyWait, Step::Compute(2 * MS)], Then::Repeat(0)).unwrap();
        cpu.script(front, &[Step::ReplyWait, Step::Call(back), Step::Compute(MS)], Then::Repeat(0))
            .unwrap();
        cpu.script(a, &[Step::WaitUntil(MS), Step::Call(front)], Then::End).unwrap();
        cpu.script(c, &[Step::WaitUntil(2 * MS), Step::Compute(1000 * MS)], Then::End).unwrap();
        cpu.run_until(u64::MAX).unwrap();
        cpu.done_ns(a, 1)[0] - MS
    };
    assert_eq!(delay(Policy { inheritance: true, ..PRESERVING }), 3 * MS);
    assert_eq!(delay(PRESERVING), 1003 * MS);
}

/// Low senders wait for a busy server when a high one comes, the last of them: which is served how
/// early?
#[test]
fn a_queue_by_priority_serves_the_high_sender_first() {
    let served_at = |queueing| {
        let mut cpu = VirtualCpu::new(Policy { queueing, ..Policy::REAL_TIME }, Costs::default());
        let server = cpu.thread(10, None);
        let steps =
            [Step::Compute(MS), Step::Receive(From::Any), Step::Compute(MS), Step::ReplyWait];
        cpu.script(server, &steps, Then::Repeat(2)).unwrap();
        // Each above the one before, or it would not get the CPU from a server that inherits.
        for n in 0..5 {
            let low = cpu.thread(20 + n, None);
            let at_ns = (u64::from(n) + 1) * 10 * US;
            cpu.script(low, &[Step::WaitUntil(at_ns), Step::Call(server)], Then::End).unwrap();
        }
        let high = cpu.thread(30, None);
        cpu.script(high, &[Step::WaitUntil(MS / 2), Step::Call(server)], Then::End).unwrap();
        cpu.run_until(100 * MS).unwrap();
        cpu.done_ns(high, 1)[0]
    };
    assert_eq!(served_at(Queueing::Fifo), 7 * MS);
    assert_eq!(served_at(Queueing::Priority), 2 * MS);
}

#[test]
fn equal_senders_are_served_in_the_order_in_which_they_came() {
    for queueing in [Queueing::Fifo, Queueing::Priority] {
        let policy = Policy { queueing, inheritance: false, ..Policy::REAL_TIME };
        let mut cpu = VirtualCpu::new(policy, Costs::default());
        let server = cpu.thread(10, None);
        let steps = [Step::Compute(MS), Step::ReplyWait, Step::Compute(MS)];
        cpu.script(server, &steps, Then::Repeat(1)).unwrap();
        let clients = [(); 3].map(|()| cpu.thread(20, None));
        for client in clients {
            cpu.script(client, &[Step::Call(server)], Then::End).unwrap();
        }
        cpu.run_until(100 * MS).unwrap();
        assert_eq!(
            clients.map(|client| cpu.done_ns(client, 0)[0]),
            [2 * MS, 3 * MS, 4 * MS],
            "{queueing:?}"
        );
    }
}

/// Temporary priority inversion: A gives its time to the lower B; the middle M wakes meanwhile.
#[test]
fn a_direct_switch_lets_the_middle_run_before_the_high_caller() {
    let reply_after = |policy| {
        let mut cpu = VirtualCpu::new(policy, Costs::default());
        let b = cpu.thread(10, None);
        let a = cpu.thread(30, None);
        let m = cpu.thread(20, None);
        cpu.script(b, &[Step::ReplyWait, Step::Compute(MS)], Then::Repeat(0)).unwrap();
        cpu.script(a, &[Step::WaitUntil(MS), Step::Call(b)], Then::End).unwrap();
        cpu.script(m, &[Step::WaitUntil(MS + MS / 2), Step::Compute(50 * MS)], Then::End).unwrap();
        cpu.run_until(u64::MAX).unwrap();
        cpu.done_ns(a, 1)[0] - MS
    };
    assert_eq!(reply_after(L4), 51 * MS);
    assert_eq!(reply_after(Policy { inheritance: true, ..L4 }), MS);
    assert_eq!(reply_after(Policy::REAL_TIME), MS);
}

/// `count` clients of priority 20 call a server of priority 10 that is busy until 2 ms and then
/// works 1 ms for each. Returns when the client served first has done its own next 10 us.
fn first_served(policy: Policy, count: usize) -> u64 {
    let mut cpu = VirtualCpu::new(policy, Costs::default());
    let server = cpu.thread(10, None);
    let steps = [Step::Compute(2 * MS), Step::ReplyWait, Step::Compute(MS)];
    cpu.script(server, &steps, Then::Repeat(1)).unwrap();
    let clients: Vec<ThreadId> = (0..count).map(|_| cpu.thread(20, None)).collect();
    for client in &clients {
        let steps = [Step::WaitUntil(MS), Step::Call(server), Step::Compute(10 * US)];
        cpu.script(*client, &steps, Then::End).unwrap();
    }
    cpu.run_until(u64::MAX).unwrap();
    clients.iter().map(|client| cpu.done_ns(*client, 2)[0]).min().unwrap()
}

#[test]
fn a_loaded_server_starves_those_it_has_served_and_priorities_mend_it() {
    for count in [2, 10, 100] {
        let all_served = (2 + count as u64) * MS;
        assert!(first_served(L4, count) > all_served, "who was served waits for all others");
        assert_eq!(first_served(PRESERVING, count), 3 * MS + 10 * US, "who was served goes on");
    }
}

/// A donor that has used 3 ms of its 10 ms gives the rest to a low thread; a middle one has been
/// ready all along.
fn donation(
    donor_slice: Option<u64>,
    own_slice: Option<u64>,
    give: fn(ThreadId) -> Step,
) -> (VirtualCpu, [ThreadId; 3]) {
    let mut cpu = VirtualCpu::new(L4, Costs::default());
    let low = cpu.thread(1, own_slice);
    let middle = cpu.thread(2, None);
    let donor = cpu.thread(3, donor_slice);
    cpu.script(low, &[Step::Receive(From::Any), Step::Compute(100 * MS)], Then::End).unwrap();
    cpu.script(middle, &[Step::WaitUntil(2 * MS), Step::Compute(5 * MS)], Then::End).unwrap();
    cpu.script(donor, &[Step::WaitUntil(MS), Step::Compute(3 * MS), give(low)], Then::End).unwrap();
    cpu.run_until(500 * MS).unwrap();
    (cpu, [low, middle, donor])
}

#[test]
fn a_donation_lasts_as_long_as_the_donors_rest_whatever_the_recipients_slice() {
    for own_slice in [None, Some(2 * MS), Some(50 * MS)] {
        let (cpu, [low, middle, donor]) = donation(Some(10 * MS), own_slice, Step::Call);
        let runs = cpu.runs();
        // The donor runs 1..4 ms, the low one its 7 ms, then the scheduler finds the middle one.
        let expected =
            [(MS, Some(donor)), (4 * MS, Some(low)), (11 * MS, Some(middle)), (16 * MS, Some(low))];
        let from = runs.iter().position(|run| *run == expected[0]).unwrap();
        assert_eq!(runs[from..from + 4], expected, "own slice {own_slice:?}");
        assert!(
            cpu.trace()
                .iter()
                .any(|event| event.at_ns == 11 * MS && event.what == What::SliceEnd(donor))
        );
    }
}

#[test]
fn a_donor_without_an_end_donates_without_an_end() {
    let (cpu, [low, ..]) = donation(None, Some(2 * MS), Step::Call);
    assert_eq!(cpu.done_ns(low, 1), [104 * MS]);
}

#[test]
fn a_donation_that_is_passed_on_is_still_the_first_donors() {
    let mut cpu = VirtualCpu::new(L4, Costs::default());
    let back = cpu.thread(1, Some(50 * MS));
    let front = cpu.thread(2, Some(50 * MS));
    let middle = cpu.thread(3, None);
    let donor = cpu.thread(4, Some(10 * MS));
    cpu.script(back, &[Step::ReplyWait, Step::Compute(100 * MS)], Then::Repeat(0)).unwrap();
    cpu.script(front, &[Step::ReplyWait, Step::Compute(2 * MS), Step::Call(back)], Then::Repeat(0))
        .unwrap();
    cpu.script(middle, &[Step::WaitUntil(2 * MS), Step::Compute(MS)], Then::End).unwrap();
    cpu.script(donor, &[Step::WaitUntil(MS), Step::Compute(3 * MS), Step::Call(front)], Then::End)
        .unwrap();
    cpu.run_until(20 * MS).unwrap();
    assert_eq!(
        cpu.done_ns(middle, 1),
        [12 * MS],
        "3 + 2 + 5 ms of the donor's slice, begun at 1 ms"
    );
}

#[test]
fn a_donation_ends_when_the_recipient_blocks_and_the_rest_stays_the_donors() {
    let mut cpu = VirtualCpu::new(L4, Costs::default());
    let low = cpu.thread(1, None);
    let equal = cpu.thread(3, None);
    let donor = cpu.thread(3, Some(10 * MS));
    cpu.script(low, &[Step::ReplyWait, Step::Compute(2 * MS)], Then::Repeat(0)).unwrap();
    cpu.script(equal, &[Step::WaitUntil(2 * MS), Step::Compute(MS)], Then::End).unwrap();
    let steps =
        [Step::WaitUntil(MS), Step::Compute(3 * MS), Step::Call(low), Step::Compute(20 * MS)];
    cpu.script(donor, &steps, Then::End).unwrap();
    cpu.run_until(50 * MS).unwrap();
    assert_eq!(
        cpu.done_ns(equal, 1),
        [12 * MS],
        "the donor paid 3 + 2 ms and has 5 ms left of its own"
    );
}

#[test]
fn a_queued_call_is_served_on_the_timeslice_of_its_client() {
    let mut cpu = VirtualCpu::new(L4, Costs::default());
    let server = cpu.thread(1, Some(50 * MS));
    let first = cpu.thread(20, None);
    let second = cpu.thread(20, Some(10 * MS));
    cpu.script(server, &[Step::ReplyWait, Step::Compute(5 * MS)], Then::Repeat(0)).unwrap();
    cpu.script(first, &[Step::Call(server)], Then::End).unwrap();
    let steps = [Step::WaitUntil(2 * MS), Step::Compute(7 * MS), Step::Call(server)];
    cpu.script(second, &steps, Then::End).unwrap();
    cpu.run_until(100 * MS).unwrap();
    // The second has used 7 ms when it calls; the server ends the first call at 12 ms, the second's
    // rest at 15 ms.
    let ended: Vec<_> =
        cpu.trace().iter().filter(|event| matches!(event.what, What::SliceEnd(_))).collect();
    assert_eq!((ended[0].at_ns, ended[0].what), (15 * MS, What::SliceEnd(second)));
}

/// Calls that one client gets through in a second.
fn throughput(mode: Mode, work_us: u64, costs: Costs) -> (u64, VirtualCpu) {
    let policy = Policy { mode, ..L4 };
    let mut cpu = VirtualCpu::new(policy, costs);
    let server = cpu.thread(10, None);
    let client = cpu.thread(10, None);
    let background = cpu.thread(1, Some(10 * MS));
    cpu.script(server, &[Step::ReplyWait, Step::Compute(work_us * US)], Then::Repeat(0)).unwrap();
    cpu.script(client, &[Step::Compute(work_us * US), Step::Call(server)], Then::Repeat(0))
        .unwrap();
    cpu.script(background, &[Step::Compute(MS)], Then::Repeat(0)).unwrap();
    cpu.run_until(1000 * MS).unwrap();
    (cpu.done_ns(client, 1).len() as u64, cpu)
}

/// A model, not a measurement: a message costs 1 us, a switch 1 us, a run of the scheduler 0.25 us
/// (a few queue operations beside a change of address space). By these costs the loss is 0.5 us in
/// 2 w + 4.5 us a call: at most 5 % from w = 2.75 us of work between messages on, more below. The
/// tour's kernels lost 2.5 % on the average and 5 % at worst.
#[test]
fn keeping_to_priorities_costs_at_most_5_percent_in_the_model() {
    let costs = Costs { switch_ns: US, schedule_ns: US / 4, message_ns: US };
    for work_us in [4, 10, 50] {
        let (direct, direct_cpu) = throughput(Mode::Direct, work_us, costs);
        let (preserving, preserving_cpu) = throughput(Mode::PriorityPreserving, work_us, costs);
        let loss_permille = 1000 - 1000 * preserving / direct;
        println!(
            "{work_us} us between messages: {direct} calls/s direct, {preserving} preserving, \
             loss {} %; switches a call {:.2} and {:.2}, scheduler runs a call {:.2} and {:.2}",
            loss_permille as f64 / 10.0,
            direct_cpu.counts().switches as f64 / direct as f64,
            preserving_cpu.counts().switches as f64 / preserving as f64,
            direct_cpu.counts().schedules as f64 / direct as f64,
            preserving_cpu.counts().schedules as f64 / preserving as f64,
        );
        assert!(loss_permille <= 50, "{loss_permille}");
        // The same switches: what it costs is the scheduler.
        let switches = |calls, cpu: &VirtualCpu| cpu.counts().switches * 10 / calls;
        assert_eq!(switches(direct, &direct_cpu), switches(preserving, &preserving_cpu));
        assert!(
            direct_cpu.counts().schedules * 10 < direct
                && preserving_cpu.counts().schedules >= 2 * preserving
        );
    }
}

#[test]
fn the_same_input_gives_the_same_trace() {
    let run = || {
        let mut cpu = VirtualCpu::new(
            Policy::REAL_TIME,
            Costs { switch_ns: 70, schedule_ns: 30, message_ns: 110 },
        );
        let server = cpu.thread(10, Some(MS));
        let line = cpu.line(server);
        cpu.script(server, &[Step::ReplyWait, Step::Compute(300 * US)], Then::Repeat(0)).unwrap();
        for priority in [5, 5, 20] {
            let client = cpu.thread(priority, Some(2 * MS));
            cpu.script(client, &[Step::Compute(170 * US), Step::Call(server)], Then::Repeat(0))
                .unwrap();
        }
        (0..50).for_each(|n| cpu.interrupt_at(n * 777 * US, line));
        cpu.run_until(50 * MS).unwrap();
        (cpu.trace().to_vec(), cpu.counts())
    };
    assert!(run().0.len() > 500);
    assert_eq!(run(), run());
}

#[test]
fn threads_that_never_compute_are_told_instead_of_hanging() {
    let mut cpu = VirtualCpu::new(L4, Costs::default());
    let [a, b] = [(); 2].map(|()| cpu.thread(5, None));
    cpu.script(a, &[Step::Call(b)], Then::Repeat(0)).unwrap();
    cpu.script(b, &[Step::ReplyWait], Then::Repeat(0)).unwrap();
    assert_eq!(cpu.run_until(MS).unwrap_err().at_ns, 0);
    let mut cpu = VirtualCpu::new(L4, Costs::default());
    let idler = cpu.thread(5, None);
    cpu.script(idler, &[Step::Compute(0)], Then::Repeat(0)).unwrap();
    assert_eq!(cpu.run_until(MS).unwrap_err().thread, idler);
}

#[test]
fn callers_that_wait_for_each_other_do_not_hang_inheritance() {
    let mut cpu = VirtualCpu::new(Policy::REAL_TIME, Costs::default());
    let [a, b] = [5, 6].map(|priority| cpu.thread(priority, None));
    cpu.script(a, &[Step::Call(b)], Then::End).unwrap();
    cpu.script(b, &[Step::Call(a)], Then::End).unwrap();
    cpu.run_until(MS).unwrap();
    assert_eq!(cpu.now_ns(), MS);
}

#[test]
fn a_script_with_an_unknown_thread_or_step_is_refused() {
    let mut other = VirtualCpu::new(L4, Costs::default());
    let foreign = [(); 3].map(|()| other.thread(1, None))[2];
    let foreign_line = other.line(foreign);
    let mut cpu = VirtualCpu::new(L4, Costs::default());
    let thread = cpu.thread(1, None);
    for step in [Step::Call(foreign), Step::Receive(From::Only(Partner::Line(foreign_line)))] {
        let refused = cpu.script(thread, &[Step::Compute(1), step], Then::End).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "step 1 names a thread or line that this CPU does not have"
        );
    }
    assert!(cpu.script(thread, &[Step::Compute(1)], Then::Repeat(1)).is_err());
    assert!(cpu.script(foreign, &[], Then::End).is_err());
}
