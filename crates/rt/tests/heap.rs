// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process of its own for the touched heap: beside other tests, malloc lets threads share heaps
//! and hands out old ones.

use asmp_rt::thread::{Watch, prefault_heap, prefault_stack};
use std::hint::black_box;
use std::sync::mpsc;

/// What the blocks below take, and so much more that malloc would give it back by itself.
const BYTES: usize = 16 << 20;

/// Page faults of small blocks that are alive together, and of a large one.
fn faults_of_allocating() -> u64 {
    let watch = Watch::enter();
    let blocks: [Option<Box<[u8; 60_000]>>; 32] =
        std::array::from_fn(|_| Some(Box::new([1; 60_000])));
    black_box(&blocks);
    drop(blocks);
    let large = black_box(vec![1u8; 2 << 20]);
    drop(large);
    watch.leave().minor_faults
}

#[test]
fn a_touched_heap_faults_no_page_any_more() {
    // A thread that ends leaves its heap to the next one: this one lives on until the other has
    // been seen.
    let (count, untouched) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        prefault_stack(usize::MAX).unwrap();
        count.send(faults_of_allocating()).unwrap();
        ended.recv().unwrap_err();
    });
    let untouched = untouched.recv().unwrap();
    let touched = std::thread::spawn(|| {
        prefault_stack(usize::MAX).unwrap();
        prefault_heap(BYTES).unwrap();
        faults_of_allocating()
    });
    let touched = touched.join().unwrap();
    drop(end);
    other.join().unwrap();
    assert!(
        untouched > 100,
        "only {untouched} faults where nothing was touched: the test could not fail"
    );
    // Not zero: a kernel that balances memory between nodes lets pages fault to see who uses them.
    assert!(touched < 40, "{touched} faults, {untouched} where nothing was touched before");
}
