// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The look of a kind: one colour and one dash in every figure, told apart by the colour-blind
//! (palette of M. Okabe and K. Ito) and without colours.

use crate::run::Kind;
use crate::spaces::Place;

/// Black on a light page, light on a dark one; the fallback is for a figure taken out of its page.
pub const INK: &str = "var(--ink,#1a1a1a)";
/// The page below the ink.
pub const PAGE: &str = "var(--page,#ffffff)";
const BLUE: &str = "#0072B2";
const GREEN: &str = "#009E73";
const VERMILLION: &str = "#D55E00";
const PURPLE: &str = "#CC79A7";
/// Darker than the orange and the sky blue of the palette, which are too pale for lines on white.
const BROWN: &str = "#8A5A00";
const SKY: &str = "#2A8AC4";

/// Colour, and dash and gap in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    pub colour: &'static str,
    /// Empty: a line without gaps.
    pub dash: &'static str,
    /// Width of the line.
    pub pixels: f64,
}

const fn thin(colour: &'static str, dash: &'static str) -> Style {
    Style { colour, dash, pixels: 2.0 }
}

pub const fn of_kind(kind: Kind) -> Style {
    match kind {
        Kind::Normal => thin(VERMILLION, "2 2"),
        Kind::FifoIrq => thin(PURPLE, "9 3 2 3"),
        Kind::Fifo => thin(GREEN, "6 3"),
        Kind::PartitionTick => thin(INK, "12 3"),
        Kind::Partition => thin(BLUE, ""),
        Kind::Shared => thin(SKY, "16 3 4 3"),
        Kind::BestEffort => thin(BROWN, "4 4"),
    }
}

/// Several runs of a kind have its colour, and each a dash and a weight of its own; the first has
/// those of its kind. `nth`: from 0 on; the twenty-second looks like the first.
pub fn of_run(kind: Kind, nth: usize) -> Style {
    let first = of_kind(kind);
    let others = Kind::ALL.into_iter().map(|kind| of_kind(kind).dash);
    let mut dashes = vec![first.dash];
    dashes.extend(others.filter(|dash| *dash != first.dash));
    let dash = dashes[nth % dashes.len()];
    Style { dash, pixels: [first.pixels, 3.4, 1.0][nth / dashes.len() % 3], ..first }
}

/// Where an event is handled, in the figures of address spaces: other dashes than those of kinds.
pub const fn of_place(place: Place) -> Style {
    match place {
        Place::Kernel => thin(VERMILLION, "5 2"),
        Place::User => thin(BLUE, "10 2 2 2"),
        Place::Program => thin(INK, ""),
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
    fn fifteen_runs_of_a_kind_have_its_colour_and_look_different() {
        for kind in Kind::ALL {
            let runs: Vec<Style> = (0..15).map(|nth| of_run(kind, nth)).collect();
            assert_eq!(runs[0], of_kind(kind));
            for (at, one) in runs.iter().enumerate() {
                assert_eq!(one.colour, runs[0].colour);
                assert!(runs[at + 1..].iter().all(|other| other != one), "{one:?}");
            }
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
