// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map of the robot of the case study, as it sends it, and a drawing of it.
//!
//! `yartek/app/robot/map.h` describes the bytes. Lengths are in mm.

use crate::sources;
use std::fmt::Write;

/// How often sonars met each cell lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    pub columns: usize,
    pub rows: usize,
    pub cell_mm: usize,
    /// Row by row, from y = 0.
    pub cells: Vec<u8>,
}

/// Bytes that are no map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    #[error("no map: it ends after {bytes} bytes")]
    Short { bytes: usize },
    #[error("no map: a grid of {columns} by {rows} cells of {cell_mm} mm")]
    Shape { columns: usize, rows: usize, cell_mm: usize },
    #[error("no map: its runs have more than {cells} cells, or none, at byte {at}")]
    Run { cells: usize, at: usize },
    #[error("no map: {bytes} bytes follow its last cell")]
    Long { bytes: usize },
}

const HEAD_BYTES: usize = 5;

impl Map {
    pub fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        let short = MapError::Short { bytes: bytes.len() };
        let (head, runs) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(short)?;
        let [columns, rows] = [[head[0], head[1]], [head[2], head[3]]]
            .map(|pair| usize::from(u16::from_be_bytes(pair)));
        let cell_mm = usize::from(head[4]);
        let all = columns * rows;
        // Cells have numbers of 16 bits, and one of these is none.
        if all == 0 || all >= usize::from(u16::MAX) || cell_mm == 0 {
            return Err(MapError::Shape { columns, rows, cell_mm });
        }
        let (mut cells, mut at) = (Vec::new(), 0);
        while cells.len() < all {
            let begin = at;
            let value = *runs.get(at).ok_or(short)?;
            let (mut count, mut shift) = (0, 0);
            loop {
                at += 1;
                let byte = *runs.get(at).ok_or(short)?;
                count |= usize::from(byte & 0x7f) << shift;
                shift += 7;
                // 5 bytes hold the cells of any grid.
                if byte < 0x80 || shift >= 35 {
                    break;
                }
            }
            at += 1;
            if count == 0 || count > all - cells.len() {
                return Err(MapError::Run { cells: all, at: HEAD_BYTES + begin });
            }
            cells.resize(cells.len() + count, value);
        }
        match runs.len() - at {
            0 => Ok(Self { columns, rows, cell_mm, cells }),
            bytes => Err(MapError::Long { bytes }),
        }
    }

    /// The bytes of a line `map HEX`, as a robot prints it. `None`: it is no such line.
    pub fn printed(line: &str) -> Option<Vec<u8>> {
        let digits = line.strip_prefix("map ")?.chars().map(|c| c.to_digit(16).map(|d| d as u8));
        let digits = digits.collect::<Option<Vec<u8>>>()?;
        let byte = |pair: &[u8]| Some(pair[0] << 4 | pair.get(1)?);
        digits.chunks(2).map(byte).collect()
    }

    /// The middles of the cells that something was met in, in mm.
    pub fn occupied_mm(&self) -> impl Iterator<Item = (f64, f64)> {
        let middle = |index: usize| (index as f64 + 0.5) * self.cell_mm as f64;
        let occupied = self.cells.iter().enumerate().filter(|(_, count)| **count > 0);
        occupied.map(move |(cell, _)| (middle(cell % self.columns), middle(cell / self.columns)))
    }

    /// An SVG: on the left the rooms as they are, on the right the map, the darker the more often
    /// a cell was met.
    pub fn svg(&self, walls: &[Wall], title: &str) -> String {
        let [width, height] = [self.columns, self.rows].map(|cells| cells * self.cell_mm);
        let (gap, top) = (400, 500);
        let mut out = String::new();
        // Writing to a String does not fail. Lengths are in mm of the rooms; y goes down here.
        let _ = writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="1000" viewBox="0 0 {} {}"
font-family="sans-serif" font-size="260">
<title>{title}</title>
<rect width="100%" height="100%" fill="white"/>
<text x="200" y="350">The rooms</text>
<text x="{}" y="350">The map</text>"#,
            2 * width + gap,
            height + top,
            width + gap + 200
        );
        let _ = write!(out, r#"<path fill="none" stroke="black" stroke-width="40" d=""#);
        for wall in walls {
            let y = |mm: i32| (top + height) as i32 - mm;
            let [(from_x, from_y), (to_x, to_y)] = [wall.from_mm, wall.to_mm];
            let _ = write!(out, "M{from_x} {}L{to_x} {}", y(from_y), y(to_y));
        }
        let _ = writeln!(out, r#""/>"#);
        let (left, cell) = (width + gap, self.cell_mm);
        let _ = writeln!(
            out,
            r##"<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="#f4f4f4"/>"##
        );
        for (counts, colour) in [(1..=1, "#9ab"), (2..=3, "#567"), (4..=u8::MAX, "#000")] {
            let _ = write!(out, r#"<path fill="{colour}" d=""#);
            let of_colour =
                self.cells.iter().enumerate().filter(|(_, count)| counts.contains(count));
            for (at, _) in of_colour {
                let (column, row) = (at % self.columns, at / self.columns);
                let (x, y) = (left + column * cell, top + height - (row + 1) * cell);
                let _ = write!(out, "M{x} {y}h{cell}v{cell}h-{cell}z");
            }
            let _ = writeln!(out, r#""/>"#);
        }
        out + "</svg>\n"
    }
}

/// A wall of the robot's rooms, in mm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wall {
    pub from_mm: (i32, i32),
    pub to_mm: (i32, i32),
}

/// The walls around the robot, as its simulated world has them.
pub fn walls() -> Vec<Wall> {
    let lines = sources::text("app/robot/rooms.h").lines();
    let inside = lines.filter_map(|line| line.strip_prefix("WALL(")?.strip_suffix(')'));
    let numbers = inside.map(|inside| inside.split(", ").map(str::parse).collect());
    let walls = numbers.filter_map(|numbers: Result<Vec<i32>, _>| match *numbers.ok()? {
        [from_x, from_y, to_x, to_y] => {
            Some(Wall { from_mm: (from_x, from_y), to_mm: (to_x, to_y) })
        }
        _ => None,
    });
    walls.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_and_one_that_is_cut_or_too_long_is_refused() {
        let bytes = [0, 20, 0, 10, 50, 0, 100, 3, 1, 0, 99];
        let map = Map::decode(&bytes).unwrap();
        assert_eq!((map.columns, map.rows, map.cells.len()), (20, 10, 200));
        assert_eq!(map.occupied_mm().collect::<Vec<_>>(), [(25.0, 275.0)]);
        for end in 0..bytes.len() {
            assert_eq!(Map::decode(&bytes[..end]), Err(MapError::Short { bytes: end }));
        }
        let error = Map::decode(&[&bytes[..], &[0, 0]].concat());
        assert_eq!(error, Err(MapError::Long { bytes: 2 }));
    }

    #[test]
    fn runs_that_do_not_fill_the_grid_are_refused() {
        let run = |count: &[u8]| Map::decode(&[&[0, 20, 0, 10, 50, 7][..], count].concat());
        assert_eq!(run(&[0xc8, 1]).map(|map| map.cells), Ok(vec![7; 200]));
        for count in [&[0xc9, 1][..], &[0], &[0xff; 9]] {
            assert_eq!(run(count), Err(MapError::Run { cells: 200, at: 5 }));
        }
        let error = Map::decode(&[0, 20, 0, 0, 50, 7, 1]);
        assert_eq!(error, Err(MapError::Shape { columns: 20, rows: 0, cell_mm: 50 }));
        let error = Map::decode(&[0xff, 0xff, 0xff, 0xff, 50, 1, 0x81, 0x80, 0xf8, 0xff, 0x0f]);
        assert_eq!(error, Err(MapError::Shape { columns: 65535, rows: 65535, cell_mm: 50 }));
    }

    #[test]
    fn the_rooms_are_those_of_the_world() {
        let walls = walls();
        let text = sources::text("app/robot/rooms.h");
        assert_eq!(walls.len(), text.matches("\nWALL(").count());
        assert_eq!(walls[0], Wall { from_mm: (400, 400), to_mm: (12400, 400) });
    }

    #[test]
    fn a_drawing_has_each_wall_and_each_cell_that_was_met() {
        let map = Map::decode(&[0, 4, 0, 2, 50, 0, 3, 1, 1, 2, 1, 9, 1, 0, 2]).unwrap();
        let svg = map.svg(&walls()[..2], "a map");
        assert_eq!(svg.matches("v50h-50z").count(), 3);
        assert!(svg.contains("M400 200L12400 200M12400 200L12400 -5400"), "{svg}");
        // Column 3 of row 0, at the bottom.
        assert!(svg.contains("<path fill=\"#9ab\" d=\"M750 550h50v50h-50z\"/>"), "{svg}");
    }
}
