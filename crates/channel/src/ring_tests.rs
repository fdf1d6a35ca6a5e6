// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

pub(super) struct Memory {
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
    overflow: Overflow,
}

impl Memory {
    fn new(words: usize, overflow: Overflow) -> Self {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { head: AtomicU64::new(0), tail: AtomicU64::new(0), words, overflow }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.words, self.overflow).unwrap()
    }

    fn ends(&self) -> (Ring<'_>, Writer, Reader) {
        (self.ring(), Writer::attach(&self.ring()), Reader::attach(&self.ring()))
    }
}

fn frame(reader: &mut Reader, ring: &Ring) -> Option<Vec<u8>> {
    let mut bytes = [0; 256];
    match reader.get(ring, &mut bytes).unwrap() {
        0 => None,
        count => Some(bytes[..count].to_vec()),
    }
}

#[test]
fn frames_come_out_whole_and_in_order() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(16, overflow);
        let (ring, mut writer, mut reader) = memory.ends();
        assert!(reader.is_empty(&ring));
        for round in 0..if cfg!(miri) { 20 } else { 100u8 } {
            let bytes: Vec<u8> = (0..round % 60 + 1).collect();
            writer.put(&ring, &bytes).unwrap();
            writer.put(&ring, &[round]).unwrap();
            assert_eq!(frame(&mut reader, &ring), Some(bytes));
            assert_eq!(frame(&mut reader, &ring), Some(vec![round]));
            assert_eq!(frame(&mut reader, &ring), None);
        }
    }
}

#[test]
fn frames_of_several_lines_come_out_whole_wherever_the_memory_ends() {
    let memory = Memory::new(64, Overflow::Refuse);
    let (ring, mut writer, mut reader) = memory.ends();
    // The rounds shift where a frame begins.
    for length in (1..=250).step_by(if cfg!(miri) { 37 } else { 1 }) {
        for round in 0..if cfg!(miri) { 3 } else { 64 } {
            let bytes: Vec<u8> =
                (0..length).map(|at: u8| at.wrapping_mul(7).wrapping_add(round)).collect();
            writer.put(&ring, &bytes).unwrap();
            assert_eq!(frame(&mut reader, &ring), Some(bytes), "{length} bytes, round {round}");
        }
    }
}

#[test]
fn a_full_ring_takes_all_or_nothing() {
    let memory = Memory::new(8, Overflow::Refuse);
    let (ring, mut writer, mut reader) = memory.ends();
    assert_eq!(writer.put(&ring, &[0; 49]), Err(RingError::BadLength));
    assert_eq!(writer.put(&ring, &[]), Err(RingError::BadLength));
    writer.put(&ring, &[7; 32]).unwrap();
    assert_eq!(writer.put(&ring, &[8; 16]), Err(RingError::Full));
    writer.put(&ring, &[9; 8]).unwrap();
    assert_eq!(frame(&mut reader, &ring), Some(vec![7; 32]));
    writer.put(&ring, &[8; 16]).unwrap();
    assert_eq!(frame(&mut reader, &ring), Some(vec![9; 8]));
    assert_eq!(frame(&mut reader, &ring), Some(vec![8; 16]));
    writer.put(&ring, &[6; 48]).unwrap();
    assert_eq!(frame(&mut reader, &ring), Some(vec![6; 48]));
}

#[test]
fn what_looks_like_a_header_among_the_data_is_no_frame() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(8, overflow);
        let (ring, mut writer, mut reader) = memory.ends();
        for round in 0..100u64 {
            // Whatever positions the next lap has: each word says it is a frame there.
            let word = |at: u64| ((round * 4 + at + 8) << 32 | 8).to_ne_bytes();
            let bytes = [word(1), word(2), word(3)].concat();
            writer.put(&ring, &bytes).unwrap();
            assert_eq!(frame(&mut reader, &ring), Some(bytes));
            assert_eq!(frame(&mut reader, &ring), None);
        }
    }
}

#[test]
fn frames_that_their_writer_had_no_time_to_count_are_not_lost() {
    let memory = Memory::new(16, Overflow::Refuse);
    let (ring, mut writer, mut reader) = memory.ends();
    writer.put(&ring, &[1; 8]).unwrap();
    writer.put(&ring, &[2; 8]).unwrap();
    writer.put(&ring, &[3; 16]).unwrap();
    writer.put(&ring, &[4; 8]).unwrap();
    memory.head.store(2, Relaxed);
    let mut writer = Writer::attach(&ring);
    writer.put(&ring, &[5; 8]).unwrap();
    let left: Vec<u8> =
        std::iter::from_fn(|| frame(&mut reader, &ring)).map(|bytes| bytes[0]).collect();
    assert_eq!(left, [1, 2, 3, 4, 5]);
}

#[test]
fn what_can_be_got_is_what_is_held() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(16, overflow);
        let (ring, mut writer, mut reader) = memory.ends();
        for length in [1, 8, 13, 24, 5, 40].into_iter().cycle().take(60) {
            while writer.dropped == 0 && writer.put(&ring, &vec![7; length]).is_ok() {}
            let (held, mut got) = (reader.held_bytes(&ring), 0);
            let mut into = [0; 9];
            loop {
                match reader.get(&ring, &mut into).unwrap() {
                    0 => break,
                    count => got += count as u64,
                }
                assert_eq!(held, got + reader.held_bytes(&ring));
            }
            assert_eq!((held, reader.held_bytes(&ring)), (got, 0));
            writer.dropped = 0;
        }
    }
}

#[test]
fn the_oldest_make_room_and_are_counted() {
    let memory = Memory::new(8, Overflow::DropOldest);
    let (ring, mut writer, mut reader) = memory.ends();
    for value in 0..10u8 {
        writer.put(&ring, &[value; 8]).unwrap();
    }
    assert_eq!(writer.dropped, 7);
    let left: Vec<u8> =
        std::iter::from_fn(|| frame(&mut reader, &ring)).map(|bytes| bytes[0]).collect();
    assert_eq!(left, [7, 8, 9]);
}

#[test]
fn a_reader_with_little_room_gets_a_frame_piece_by_piece() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(8, overflow);
        let (ring, mut writer, mut reader) = memory.ends();
        writer.put(&ring, b"hello, world").unwrap();
        let mut all = Vec::new();
        let mut bytes = [0; 5];
        while let count @ 1.. = reader.get(&ring, &mut bytes).unwrap() {
            all.extend_from_slice(&bytes[..count]);
        }
        assert_eq!(all, b"hello, world");
    }
}

#[test]
fn ends_that_come_later_take_up_where_the_earlier_ones_stood() {
    let memory = Memory::new(16, Overflow::Refuse);
    let (ring, mut writer, mut reader) = memory.ends();
    for value in 1..=3u8 {
        writer.put(&ring, &[value]).unwrap();
    }
    assert_eq!(frame(&mut reader, &ring), Some(vec![1]));
    let (ring, mut writer, mut reader) = memory.ends();
    writer.put(&ring, &[4]).unwrap();
    let left: Vec<u8> =
        std::iter::from_fn(|| frame(&mut reader, &ring)).map(|bytes| bytes[0]).collect();
    assert_eq!(left, [2, 3, 4]);
}

/// Frames say their own number and length, so that any mixture shows.
fn is_whole(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let rest = bytes[8..]
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == (number as u8).wrapping_add(at as u8));
    (rest && bytes.len() as u64 == 8 + number % 50).then_some(number)
}

fn numbered(number: u64) -> Vec<u8> {
    let rest = (0..number % 50).map(|at| (number as u8).wrapping_add(at as u8));
    number.to_le_bytes().into_iter().chain(rest).collect()
}

#[test]
fn two_threads_lose_nothing_and_tear_nothing() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(64, overflow);
        let frames = if cfg!(miri) { 100 } else { 20_000 };
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let ring = memory.ring();
                let mut writer = Writer::attach(&ring);
                for number in 0..frames {
                    while writer.put(&ring, &numbered(number)) == Err(RingError::Full) {
                        std::thread::yield_now();
                    }
                }
                assert_eq!(writer.corrupted, 0);
                writer.dropped
            });
            let ring = memory.ring();
            let mut reader = Reader::attach(&ring);
            let (mut next, mut seen) = (0, 0);
            let mut bytes = [0; 256];
            while next < frames {
                let count = match reader.get(&ring, &mut bytes) {
                    Ok(0) | Err(RingError::Overtaken) => {
                        std::thread::yield_now();
                        continue;
                    }
                    other => other.unwrap(),
                };
                let number = is_whole(&bytes[..count]).expect("a whole frame");
                assert!(number >= next, "{number} after {next}");
                (next, seen) = (number + 1, seen + 1);
            }
            let dropped = writing.join().unwrap();
            assert_eq!(seen + dropped, frames, "every frame is read or counted as dropped");
            assert!(overflow == Overflow::DropOldest || dropped == 0);
        });
    }
}

/// A number at random (xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn whatever_the_other_side_writes_neither_end_hangs_or_leaves_the_memory() {
    let rounds = if cfg!(miri) { 100 } else { 20_000 };
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(16, overflow);
        let (ring, mut writer, mut reader) = memory.ends();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut bytes = [0; 300];
        let mut corrupt = 0;
        for _ in 0..rounds {
            let value = match random(&mut state) % 4 {
                0 => random(&mut state),
                1 => u64::MAX,
                2 => random(&mut state) % 64,
                _ => {
                    memory.head.load(Relaxed).wrapping_add(random(&mut state) % 40).wrapping_sub(20)
                }
            };
            match random(&mut state) % 8 {
                0 => memory.head.store(value, Relaxed),
                1 => memory.tail.store(value, Relaxed),
                2 | 3 => memory.words[(random(&mut state) % 16) as usize].store(value, Relaxed),
                4 if value & 1 == 0 => _ = writer.put(&ring, &[1; 72]),
                4 => _ = writer.put(&ring, &[1; 24]),
                5 => _ = writer.put(&ring, &[1; 120][..(random(&mut state) % 121) as usize]),
                _ => {
                    let room = (random(&mut state) % 300) as usize + 1;
                    corrupt +=
                        u32::from(reader.get(&ring, &mut bytes[..room]) == Err(RingError::Corrupt));
                }
            }
        }
        assert!(corrupt > 0, "the reader says so");
        // It can be used again as soon as the damage stops: ends attach anew, and the reader
        // empties it.
        let (ring, mut writer, mut reader) = memory.ends();
        while reader.get(&ring, &mut bytes) != Ok(0) {}
        writer.put(&ring, b"again, and with 24 bytes").unwrap();
        assert_eq!(frame(&mut reader, &ring), Some(b"again, and with 24 bytes".to_vec()));
    }
}

#[test]
fn one_scribble_does_not_stop_the_traffic_for_ever() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        for value in [0, 7, u64::MAX, 1, 1 << 20, u64::MAX / 2].into_iter().take(if cfg!(miri) {
            2
        } else {
            6
        }) {
            for (full, drained, over_head) in
                (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0))
            {
                let memory = Memory::new(8, overflow);
                let (ring, mut writer, mut reader) = memory.ends();
                while full && writer.put(&ring, &[1; 24]).is_ok() && writer.dropped == 0 {}
                while drained && reader.get(&ring, &mut [0; 24]) != Ok(0) {}
                let word = if over_head { &memory.head } else { &memory.tail };
                word.store(value, Relaxed);
                let mut through = 0;
                for _ in 0..200 {
                    let _ = reader.get(&ring, &mut [0; 24]);
                    let _ = writer.put(&ring, &[2; 24]);
                    let mut bytes = [0; 24];
                    through +=
                        u32::from(reader.get(&ring, &mut bytes) == Ok(24) && bytes == [2; 24]);
                }
                assert!(
                    through > 50,
                    "{overflow:?} {value} {full} {drained} {over_head}: {through}"
                );
            }
        }
    }
}

#[test]
fn ends_that_wait_before_each_call_go_on_after_one_scribble() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        for value in [0, 7, u64::MAX, 1, 1 << 20, u64::MAX / 2].into_iter().take(if cfg!(miri) {
            1
        } else {
            6
        }) {
            for (full, drained, place) in (0..12).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits / 4))
            {
                let memory = Memory::new(8, overflow);
                let (ring, mut writer, mut reader) = memory.ends();
                while full && writer.put(&ring, &[1; 24]).is_ok() && writer.dropped == 0 {}
                while drained && reader.get(&ring, &mut [0; 24]) != Ok(0) {}
                [&memory.head, &memory.tail, &memory.words[0]][place].store(value, Relaxed);
                let mut through = 0;
                for _ in 0..200 {
                    let mut bytes = [0; 24];
                    let got = reader.is_ready(&ring).then(|| reader.get(&ring, &mut bytes));
                    through += u32::from(got == Some(Ok(24)) && bytes == [2; 24]);
                    assert!(!writer.has_room(&ring, 24) || writer.put(&ring, &[2; 24]).is_ok());
                }
                assert!(through > 50, "{overflow:?} {value} {full} {drained} {place}: {through}");
            }
        }
    }
}

#[test]
fn nothing_is_ready_in_an_honest_ring_that_is_empty() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(8, overflow);
        let (ring, mut writer, mut reader) = memory.ends();
        for _ in 0..100 {
            assert!(!reader.is_ready(&ring));
            writer.put(&ring, &[3; 24]).unwrap();
            assert!(reader.is_ready(&ring));
            assert_eq!(reader.get(&ring, &mut [0; 24]), Ok(24));
        }
        assert_eq!(reader.corrupted, 0);
    }
}

#[test]
fn a_reader_that_took_a_forged_frame_is_followed() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let memory = Memory::new(8, overflow);
        let (ring, mut writer, mut reader) = memory.ends();
        writer.put(&ring, &[1; 24]).unwrap();
        assert_eq!(reader.get(&ring, &mut [0; 24]), Ok(24));
        memory.words[4].store(4 << 32 | 8, Relaxed);
        assert_eq!(reader.get(&ring, &mut [0; 24]), Ok(8), "as if it were the writer's");
        let mut through = 0;
        for _ in 0..10 {
            let put = writer.put(&ring, &[2; 24]);
            let got = reader.is_ready(&ring).then(|| reader.get(&ring, &mut [0; 24]));
            through += u32::from(put.is_ok() && got == Some(Ok(24)));
        }
        assert!(through >= 8, "{overflow:?}: {through}");
    }
}
