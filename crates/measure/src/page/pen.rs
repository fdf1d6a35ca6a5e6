// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths of SVG on a grid of whole numbers, in few bytes: what falls on the same place of the grid
//! is drawn once. Pure.

use std::fmt::Write;

/// The grid of a plot: its width and its height.
pub const WIDTH: i32 = 1000;
pub const HEIGHT: i32 = 500;

/// Draws one path. Places are from 0 to 1, upwards.
#[derive(Debug, Default)]
pub struct Pen {
    text: String,
    at: Option<(i32, i32)>,
}

fn column(x: f64) -> i32 {
    (x * f64::from(WIDTH)).round() as i32
}

fn row(y: f64) -> i32 {
    HEIGHT - (y * f64::from(HEIGHT)).round() as i32
}

impl Pen {
    pub fn move_to(&mut self, x: f64, y: f64) {
        let (x, y) = (column(x), row(y));
        let _ = match self.at {
            Some((from_x, from_y)) => write!(self.text, "m{} {}", x - from_x, y - from_y),
            None => write!(self.text, "M{x} {y}"),
        };
        self.at = Some((x, y));
    }

    /// Straight up or down, then straight on: a step. Steps that end in one column of the grid are
    /// one; the height of the last one counts.
    pub fn step(&mut self, y: f64, to_x: f64) {
        let Some((from_x, from_y)) = self.at else { return self.move_to(to_x, y) };
        let (x, y) = (column(to_x), row(y));
        if y != from_y {
            let _ = write!(self.text, "v{}", y - from_y);
        }
        if x != from_x {
            let _ = write!(self.text, "h{}", x - from_x);
        }
        self.at = Some((x, y));
    }

    /// Straight lines upwards, from each lower end to each upper one.
    pub fn ranges(ranges: impl IntoIterator<Item = (f64, [f64; 2])>) -> String {
        let mut pen = Self::default();
        for (x, [low, high]) in ranges {
            pen.move_to(x, low);
            pen.step(high, x);
        }
        pen.text
    }

    /// Dots, as lines without length: round ends make them visible.
    pub fn dots(places: impl IntoIterator<Item = (f64, f64)>) -> String {
        let mut places: Vec<(i32, i32)> =
            places.into_iter().map(|(x, y)| (column(x), row(y))).collect();
        places.sort_unstable();
        places.dedup();
        let (mut text, mut at) = (String::new(), (0, 0));
        for (x, y) in places {
            let command = if text.is_empty() { 'M' } else { 'm' };
            let _ = write!(text, "{command}{} {}h0", x - at.0, y - at.1);
            at = (x, y);
        }
        text
    }

    pub fn path(self) -> String {
        self.text
    }
}

/// The places that a path of this module visits, from 0 to 1.
#[cfg(test)]
pub fn places(path: &str) -> Vec<(f64, f64)> {
    let (mut at, mut all) = ((0, 0), Vec::new());
    let mut rest = path;
    while let Some(command) = rest.chars().next() {
        let end =
            rest[1..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |end| end + 1);
        let numbers: Vec<i32> =
            rest[1..end].split_whitespace().map(|number| number.parse().unwrap()).collect();
        at = match command {
            'M' => (numbers[0], numbers[1]),
            'm' => (at.0 + numbers[0], at.1 + numbers[1]),
            'h' => (at.0 + numbers[0], at.1),
            'v' => (at.0, at.1 + numbers[0]),
            other => panic!("{other}"),
        };
        all.push((
            f64::from(at.0) / f64::from(WIDTH),
            f64::from(HEIGHT - at.1) / f64::from(HEIGHT),
        ));
        rest = &rest[end..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_one_column_are_one_and_none_is_slanted() {
        let mut pen = Pen::default();
        pen.move_to(0.0, 0.0);
        [0.1, 0.2, 0.3].into_iter().for_each(|y| pen.step(y, 0.0004));
        pen.step(1.0, 1.0);
        let path = pen.path();
        let places = places(&path);
        assert_eq!(places.last(), Some(&(1.0, 1.0)));
        let straight = |pair: &[(f64, f64)]| pair[0].0 == pair[1].0 || pair[0].1 == pair[1].1;
        assert!(places.windows(2).all(straight), "{path}");
    }

    #[test]
    fn a_range_goes_from_its_lower_to_its_upper_end() {
        let ranges = Pen::ranges([(0.0, [0.5, 1.0]), (0.5, [0.25, 0.25]), (1.0, [0.0, 0.5])]);
        assert_eq!(ranges, "M0 250v-250m500 375m500 125v-250");
    }

    #[test]
    fn dots_of_one_place_are_one() {
        let dots = Pen::dots([(0.5, 0.5), (0.0, 1.0), (0.5001, 0.5), (1.0, 0.0)]);
        assert_eq!(dots, "M0 0h0m500 250h0m500 250h0");
        assert_eq!(Pen::dots([]), "");
    }
}
