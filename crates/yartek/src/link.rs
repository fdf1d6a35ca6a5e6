// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames over a board's serial line: the other end of `yartek/modules/link.c`, whose header
//! describes them. Framing and CRC are those of RFC 1662.

const FLAG: u8 = 0x7e;
const ESCAPE: u8 = 0x7d;
const FLIP: u8 = 0x20;
/// Bytes of a frame, its number and so on not counted.
pub const MAX_FRAME_BYTES: usize = 64;
const HEAD: usize = 2;
const CHECK: usize = 2;
/// A number so far ahead is one of the past.
const FAR: u32 = 127;

/// The 16-bit frame check sequence.
fn check(bytes: &[u8]) -> u16 {
    let crc =
        bytes.iter().fold(0xffff_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0x8408 } else { crc >> 1 }
            })
        });
    !crc
}

const fn after(number: u8) -> u8 {
    if number == u8::MAX { 1 } else { number + 1 }
}

/// The sending end.
#[derive(Debug, Clone, Default)]
pub struct Sender {
    next: u8,
}

impl Sender {
    /// What goes over the line for a frame of these bytes.
    ///
    /// # Panics
    /// With more than [`MAX_FRAME_BYTES`].
    pub fn frame(&mut self, bytes: &[u8]) -> Vec<u8> {
        assert!(bytes.len() <= MAX_FRAME_BYTES, "{} bytes in a frame", bytes.len());
        let mut frame = vec![self.next, bytes.len() as u8];
        frame.extend(bytes);
        frame.extend(check(&frame).to_le_bytes());
        self.next = after(self.next);
        let escaped = frame.iter().flat_map(|byte| match *byte {
            FLAG | ESCAPE => vec![ESCAPE, byte ^ FLIP],
            byte => vec![byte],
        });
        [FLAG].into_iter().chain(escaped).chain([FLAG]).collect()
    }
}

/// What became of frames. Dropped ones are `wrong` (their CRC), `cut` (or too long), `doubled` (the
/// number of the frame before) or `late` (a number from before that).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub came: u32,
    /// Frames that numbers say were lost.
    pub missed: u32,
    pub wrong: u32,
    pub cut: u32,
    pub doubled: u32,
    pub late: u32,
}

/// The receiving end.
#[derive(Debug, Clone, Default)]
pub struct Receiver {
    counts: Counts,
    /// What has come since the last flag.
    frame: Vec<u8>,
    is_escaped: bool,
    last: Option<u8>,
}

impl Receiver {
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a byte of the line. `Some`: the bytes of a frame that is complete.
    pub fn take(&mut self, byte: u8) -> Option<Vec<u8>> {
        match byte {
            FLAG => self.ends(),
            ESCAPE => {
                self.is_escaped = true;
                None
            }
            byte => {
                let flip = if std::mem::take(&mut self.is_escaped) { FLIP } else { 0 };
                // What is too long for a frame stays so.
                if self.frame.len() <= HEAD + MAX_FRAME_BYTES + CHECK {
                    self.frame.push(byte ^ flip);
                }
                None
            }
        }
    }

    fn ends(&mut self) -> Option<Vec<u8>> {
        let frame = std::mem::take(&mut self.frame);
        let is_escaped = std::mem::take(&mut self.is_escaped);
        if frame.is_empty() && !is_escaped {
            return None;
        }
        let length = frame.get(1).map(|length| HEAD + usize::from(*length) + CHECK);
        let is_too_long = frame.len() > HEAD + MAX_FRAME_BYTES + CHECK;
        if is_escaped || is_too_long || length != Some(frame.len()) {
            self.counts.cut += 1;
            return None;
        }
        let (data, crc) = frame.split_at(frame.len() - CHECK);
        if check(data).to_le_bytes() != crc {
            self.counts.wrong += 1;
            return None;
        }
        if !self.is_next(data[0]) {
            return None;
        }
        self.counts.came += 1;
        Some(data[HEAD..].to_vec())
    }

    fn is_next(&mut self, number: u8) -> bool {
        match self.last {
            Some(last) if last == number => {
                self.counts.doubled += 1;
                return false;
            }
            // A sender that has just begun has number 0.
            Some(last) if number != 0 => {
                let mut skipped = 0;
                let mut expected = after(last);
                while expected != number {
                    expected = after(expected);
                    skipped += 1;
                }
                if skipped > FAR {
                    self.counts.late += 1;
                    return false;
                }
                self.counts.missed += skipped;
            }
            _ => {}
        }
        self.last = Some(number);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_that_of_rfc_1662() {
        // The check value of CRC-16/X-25 in the catalogue of parametrised CRC algorithms.
        assert_eq!(check(b"123456789"), 0x906e);
    }

    #[test]
    fn a_frame_comes_as_it_was_sent() {
        let (mut sender, mut receiver) = (Sender::default(), Receiver::default());
        for length in [0, 1, MAX_FRAME_BYTES] {
            let bytes: Vec<u8> =
                (0..length).map(|n| if n % 2 == 0 { FLAG } else { ESCAPE }).collect();
            let line = sender.frame(&bytes);
            let frames: Vec<_> = line.iter().filter_map(|byte| receiver.take(*byte)).collect();
            assert_eq!(frames, [bytes]);
        }
        assert_eq!(receiver.counts(), Counts { came: 3, ..Counts::default() });
    }

    #[test]
    fn numbers_tell_what_was_lost_doubled_or_late_and_who_has_begun_anew() {
        let mut sender = Sender::default();
        let lines: Vec<Vec<u8>> = (0..300_u16).map(|n| sender.frame(&n.to_le_bytes())).collect();
        let mut receiver = Receiver::default();
        let mut came = Vec::new();
        for n in [0, 1, 1, 4, 3, 5, 299, 200, 0, 0, 1] {
            came.extend(lines[n].iter().filter_map(|byte| receiver.take(*byte)));
        }
        // 300 frames on from 0: 299 has the number 44.
        let expected = [0, 1, 4, 5, 299, 0, 1_u16].map(|n| n.to_le_bytes().to_vec());
        assert_eq!(came, expected);
        let expected = Counts { came: 7, missed: 2 + 38, doubled: 2, late: 2, ..Counts::default() };
        assert_eq!(receiver.counts(), expected);
    }
}
