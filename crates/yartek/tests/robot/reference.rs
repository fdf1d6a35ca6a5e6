// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The robot's map, computed anew from what `yartek/app/robot/map.h` and `sine.h` say, in 64 bits
//! and with real sines: where the C code rounds, wraps or overflows otherwise, it differs.

use std::collections::VecDeque;
use std::f64::consts::FRAC_PI_2;

const CELL_MM: i64 = 50;

/// `enum robot_event`, of `tasks.h`, with its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A sonar's number, the counters as it fired, and how long the echo took; 0: none came.
    Sonar {
        number: usize,
        left: u16,
        right: u16,
        us: u32,
    },
    Odometer {
        wheel: usize,
        counter: u16,
    },
    Update,
    AntiSensor,
    Clear,
    Compute,
}

impl Event {
    pub fn of(words: [u32; 4]) -> Option<Self> {
        let [event, a, b, c] = words;
        Some(match event {
            0 => Self::Sonar {
                number: a as usize,
                left: (b & 0xffff) as u16,
                right: (b >> 16) as u16,
                us: c,
            },
            1 => Self::Odometer { wheel: a as usize, counter: u16::try_from(b).ok()? },
            2 => Self::Update,
            3 => Self::AntiSensor,
            4 => Self::Clear,
            5 => Self::Compute,
            _ => return None,
        })
    }
}

pub fn sine(angle: i64) -> i64 {
    let angle = angle.rem_euclid(65536);
    let at = |n: i64| (16384.0 * (FRAC_PI_2 * n as f64 / 64.0).sin()).round() as i64;
    let (quarter, within) = (angle / 16384, angle % 16384);
    let within = if quarter % 2 == 1 { 16384 - within } else { within };
    let (n, p) = (within / 256, within % 256);
    let value = ((256 - p) * at(n) + p * at(n + 1) + 128).div_euclid(256);
    if quarter >= 2 { -value } else { value }
}

pub fn cosine(angle: i64) -> i64 {
    sine(angle + 16384)
}

/// -75, -45, -15, 15, 45 and 75 degrees.
pub fn direction(sonar: usize) -> i64 {
    ((sonar as f64 * 30.0 - 75.0) / 360.0 * 65536.0).round() as i64
}

/// Where the robot believes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// In 65536th parts of a mm.
    pub x: i64,
    pub y: i64,
    /// What the wheels have counted.
    pub left: i64,
    pub right: i64,
    straight: i64,
}

impl Place {
    pub fn start(left: i64, right: i64) -> Self {
        Self { x: 1200 << 16, y: 1200 << 16, left, right, straight: right - left }
    }

    pub fn heading(&self) -> i64 {
        self.right - self.left - self.straight
    }

    pub fn go_to(&mut self, left: i64, right: i64) {
        let (by_left, by_right) = (left - self.left, right - self.right);
        let halfway = self.heading() + (by_right - by_left).div_euclid(2);
        self.x += ((by_left + by_right) * cosine(halfway)).div_euclid(16);
        self.y += ((by_left + by_right) * sine(halfway)).div_euclid(16);
        (self.left, self.right) = (left, right);
    }

    fn mm(&self) -> (i64, i64) {
        (self.x.div_euclid(65536), self.y.div_euclid(65536))
    }
}

/// What of the map is a choice.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub columns: i64,
    pub rows: i64,
    /// So many readings count.
    pub most: usize,
}

pub struct Map {
    pub shape: Shape,
    pub cells: Vec<u8>,
    /// The oldest first.
    last: VecDeque<Option<usize>>,
}

impl Map {
    pub fn new(shape: Shape) -> Self {
        let cells = vec![0; (shape.columns * shape.rows) as usize];
        Self { shape, cells, last: VecDeque::new() }
    }

    fn count_down(&mut self, cell: usize) {
        self.cells[cell] = self.cells[cell].saturating_sub(1);
    }

    pub fn reading(&mut self, place: &Place, angle: i64, us: u32) {
        let towards = place.heading() + angle;
        let mm = (343 * i64::from(us) + 1000) / 2000 + 200;
        let (x, y) = place.mm();
        let x = x + (mm * cosine(towards)).div_euclid(16384);
        let y = y + (mm * sine(towards)).div_euclid(16384);
        let (column, row) = (x.div_euclid(CELL_MM), y.div_euclid(CELL_MM));
        let is_inside =
            (0..self.shape.columns).contains(&column) && (0..self.shape.rows).contains(&row);
        let cell = is_inside.then_some((row * self.shape.columns + column) as usize);
        if self.last.len() == self.shape.most
            && let Some(Some(oldest)) = self.last.pop_front()
        {
            self.count_down(oldest);
        }
        self.last.push_back(cell);
        if let Some(cell) = cell {
            self.cells[cell] = self.cells[cell].saturating_add(1);
        }
    }

    pub fn antisensor(&mut self, place: &Place) {
        let (x, y) = place.mm();
        let (along, up) = (cosine(place.heading()), sine(place.heading()));
        for cell in 0..self.cells.len() {
            let (row, column) =
                (cell as i64 / self.shape.columns, cell as i64 % self.shape.columns);
            let a = column * CELL_MM + CELL_MM / 2 - x;
            let b = row * CELL_MM + CELL_MM / 2 - y;
            let ahead = (a * along + b * up).div_euclid(16384);
            let left = (b * along - a * up).div_euclid(16384);
            if (0..=1500).contains(&ahead) && (-500..=500).contains(&left) {
                self.count_down(cell);
            }
        }
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.shape);
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((self.shape.columns as u16).to_be_bytes());
        bytes.extend((self.shape.rows as u16).to_be_bytes());
        bytes.push(CELL_MM as u8);
        for run in self.cells.chunk_by(|a, b| a == b) {
            bytes.push(run[0]);
            let mut count = run.len();
            loop {
                let (low, rest) = (count as u8 & 0x7f, count >> 7);
                bytes.push(if rest > 0 { low | 0x80 } else { low });
                count = rest;
                if rest == 0 {
                    break;
                }
            }
        }
        bytes
    }
}

/// The whole: events in, maps out.
pub struct Robot {
    pub map: Map,
    pub place: Place,
    counted: [i64; 2],
    pending: Vec<(usize, i64, i64, u32)>,
}

impl Robot {
    pub fn new(shape: Shape) -> Self {
        Self {
            map: Map::new(shape),
            place: Place::start(0, 0),
            counted: [0, 0],
            pending: Vec::new(),
        }
    }

    /// The counter's nearest value that ends in these 16 bits.
    fn count(&mut self, wheel: usize, counter: u16) {
        let wraps = (self.counted[wheel] - i64::from(counter) + 32768).div_euclid(65536);
        self.counted[wheel] = wraps * 65536 + i64::from(counter);
    }

    /// The map, if one was computed.
    pub fn see(&mut self, event: Event) -> Option<Vec<u8>> {
        match event {
            Event::Sonar { number, left, right, us } => {
                self.count(0, left);
                self.count(1, right);
                let [left, right] = self.counted;
                self.pending.push((number, left, right, us));
            }
            Event::Odometer { wheel, counter } => self.count(wheel, counter),
            Event::Update => {
                for (number, left, right, us) in std::mem::take(&mut self.pending) {
                    self.place.go_to(left, right);
                    if us > 0 {
                        self.map.reading(&self.place, direction(number), us);
                    }
                }
            }
            Event::AntiSensor => {
                let mut now = self.place;
                now.go_to(self.counted[0], self.counted[1]);
                self.map.antisensor(&now);
            }
            Event::Clear => self.map.clear(),
            Event::Compute => return Some(self.map.bytes()),
        }
        None
    }
}
