// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The look of a kind: one colour and one dash in every figure, told apart by the colour-blind
//! (palette of M. Okabe and K. Ito) and without colours.

use crate::run::Kind;
use crate::spaces::Place;

/// Black on a light page, light on a dark one; the fallback is for a figure taken out of its page.
pub const INK: &str = "var(--ink,#1a1a1a)";
const BLUE: &str = "#0072B2";
const GREEN: &str = "#009E73";
const VERMILLION: &str = "#D55E00";
const PURPLE: &str = "#CC79A7";

/// Colour, and dash and gap in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    pub colour: &'static str,
    /// Empty: a line without gaps.
    pub dash: &'static str,
}

/// The three colours that are left of the palette are too pale for lines on white.
pub const fn of_kind(kind: Kind) -> Style {
    match kind {
        Kind::Normal => Style { colour: VERMILLION, dash: "2 2" },
        Kind::FifoIrq => Style { colour: PURPLE, dash: "9 3 2 3" },
        Kind::Fifo => Style { colour: GREEN, dash: "6 3" },
        Kind::PartitionTick => Style { colour: INK, dash: "12 3" },
        Kind::Partition => Style { colour: BLUE, dash: "" },
    }
}

/// Where an event is handled, in the figures of address spaces: other dashes than those of kinds.
pub const fn of_place(place: Place) -> Style {
    match place {
        Place::Kernel => Style { colour: VERMILLION, dash: "5 2" },
        Place::User => Style { colour: BLUE, dash: "10 2 2 2" },
        Place::Program => Style { colour: INK, dash: "" },
    }
}

/// Of the whole page. On a screen text has at least 11 px: figures have a narrow layout of their
/// own. On paper it has at least 6.5 pt: a table has up to 16 columns, and paper one width.
pub const SHEET: &str = include_str!("sheet.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_kinds_look_alike_with_colours_or_without() {
        let kinds: Vec<Style> = Kind::ALL.into_iter().map(of_kind).collect();
        let places = [Place::Kernel, Place::User, Place::Program].map(of_place);
        for (at, one) in kinds.iter().enumerate() {
            for other in &kinds[at + 1..] {
                assert!(one.colour != other.colour && one.dash != other.dash, "{one:?}");
            }
            assert!(places.iter().all(|place| place != one), "{one:?}");
        }
    }

    #[test]
    fn no_text_of_the_sheet_is_smaller_than_11_px_on_a_screen_and_6_5_pt_on_paper() {
        // In pixels. A size of another unit is none that can be checked.
        let px = |word: &str| -> Option<f64> {
            let unit_at =
                word.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|at| *at > 0)?;
            let size: f64 = word[..unit_at].parse().ok()?;
            match &word[unit_at..] {
                "px" => Some(size),
                "pt" => Some(size / 72.0 * 96.0),
                unit => panic!("a size in {unit}"),
            }
        };
        let sizes = |sheet: &str| -> Vec<f64> {
            sheet
                .split(['{', ';', '}'])
                .filter_map(|rule| rule.trim().strip_prefix("font"))
                .flat_map(|rule| rule.split([' ', ':', '/']))
                .filter_map(px)
                .collect()
        };
        let (screen, paper) = SHEET.split_once("@media print").unwrap();
        let (screen, paper) = (sizes(screen), sizes(paper));
        assert!(screen.len() > 3 && screen.iter().all(|px| *px >= 11.0), "{screen:?}");
        let least = 6.5 / 72.0 * 96.0;
        assert!(!paper.is_empty() && paper.iter().all(|px| *px >= least), "{paper:?}");
    }
}
