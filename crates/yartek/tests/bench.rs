// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel takes on the boards, in QEMU, within its limits.

mod board;

use asmp_yartek::{Figure, bench};
use board::each;

/// The most instructions that a figure may have on the average, by board.
const MOST: [(&str, [f64; 2]); 7] = [
    ("start of a job to its begin, CPU idle", [170.0, 240.0]),
    ("all that an empty job takes", [460.0, 560.0]),
    ("interrupt to its service", [120.0, 140.0]),
    ("raise in the handler to the service", [110.0, 110.0]),
    ("choice of a job, one to release", [150.0, 150.0]),
    ("a block from the heap, first fit", [150.0, 150.0]),
    ("back to the heap", [150.0, 150.0]),
];
const BOARDS: [&str; 2] = ["mps2-an385", "mcf5208evb"];
/// Between the least and the most of what begins a job.
const SPREAD_INSTRUCTIONS: f64 = 8.0;

#[test]
fn the_kernel_takes_no_more_instructions_than_its_limits_say() {
    each(|board| {
        let figures = bench(&board.0).expect("figures");
        let named = |what: &str| -> &Figure {
            let mut found = figures.iter().filter(|figure| figure.what == what);
            found.next().unwrap_or_else(|| panic!("{}: no figure: {what}", board.name()))
        };
        for figure in &figures {
            assert_eq!(figure.samples, 1024, "{figure:?}");
            assert!(0.0 < figure.least && figure.least <= figure.mean, "{figure:?}");
            assert!(figure.mean <= figure.most, "{figure:?}");
            println!("{}: {figure:?}", board.name());
        }
        // What `check` counts is no less than what is measured.
        let first = named(MOST[0].0);
        assert!(first.most - first.least <= SPREAD_INSTRUCTIONS, "{first:?}");
        for count in [8, 16, 32] {
            let of = named(&format!("the same, {count} jobs start at once"));
            let counted =
                board.0.dispatch_instructions(count) + board.0.clock_interrupt_instructions;
            assert!(of.most <= counted as f64 && of.most > first.most, "{counted}: {of:?}");
        }
        let Some(at) = BOARDS.iter().position(|name| *name == board.name()) else { return };
        for (what, most) in MOST {
            let of = named(what);
            assert!(of.mean <= most[at], "{}: more than {}: {of:?}", board.name(), most[at]);
        }
    });
}
