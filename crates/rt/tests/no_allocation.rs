// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executives allocate when they are made, not when they run.

use asmp_rt::executive::{
    Action, Agenda, Clock, Executive, Jobs, Late, Monotonic, Progress, Reflective, Task, Tuning,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes all on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `dealloc`; `at` came from `alloc` above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    run();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_np_edf_executive_allocates_nothing_while_it_runs() {
    let mut jobs = Jobs::new();
    let ran = Cell::new(0);
    for (period_ns, late) in [(100_000, Late::Skip), (150_000, Late::Finish), (70_000, Late::Skip)]
    {
        let task = Task { period_ns, offset_ns: 0, budget_ns: 10_000, late };
        jobs.periodic(task, |_| {
            ran.set(ran.get() + 1);
            if ran.get() == 500 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    let line = jobs.background(0, |_| Progress::Done);
    let mut executive = Executive::new(Monotonic, jobs).unwrap();
    let flags = executive.flags();
    let count = allocations(|| {
        flags.raise(line).unwrap();
        executive.run(Monotonic.now_ns(), u64::MAX).unwrap();
    });
    assert_eq!((count, ran.get()), (0, 500));
}

#[test]
fn the_reflective_scheduler_allocates_nothing_while_it_runs_and_is_changed() {
    let agenda = Agenda::new(3).unwrap();
    agenda
        .change(|table| table.insert(Monotonic.now_ns(), Action::Call(0), Some(100_000)))
        .unwrap();
    let mut scheduler = Reflective::new(Monotonic, &agenda, Tuning::SPINNING);
    let mut left = 200;
    let count = allocations(|| {
        scheduler.run(u64::MAX, |moment| {
            // A full table refuses without allocating.
            let _ =
                agenda.change(|table| table.insert(moment.now_ns + 50_000, Action::Call(1), None));
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    });
    assert_eq!((count, left), (0, 0));
}
