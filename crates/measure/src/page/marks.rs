// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ringed points with numbers, and where their numbers stand. Pure.

/// A ringed point with its number; the ring of number 1 is a thick one.
#[derive(Debug)]
pub struct Mark {
    pub x: f64,
    pub y: f64,
    pub number: usize,
}

/// Marks that stand together, with one text beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// From left to right, each with its number.
    pub points: Vec<(f64, f64)>,
    pub numbers: Vec<usize>,
    /// Where the text begins, in pixels from the plot's left.
    pub text_from: f64,
    /// What rings and text take of the width.
    from: f64,
    to: f64,
}

impl Merged {
    fn new(marks: &[&Mark], width: f64, text_width: &impl Fn(&str) -> f64) -> Self {
        let points: Vec<(f64, f64)> = marks.iter().map(|mark| (mark.x, mark.y)).collect();
        let numbers = marks.iter().map(|mark| mark.number).collect();
        let (first, last) = (points[0].0 * width, points[points.len() - 1].0 * width);
        let mut merged =
            Self { points, numbers, text_from: 0.0, from: first - RING, to: last + RING };
        let text = text_width(&merged.text());
        // On the right where there is room.
        if merged.to + text <= width {
            merged.text_from = merged.to;
            merged.to += text;
        } else {
            merged.from -= text;
            merged.text_from = merged.from;
        }
        merged
    }

    /// `1`, or `4, 1` where the fourth stands left of the worst.
    pub fn text(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(usize::to_string).collect();
        numbers.join(", ")
    }
}

/// From the middle of a ring to its number.
const RING: f64 = 8.0;

/// Marks whose rings and numbers would lie on each other have one text.
pub fn merged(marks: &[Mark], width: f64, text_width: impl Fn(&str) -> f64) -> Vec<Merged> {
    let mut sorted: Vec<&Mark> = marks.iter().collect();
    sorted.sort_by(|one, other| one.x.total_cmp(&other.x));
    let mut groups: Vec<Vec<&Mark>> = sorted.into_iter().map(|mark| vec![mark]).collect();
    loop {
        let merged: Vec<Merged> =
            groups.iter().map(|group| Merged::new(group, width, &text_width)).collect();
        match merged.windows(2).position(|pair| pair[0].to > pair[1].from) {
            None => return merged,
            Some(at) => {
                let next = groups.remove(at + 1);
                groups[at].extend(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_stand_together_share_their_text() {
        let mark = |x: f64, number: usize| Mark { x, y: 0.5, number };
        let marks = [mark(0.9, 1), mark(0.1, 5), mark(0.11, 2), mark(0.12, 4), mark(0.13, 3)];
        let merged = merged(&marks, 500.0, |text| text.chars().count() as f64 * 7.0);
        let texts: Vec<String> = merged.iter().map(Merged::text).collect();
        // In the order of their rings.
        assert_eq!(texts, ["5, 2, 4, 3", "1"]);
        assert!(merged[0].points.len() == 4 && merged[0].to <= merged[1].from);
        let edge = [mark(1.0, 1), mark(0.99, 2)];
        let edge = super::merged(&edge, 500.0, |text| text.chars().count() as f64 * 7.0);
        assert!(edge.len() == 1 && edge[0].text_from + 28.0 < 0.99 * 500.0, "{edge:?}");
    }
}
