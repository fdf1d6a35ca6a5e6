// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the cameras see, and how it is judged. Pure: the same camera and frame give the same
//! pixels, so that what was planted can be compared with what was found, one by one.
//!
//! A frame is 64 x 48 pixels of a grey surface with noise, in cells of 16 x 16. A cell has one
//! defect or none: a few dark pixels.

pub const WIDTH: usize = 64;
pub const HEIGHT: usize = 48;
pub const CELL: usize = 16;
const CELLS: usize = (WIDTH / CELL) * (HEIGHT / CELL);
/// Number of the camera and of the frame, each in 4 bytes.
const HEADER: usize = 8;
pub type Frame = [u8; HEADER + WIDTH * HEIGHT];

/// How many frames of a camera show the same product.
const RUN: u32 = 25;
/// The filter looks this far around a pixel.
const AROUND: usize = 5;
/// By how much a pixel is darker than its surroundings, where the filter suspects it.
const DARKER: i32 = 40;

/// What is on the line for [`RUN`] frames.
pub struct Product {
    pub name: &'static str,
    /// Of the cells of a frame, about so many have a defect.
    defects: u32,
    /// How many tasks look for them.
    pub tasks: usize,
}

const PRODUCTS: [Product; 3] = [
    Product { name: "bolt", defects: 2, tasks: 1 },
    Product { name: "gear", defects: 4, tasks: 2 },
    Product { name: "ring", defects: 8, tasks: 4 },
];

/// Which product that is since the line began: 0, 1, 2, …
pub fn run(frame: u32) -> u32 {
    frame / RUN
}

/// The product of a run.
pub fn product(run: u32) -> &'static Product {
    &PRODUCTS[run as usize % PRODUCTS.len()]
}

/// Its place is that of its upper left pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Defect {
    pub camera: u32,
    pub frame: u32,
    pub x: u32,
    pub y: u32,
    pub kind: u32,
}

/// The dark pixels of each kind: a spot, scratches, cracks, a hole.
const KINDS: [&[(usize, usize)]; 6] = [
    &[(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2)],
    &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)],
    &[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6)],
    &[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)],
    &[(6, 0), (5, 1), (4, 2), (3, 3), (2, 4), (1, 5), (0, 6)],
    &[(1, 0), (2, 0), (3, 1), (3, 2), (2, 3), (1, 3), (0, 2), (0, 1)],
];
/// No kind is larger, in either direction.
const LARGEST: usize = 7;

/// Random bits of these numbers (splitmix64).
fn mix(camera: u32, frame: u32, place: u32) -> u64 {
    let mut bits = u64::from(camera) << 56 ^ u64::from(frame) << 20 ^ u64::from(place);
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The defects of a frame. Allocates nothing.
pub fn planted(camera: u32, frame: u32) -> impl Iterator<Item = Defect> {
    let defects = u64::from(product(run(frame)).defects);
    (0..CELLS).filter_map(move |cell| {
        let bits = mix(camera, frame, cell as u32);
        // Not at the edge of its cell.
        let place = |bits: u64| 1 + (bits % (CELL - LARGEST - 1) as u64) as usize;
        let (left, top) = corner(cell);
        (bits % (CELLS as u64) < defects).then(|| Defect {
            camera,
            frame,
            x: (left + place(bits >> 16)) as u32,
            y: (top + place(bits >> 32)) as u32,
            kind: (bits >> 48) as u32 % KINDS.len() as u32,
        })
    })
}

/// Of a cell: its upper left pixel.
fn corner(cell: usize) -> (usize, usize) {
    (cell % (WIDTH / CELL) * CELL, cell / (WIDTH / CELL) * CELL)
}

/// What the camera delivers. Bounded, allocates nothing.
pub fn shoot(camera: u32, number: u32, frame: &mut Frame) {
    let (header, pixels) = frame.split_at_mut(HEADER);
    header[..4].copy_from_slice(&camera.to_ne_bytes());
    header[4..].copy_from_slice(&number.to_ne_bytes());
    let mut noise = mix(camera, number, u32::MAX) | 1;
    for (at, pixel) in pixels.iter_mut().enumerate() {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        // Lighter to the right, and the noise.
        *pixel = (140 + at % WIDTH / 2 + (noise % 8) as usize) as u8;
    }
    for defect in planted(camera, number) {
        for (x, y) in KINDS[defect.kind as usize] {
            pixels[(defect.y as usize + y) * WIDTH + defect.x as usize + x] -= 90;
        }
    }
}

/// A cell with dark pixels: its number, and 1 where it is dark.
const PART: usize = 1 + CELL * CELL;

/// The cells of a frame that look suspicious, after its header; none: an empty vector. `row` is
/// called after each row.
pub fn suspicious(frame: &Frame, mut row: impl FnMut()) -> Vec<u8> {
    let (header, pixels) = frame.split_at(HEADER);
    let mut dark = [[0; CELL * CELL]; CELLS];
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let (mut sum, mut count) = (0, 0);
            for near_y in y.saturating_sub(AROUND)..(y + AROUND + 1).min(HEIGHT) {
                for near_x in x.saturating_sub(AROUND)..(x + AROUND + 1).min(WIDTH) {
                    sum += i32::from(pixels[near_y * WIDTH + near_x]);
                    count += 1;
                }
            }
            if sum / count - i32::from(pixels[y * WIDTH + x]) > DARKER {
                let cell = y / CELL * (WIDTH / CELL) + x / CELL;
                dark[cell][y % CELL * CELL + x % CELL] = 1;
            }
        }
        row();
    }
    let mut parts = Vec::new();
    for (cell, dark) in dark.iter().enumerate().filter(|(_, dark)| dark.contains(&1)) {
        if parts.is_empty() {
            parts.extend_from_slice(header);
        }
        parts.push(cell as u8);
        parts.extend_from_slice(dark);
    }
    parts
}

/// No more than that, of one frame.
pub const MOST_PARTS: usize = HEADER + CELLS * PART;

/// Of a frame, or of its parts: the camera, and the number of the frame.
pub fn header(bytes: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    (word(0), word(4))
}

/// The defects in these parts. A part that is like no kind has the kind `u32::MAX`. `step` is
/// called now and then.
pub fn identify(parts: &[u8], mut step: impl FnMut()) -> Vec<Defect> {
    let (camera, frame) = header(parts);
    let identified = parts[HEADER..].chunks_exact(PART).map(|part| {
        let ((left, top), dark) = (corner(usize::from(part[0])), &part[1..]);
        let (x, y, kind) = best(dark, &mut step).unwrap_or((0, 0, u32::MAX));
        Defect { camera, frame, x: (left + x) as u32, y: (top + y) as u32, kind }
    });
    identified.collect()
}

/// Compares the cell with each kind at each place. Returns the place and the kind that are like it
/// in every pixel.
fn best(dark: &[u8], mut step: impl FnMut()) -> Option<(usize, usize, u32)> {
    let mut found = None;
    for y in 0..CELL - LARGEST {
        for x in 0..CELL - LARGEST {
            for (kind, pixels) in (0..).zip(KINDS) {
                let mut like = [0; CELL * CELL];
                for (right, down) in pixels {
                    like[(y + down) * CELL + x + right] = 1;
                }
                let different = like.iter().zip(dark).filter(|(one, other)| one != other).count();
                if different == 0 {
                    found = Some((x, y, kind));
                }
            }
        }
        step();
    }
    found
}
