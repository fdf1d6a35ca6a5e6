// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames over a bad line: the board's end beside ours, which is written apart from it.

use asmp_analysis::simulate::Random;
use asmp_yartek::{BoardLink, Counts, MAX_FRAME_BYTES, Receiver, Sender};

const ROUNDS: u64 = 20_000;

/// Bytes that often need an escape.
fn bytes(random: &mut Random) -> Vec<u8> {
    let length = match random.up_to(3) {
        0 => 0,
        1 => MAX_FRAME_BYTES as u64,
        _ => random.up_to(MAX_FRAME_BYTES as u64),
    };
    let byte = |random: &mut Random| match random.up_to(3) {
        0 => 0x7d + random.up_to(1) as u8,
        _ => random.up_to(255) as u8,
    };
    (0..length).map(|_| byte(random)).collect()
}

/// What the line makes of a frame: it goes twice, later, or not at all; bytes change, or are gone;
/// others come between.
fn spoil(random: &mut Random, frames: Vec<Vec<u8>>) -> Vec<u8> {
    let mut line = Vec::new();
    let mut kept = Vec::new();
    for mut frame in frames {
        let at = random.up_to(frame.len() as u64 - 1) as usize;
        match random.up_to(15) {
            0 => frame.clear(),
            1 => frame[at] ^= 1 << random.up_to(7),
            2 => frame.truncate(at),
            3 => drop(frame.remove(at)),
            4 => frame.extend(frame.clone()),
            5 => kept.clone_from(&frame),
            6 => frame.append(&mut kept),
            7 => frame.insert(at, 0x7d),
            8 => frame.extend((0..random.up_to(300)).map(|_| random.up_to(255) as u8)),
            _ => {}
        }
        line.append(&mut frame);
    }
    line
}

/// A frame of any length, which says another, with a CRC that is right.
fn any_frame(says: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0, says];
    frame.resize(2 + length, 0x55);
    let crc = frame.iter().fold(0xffff_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| (crc >> 1) ^ (0x8408 * (crc & 1)))
    });
    frame.extend((!crc).to_le_bytes());
    let escaped = frame.into_iter().flat_map(|byte| match byte {
        0x7d | 0x7e => vec![0x7d, byte ^ 0x20],
        byte => vec![byte],
    });
    [0x7e].into_iter().chain(escaped).chain([0x7e]).collect()
}

#[test]
fn a_frame_is_as_long_as_it_says_and_not_too_long() {
    for says in 0..=u8::MAX {
        for length in (0..=70).chain([127, 128, 255, 300]) {
            let (mut receiver, mut board) = (Receiver::default(), BoardLink::default());
            let line = any_frame(says, length);
            let came: Vec<_> = line.iter().filter_map(|byte| receiver.take(*byte)).collect();
            let on_board: Vec<_> = line.iter().filter_map(|byte| board.take(*byte)).collect();
            let is_good = length == usize::from(says) && length <= MAX_FRAME_BYTES;
            assert_eq!((came.len(), &came), (usize::from(is_good), &on_board), "{says} {length}");
            assert_eq!(
                (receiver.counts().cut, board.counts().cut),
                (!is_good as u32, !is_good as u32)
            );
        }
    }
}

#[test]
fn a_board_takes_the_frames_that_we_take_and_drops_the_others_for_the_same_cause() {
    let mut random = Random::new(17);
    let mut all = Counts::default();
    for round in 0..ROUNDS {
        let (mut sender, mut receiver) = (Sender::default(), Receiver::default());
        let mut board = BoardLink::default();
        let count = 1 + random.up_to(40);
        let frames = (0..count).map(|_| sender.frame(&bytes(&mut random))).collect();
        for (at, byte) in spoil(&mut random, frames).into_iter().enumerate() {
            assert_eq!(board.take(byte), receiver.take(byte), "round {round}, byte {at}");
        }
        let counts = receiver.counts();
        assert_eq!(board.counts(), counts, "round {round}");
        all.came += counts.came;
        all.missed += counts.missed;
        all.wrong += counts.wrong;
        all.cut += counts.cut;
        all.doubled += counts.doubled;
        all.late += counts.late;
    }
    println!("{all:?}");
    let least = [all.came, all.missed, all.wrong, all.cut, all.doubled, all.late].into_iter().min();
    assert!(least > Some(1000), "each cause occurs");
}

#[test]
fn a_board_sends_the_bytes_that_we_send() {
    let mut random = Random::new(71);
    let (mut sender, mut board) = (Sender::default(), BoardLink::default());
    for _ in 0..ROUNDS {
        let bytes = bytes(&mut random);
        assert_eq!(board.frame(&bytes), sender.frame(&bytes));
    }
}

/// Changes a bit so that no escape and no flag comes or goes.
fn change_a_bit(random: &mut Random, line: &mut [u8]) {
    loop {
        let at = random.up_to(line.len() as u64 - 1) as usize;
        let changed = line[at] ^ 1 << random.up_to(7);
        if ![line[at], changed].iter().any(|byte| matches!(byte, 0x7d | 0x7e)) {
            line[at] = changed;
            return;
        }
    }
}

/// The CRC finds each, in frames of up to 4 kB (its Hamming distance is 4).
#[test]
fn up_to_three_changed_bits_are_found() {
    let mut random = Random::new(1662);
    for round in 0..ROUNDS {
        let (mut sender, mut receiver) = (Sender::default(), Receiver::default());
        let sent = bytes(&mut random);
        let mut line = sender.frame(&sent);
        let before = line.clone();
        for _ in 0..=random.up_to(2) {
            change_a_bit(&mut random, &mut line);
        }
        let came: Vec<_> = line.iter().filter_map(|byte| receiver.take(*byte)).collect();
        let is_changed = line != before;
        assert!(came.is_empty() == is_changed, "round {round}: {line:x?}");
    }
}
