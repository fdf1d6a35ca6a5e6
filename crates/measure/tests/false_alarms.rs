// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often a comparison is sure of what is not there, and of what is; `make bench-measure` does
//! the same with longer rounds.

mod rounds;

use rounds::{Family, sure};

#[test]
fn a_difference_that_is_not_there_is_seldom_sure_and_one_of_a_tenth_often() {
    const PAIRS: u64 = 200;
    for family in Family::ALL {
        let counts = sure(family, PAIRS, 6, 1000);
        println!("{family:?}: {counts:?} of {PAIRS}");
        for (figure, [falsely, truly]) in counts {
            // 5 %, and three deviations of so few pairs.
            assert!(falsely <= 19, "{family:?}, {figure:?}: {falsely} of {PAIRS}");
            // A thousand samples that depend on each other are worth some thirty.
            if figure.name() == "median" && family != Family::Dependent {
                assert!(truly >= PAIRS * 8 / 10, "{family:?}: {truly} of {PAIRS}");
            }
        }
    }
}

#[test]
fn four_rounds_can_be_sure_of_one_figure_and_not_of_four() {
    for (_, [_, truly]) in sure(Family::Independent, 20, 4, 1000) {
        assert_eq!(truly, 0, "four figures take five rounds");
    }
    let five = sure(Family::Independent, 20, 5, 1000);
    assert!(five[0].1[1] > 15, "{five:?}");
}
