// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FIFO as a device: what RTLinux's /dev/rtfN was. One opener at a time; reads and writes wait
//! unless O_NONBLOCK; poll and FIONREAD. It stands directly on the channel: nothing lies in between
//! that could be lost.

use crate::cuse::{self, Ask, Request};
use crate::{attach, is_over};
use asmp_channel::{FifoReader, FifoWriter, RingError, Role, Wake};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Bytes of the largest frame that a write is cut into.
const PIECE: usize = 4096;

/// The end of the channel that the device is; `None`: there is no channel yet, or no more.
enum End {
    FromRt(Option<FifoReader>),
    ToRt(Option<FifoWriter>),
}

/// A question that waits for the channel.
struct Waiting {
    number: u64,
    wants: Wants,
}

enum Wants {
    Read(usize),
    Write { bytes: Vec<u8>, done: usize },
}

/// The device's side of the conversation; what is to be sent is in `out`.
pub struct Device {
    channels: PathBuf,
    pub name: String,
    end: End,
    is_open: bool,
    has_ended: bool,
    waiting: VecDeque<Waiting>,
    /// Who sleeps in poll.
    pollers: Vec<u64>,
    pub out: VecDeque<Vec<u8>>,
}

impl Device {
    /// Of the FIFO `name`, for reading (`from_rt`) or writing.
    pub fn new(channels: &Path, name: &str, from_rt: bool) -> Self {
        let end = if from_rt { End::FromRt(None) } else { End::ToRt(None) };
        let (waiting, pollers, out) = Default::default();
        Self {
            channels: channels.to_owned(),
            name: name.to_owned(),
            end,
            is_open: false,
            has_ended: false,
            waiting,
            pollers,
            out,
        }
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Does a process wait for the real-time side?
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() || !self.pollers.is_empty()
    }

    /// Takes a question; answers it now, or when the channel allows it.
    pub fn take(&mut self, request: &Request) -> Result<(), String> {
        let number = request.number;
        let answer = match request.ask {
            Ask::Init => cuse::is_device(number, &self.name),
            Ask::Open { flags } => match self.open(flags) {
                Ok(()) => cuse::opened(number),
                Err(error) => cuse::answer(number, Err(error)),
            },
            Ask::Read { bytes, blocks } => return self.ask(number, Wants::Read(bytes), blocks),
            Ask::Write { bytes, blocks } => {
                return self.ask(number, Wants::Write { bytes: bytes.to_vec(), done: 0 }, blocks);
            }
            Ask::Poll { handle, wake } => {
                self.meet_channel()?;
                let events = self.events();
                if events == 0 && wake && !self.pollers.contains(&handle) {
                    self.pollers.push(handle);
                }
                cuse::ready(number, events)
            }
            Ask::Ioctl { command, argument, room } => match (command, &self.end) {
                (command, End::FromRt(_)) if u64::from(command) == libc::FIONREAD && room < 4 => {
                    cuse::ask_again_for_int(number, argument)
                }
                (command, End::FromRt(reader)) if u64::from(command) == libc::FIONREAD => {
                    let held = reader.as_ref().map_or(0, FifoReader::held_bytes);
                    cuse::int(number, i32::try_from(held).unwrap_or(i32::MAX))
                }
                _ => cuse::answer(number, Err(libc::ENOTTY)),
            },
            Ask::Interrupt { question } => {
                self.interrupt(question);
                return Ok(());
            }
            Ask::Release => {
                self.is_open = false;
                self.pollers.clear();
                cuse::answer(number, Ok(&[]))
            }
            Ask::Nothing => cuse::answer(number, Ok(&[])),
            Ask::Unknown => cuse::answer(number, Err(libc::ENOSYS)),
        };
        self.out.push_back(answer);
        Ok(())
    }

    fn open(&mut self, flags: i32) -> Result<(), i32> {
        let direction = match self.end {
            End::FromRt(_) => libc::O_RDONLY,
            End::ToRt(_) => libc::O_WRONLY,
        };
        if self.has_ended {
            Err(libc::ENODEV)
        } else if flags & libc::O_ACCMODE != direction {
            Err(libc::EACCES)
        } else if self.is_open {
            Err(libc::EBUSY)
        } else {
            self.is_open = true;
            Ok(())
        }
    }

    fn ask(&mut self, number: u64, wants: Wants, blocks: bool) -> Result<(), String> {
        self.waiting.push_back(Waiting { number, wants });
        self.go_on()?;
        if !blocks && self.waiting.back().is_some_and(|last| last.number == number) {
            self.give_up(self.waiting.len() - 1, libc::EAGAIN);
        }
        Ok(())
    }

    fn interrupt(&mut self, question: u64) {
        if let Some(which) = self.waiting.iter().position(|waiting| waiting.number == question) {
            self.give_up(which, libc::EINTR);
        }
    }

    /// A write that went in part has written that much.
    fn give_up(&mut self, which: usize, error: i32) {
        let Some(Waiting { number, wants }) = self.waiting.remove(which) else { return };
        self.out.push_back(match wants {
            Wants::Write { done, .. } if done > 0 => cuse::written(number, done),
            _ => cuse::answer(number, Err(error)),
        });
    }

    /// From now on a read is at the end of the file, a write has no reader, and nothing waits. The
    /// channel is free for another server.
    pub fn end(&mut self) {
        self.has_ended = true;
        self.answer_the_rest();
        self.end = match self.end {
            End::FromRt(_) => End::FromRt(None),
            End::ToRt(_) => End::ToRt(None),
        };
    }

    fn answer_the_rest(&mut self) {
        for Waiting { number, wants } in std::mem::take(&mut self.waiting) {
            self.out.push_back(match wants {
                Wants::Read(_) => cuse::answer(number, Ok(&[])),
                Wants::Write { done, .. } if done > 0 => cuse::written(number, done),
                Wants::Write { .. } => cuse::answer(number, Err(libc::EPIPE)),
            });
        }
        self.out.extend(self.pollers.drain(..).map(cuse::wake));
    }

    /// Finds the channel when it is made, and lets it go when its real-time side is gone and it is
    /// empty.
    pub fn meet_channel(&mut self) -> Result<(), String> {
        if self.has_ended {
            return Ok(());
        }
        match &mut self.end {
            End::FromRt(end) => {
                end.take_if(|reader| is_over(reader.fifo(), Role::Writer));
                if end.is_none() {
                    *end = attach(&self.channels, &self.name, |fifo| {
                        fifo.into_reader(Wake::IfAsleep)
                    })?;
                }
            }
            End::ToRt(end) => {
                end.take_if(|writer| is_over(writer.fifo(), Role::Reader));
                if end.is_none() {
                    *end = attach(&self.channels, &self.name, |fifo| {
                        fifo.into_writer(Wake::IfAsleep)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// What can be done without waiting, as poll(2) says it.
    fn events(&mut self) -> u32 {
        match self.end {
            End::FromRt(_) if self.has_ended => return (libc::POLLIN | libc::POLLHUP) as u32,
            End::ToRt(_) if self.has_ended => return (libc::POLLOUT | libc::POLLERR) as u32,
            _ => {}
        }
        let ready = match &mut self.end {
            End::FromRt(reader) => reader.as_ref().is_some_and(|reader| !reader.is_empty()),
            End::ToRt(writer) => writer.as_mut().is_some_and(|writer| writer.has_room(1)),
        };
        match (&self.end, ready) {
            (_, false) => 0,
            (End::FromRt(_), true) => (libc::POLLIN | libc::POLLRDNORM) as u32,
            (End::ToRt(_), true) => (libc::POLLOUT | libc::POLLWRNORM) as u32,
        }
    }

    /// Answers who waits for the channel, as far as it allows, in the order of their coming.
    pub fn go_on(&mut self) -> Result<(), String> {
        if self.has_ended {
            self.answer_the_rest();
            return Ok(());
        }
        self.meet_channel()?;
        while let Some(first) = self.waiting.front_mut() {
            let answer = match (&mut self.end, &mut first.wants) {
                (End::FromRt(Some(reader)), Wants::Read(bytes)) => {
                    read(reader, first.number, *bytes)
                }
                (End::ToRt(Some(writer)), Wants::Write { bytes, done }) => {
                    write(writer, bytes, done).then(|| cuse::written(first.number, *done))
                }
                _ => None,
            };
            let Some(answer) = answer else { break };
            self.out.push_back(answer);
            self.waiting.pop_front();
        }
        if !self.pollers.is_empty() && self.events() != 0 {
            self.out.extend(self.pollers.drain(..).map(cuse::wake));
        }
        Ok(())
    }
}

/// `None`: there is nothing to read.
fn read(reader: &mut FifoReader, number: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut into = vec![0; bytes];
    let mut got = 0;
    while got < bytes {
        match reader.get(&mut into[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(RingError::Overtaken) => {}
            Err(_) if got > 0 => break,
            Err(_) => return Some(cuse::answer(number, Err(libc::EIO))),
        }
    }
    (got > 0 || bytes == 0).then(|| cuse::answer(number, Ok(&[&into[..got]])))
}

/// Is all written?
fn write(writer: &mut FifoWriter, bytes: &[u8], done: &mut usize) -> bool {
    let piece = PIECE.min(writer.fifo().capacity_bytes() - 8);
    while *done < bytes.len() {
        let end = bytes.len().min(*done + piece);
        if writer.put(&bytes[*done..end]).is_err() {
            return false;
        }
        *done = end;
    }
    true
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
