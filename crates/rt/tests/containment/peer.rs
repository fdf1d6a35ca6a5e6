// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time-sharing side: it exchanges data until it is killed, or told to do something foul.

use crate::exchange::{
    COMMANDS, FRAME_BYTES, Failure, Frame, Ledger, QUESTIONS, REPORTS, SETPOINT, SHARED, STATE,
    Word, bytes, checked, dir, frame, of_bytes, order,
};
use asmp_channel::call::{Client, Message};
use asmp_channel::{Fifo, FifoReader, FifoWriter, Record, RecordWriter, SharedMemory, Wake};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

struct Peer {
    generation: u64,
    ledger: Ledger,
    reports: FifoReader,
    commands: FifoWriter,
    setpoint: RecordWriter<Frame>,
    state: Record<Frame>,
    questions: Client,
    /// Commands put in.
    put: u64,
    asked: u64,
    /// Reports are counted from here: before it they may be lost, if the peer before has
    /// scribbled.
    from: Option<u64>,
    in_step: bool,
}

pub fn main(words: &[String]) -> Result<bool, Failure> {
    let [generation, group, cpu] = words else { return Err("--peer GENERATION GROUP CPU".into()) };
    std::fs::write(format!("{group}/cgroup.procs"), "0")?;
    if let Ok(cpu) = cpu.parse() {
        asmp_host::sched::confine(0, &[cpu].into_iter().collect())?;
    }
    let mut peer = patiently(|| Peer::attach(generation.parse()?))?;
    loop {
        match peer.ledger.get(Word::Order) {
            order::SCRIBBLE => scribble(&peer.ledger)?,
            order::TAKE_MEMORY => take_memory(),
            order::FORK => fork(),
            _ => peer.exchange(),
        }
    }
}

/// The last process of the peer before may still be closing its files: until then its roles are
/// taken.
fn patiently(attach: impl Fn() -> Result<Peer, Failure>) -> Result<Peer, Failure> {
    let end = Instant::now() + Duration::from_secs(180);
    loop {
        match attach() {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
}

impl Peer {
    fn attach(generation: u64) -> Result<Self, Failure> {
        let dir = dir();
        let ledger = Ledger::open()?;
        Ok(Self {
            generation,
            reports: Fifo::attach(&dir, REPORTS)?.into_reader(Wake::Never)?,
            commands: Fifo::attach(&dir, COMMANDS)?.into_writer(Wake::Never)?,
            setpoint: Record::attach(&dir, SETPOINT)?.writer()?,
            state: Record::attach(&dir, STATE)?,
            questions: Client::attach(&dir, QUESTIONS, None)?,
            put: 0,
            asked: 0,
            from: (ledger.get(Word::AfterScribble) == 0).then_some(0),
            in_step: false,
            ledger,
        })
    }

    fn exchange(&mut self) {
        self.read_reports();
        let next = frame(self.generation, self.put + 1);
        if self.commands.put(&bytes(next)).is_ok() {
            self.put += 1;
            self.ledger.set(Word::Put, self.put);
        }
        self.setpoint.write(&next);
        let confirmed = self.ask();
        if self.in_step
            && let Ok(Some((_, state))) = self.state.read()
            && checked(state).is_none()
        {
            self.ledger.add(Word::Wrong, 1);
        }
        if self.in_step && confirmed {
            self.ledger.set(Word::Ready, self.generation);
        }
        // The length of a turn: many to a period of the thread.
        std::thread::sleep(Duration::from_millis(2));
    }

    fn read_reports(&mut self) {
        let mut frame_bytes = [0; FRAME_BYTES];
        for _ in 0..200 {
            match self.reports.get(&mut frame_bytes) {
                Ok(0) => {}
                Ok(_) => self.report(of_bytes(&frame_bytes)),
                Err(_) if !self.in_step && self.ledger.get(Word::AfterScribble) == 1 => {}
                Err(_) => self.ledger.add(Word::Wrong, 1),
            }
        }
    }

    fn report(&mut self, found: Frame) {
        let after_scribble = self.ledger.get(Word::AfterScribble) == 1;
        let number = match checked(found) {
            Some((0, number)) => number,
            _ if after_scribble && !self.in_step => return,
            _ => return self.ledger.add(Word::Wrong, 1),
        };
        let last = self.ledger.get(Word::Read);
        match self.in_step {
            true if number == last + 1 => {}
            true => self.ledger.add(Word::LostReports, number.saturating_sub(last + 1).max(1)),
            // What lay in shared memory went with the scribbling; what came since is counted.
            false if after_scribble => match self.from {
                Some(from) if number > from => self.in_step = true,
                _ => return,
            },
            // The peer before may have been killed between reading a report and noting it.
            false => {
                match number.saturating_sub(last) {
                    1 => {}
                    2 => self.ledger.add(Word::Unnoted, 1),
                    more => self.ledger.add(Word::LostReports, more.saturating_sub(2).max(1)),
                }
                self.in_step = true;
            }
        }
        self.ledger.set(Word::Read, number);
    }

    /// One call. Has the thread confirmed a command of ours?
    fn ask(&mut self) -> bool {
        self.asked += 1;
        let mut question = Message::default();
        question[0] = self.asked;
        let Ok(answer) = self.questions.call(&question, Some(Duration::from_secs(1))) else {
            return false;
        };
        if answer[0] != self.asked {
            self.ledger.add(Word::Wrong, 1);
        }
        self.from.get_or_insert(answer[1]);
        let ours = answer[2] == self.generation;
        if ours {
            self.ledger.set(Word::Confirmed, answer[3]);
        }
        ours
    }
}

/// Random words at random places of everything that is shared, without end.
fn scribble(ledger: &Ledger) -> Result<(), Failure> {
    let all = SHARED.map(|(name, kind)| SharedMemory::attach(&dir(), name, kind));
    let all: Vec<SharedMemory> = all.into_iter().collect::<Result<_, _>>()?;
    let mut seed = 0x2545_f491_4f6c_dd1d_u64 ^ u64::from(std::process::id());
    loop {
        for _ in 0..100 {
            for shared in &all {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let count = shared.body_bytes() / 8;
                // The control words, of which there are few, as often as all the others.
                let place = if seed >> 63 == 0 {
                    seed as usize % count
                } else {
                    seed as usize % count.min(40)
                };
                let value = if seed >> 62 & 1 == 0 { seed } else { seed >> 40 };
                shared.words(place * 8, 1)[0].store(value, Relaxed);
            }
        }
        ledger.add(Word::Scribbled, 100 * SHARED.len() as u64);
    }
}

/// Takes memory until the kernel ends it.
fn take_memory() {
    let mut all = Vec::new();
    loop {
        all.push(vec![1u8; 1 << 20]);
        std::hint::black_box(&all);
    }
}

fn fork() {
    loop {
        // SAFETY: one thread in this process; the child does nothing but go on here.
        unsafe { libc::fork() };
    }
}

/// A program that keeps a CPU busy and harms nobody.
pub fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
