// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fetches the robot's map over its serial line: the other end of
//! `yartek/app/robot/commands.c`, whose header describes the commands.

use crate::link::{Receiver, Sender};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

const CLEAR: u8 = b'k';
const COMPUTE: u8 = b'c';
const SEND: u8 = b's';
const PIECE_BYTES: usize = 60;
/// How often a command is sent before the board counts as silent.
const MOST_TRIES: u32 = 20;
/// A robot on a busy machine answers within. For the timeout of a line's reads, too.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Why there is no map.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("no answer to {MOST_TRIES} commands: is it a robot that runs?")]
    Silent,
    #[error("the line: {0}")]
    Line(#[from] io::Error),
}

/// What came over the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// [`Map::decode`](crate::Map::decode) reads it.
    pub map: Vec<u8>,
    pub pieces: usize,
    /// Commands that were sent again, because no answer came.
    pub repeated: u32,
}

/// The robot's end is a line whose reads give up after a while: TCP with a timeout, for example.
pub struct Robot<L> {
    line: L,
    sender: Sender,
    receiver: Receiver,
    repeated: u32,
    has_answered: bool,
}

impl<L: Read + Write> Robot<L> {
    pub fn at(line: L) -> Self {
        let (sender, receiver) = (Sender::default(), Receiver::default());
        Self { line, sender, receiver, repeated: 0, has_answered: false }
    }

    /// Empties the map.
    pub fn clear(&mut self) -> Result<(), FetchError> {
        self.ask(&[CLEAR]).map(drop)
    }

    /// The map as it is now.
    pub fn map(&mut self) -> Result<Fetched, FetchError> {
        self.ask(&[COMPUTE])?;
        let (mut map, mut pieces) = (Vec::new(), 0);
        loop {
            // A map has some kB: less than 2^16 pieces.
            let [high, low] = (pieces as u16).to_be_bytes();
            let piece = self.ask(&[SEND, high, low])?;
            map.extend(&piece);
            pieces += 1;
            if piece.len() < PIECE_BYTES || pieces > usize::from(u16::MAX) {
                return Ok(Fetched { map, pieces, repeated: self.repeated });
            }
        }
    }

    /// What an answer has behind the command.
    fn ask(&mut self, command: &[u8]) -> Result<Vec<u8>, FetchError> {
        for tries in 0..MOST_TRIES {
            self.repeated += u32::from(tries > 0);
            // The robot may have heard another before: to it number 0 is of one that has begun
            // anew, unless that one sent a single frame. Then number 1 is the next.
            if !self.has_answered && tries % 2 == 0 {
                self.sender = Sender::default();
            }
            let frame = self.sender.frame(command);
            self.line.write_all(&frame)?;
            if let Some(answer) = self.answer(command)? {
                self.has_answered = true;
                return Ok(answer);
            }
        }
        Err(FetchError::Silent)
    }

    /// `None`: none came in time. Answers to what was asked before are passed over.
    fn answer(&mut self, command: &[u8]) -> Result<Option<Vec<u8>>, FetchError> {
        let mut bytes = [0; 256];
        let asked = Instant::now();
        loop {
            let count = match self.line.read(&mut bytes) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error.into()),
                },
            };
            let mut answer = None;
            for byte in &bytes[..count] {
                let frame = self.receiver.take(*byte);
                let rest = frame.as_ref().and_then(|frame| frame.strip_prefix(command));
                answer = rest.map(<[u8]>::to_vec).or(answer);
            }
            if answer.is_some() || asked.elapsed() > ANSWER_WITHIN {
                return Ok(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_analysis::simulate::Random;

    /// A robot that loses frames, in both directions, one in so many.
    struct Lossy {
        map: Vec<u8>,
        losses: Random,
        one_in: u64,
        receiver: Receiver,
        sender: Sender,
        answers: Vec<u8>,
        cleared: u32,
        /// So many writes are lost, whole.
        lost_first: u32,
    }

    impl Lossy {
        fn of(map: Vec<u8>, one_in: u64) -> Self {
            Self {
                map,
                losses: Random::new(5),
                one_in,
                receiver: Receiver::default(),
                sender: Sender::default(),
                answers: vec![],
                cleared: 0,
                lost_first: 0,
            }
        }

        fn is_lost(&mut self) -> bool {
            self.losses.up_to(self.one_in - 1) == 0
        }
    }

    impl Read for Lossy {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if self.answers.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.answers.len()).min(7);
            bytes[..count].copy_from_slice(&self.answers[..count]);
            self.answers.drain(..count);
            Ok(count)
        }
    }

    impl Write for Lossy {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.lost_first > 0 {
                self.lost_first -= 1;
                return Ok(bytes.len());
            }
            for byte in bytes {
                let Some(command) = self.receiver.take(*byte) else { continue };
                if self.is_lost() {
                    continue;
                }
                let mut answer = command.clone();
                match *command {
                    [SEND, high, low] => {
                        let begin = PIECE_BYTES * usize::from(u16::from_be_bytes([high, low]));
                        let rest = self.map.get(begin..).unwrap_or_default();
                        answer.extend(&rest[..rest.len().min(PIECE_BYTES)]);
                    }
                    [CLEAR] => self.cleared += 1,
                    [COMPUTE] => {}
                    _ => panic!("{command:x?}"),
                }
                let frame = self.sender.frame(&answer);
                if !self.is_lost() {
                    self.answers.extend(frame);
                }
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_map_comes_whole_over_a_line_that_loses_frames() {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5000] {
            let map: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
            let mut robot = Robot::at(Lossy::of(map.clone(), 3));
            let fetched = robot.map().expect("a map");
            assert_eq!((fetched.map, fetched.pieces), (map, length / PIECE_BYTES + 1));
            assert!(length < 5000 || fetched.repeated > 20, "{}", fetched.repeated);
            robot.clear().expect("an answer");
            assert!(robot.line.cleared >= 1);
        }
    }

    /// Each read gives a byte, and none of these is of a frame.
    struct Talker;

    impl Read for Talker {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(ANSWER_WITHIN / 4);
            bytes[0] = b'x';
            Ok(1)
        }
    }

    impl Write for Talker {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_who_talks_and_never_answers_is_given_up() {
        let answer = Robot::at(Talker).answer(&[COMPUTE]).expect("no error of the line");
        assert_eq!(answer, None);
    }

    #[test]
    fn a_robot_answers_that_has_heard_others_before() {
        for heard in [1, 2, 110, 300] {
            for lost in 0..3 {
                let mut lossy = Lossy::of(vec![1, 2, 3], u64::MAX);
                let mut other = Sender::default();
                for _ in 0..heard {
                    lossy.write_all(&other.frame(&[COMPUTE])).expect("heard");
                }
                lossy.answers.clear();
                lossy.lost_first = lost;
                let fetched = Robot::at(lossy).map().expect("a map");
                assert_eq!(fetched.map, [1, 2, 3]);
                assert!(fetched.repeated <= lost + 1, "{heard} {lost}: {}", fetched.repeated);
            }
        }
    }

    #[test]
    fn a_robot_that_never_answers_is_told() {
        let error = Robot::at(Lossy::of(vec![], 1)).map().expect_err("silence");
        assert_eq!(error.to_string(), "no answer to 20 commands: is it a robot that runs?");
    }
}
