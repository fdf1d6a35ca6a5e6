// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time side, a process of its own: one periodic thread that never waits for its peers.
//! Prints `ready TID`, and at the end of its input what each period was like.

use crate::exchange::{
    COMMANDS, FRAME_BYTES, Failure, Frame, Ledger, QUESTIONS, REPORTS, SETPOINT, STATE, Word,
    bytes, checked, dir, frame, of_bytes,
};
use asmp_channel::call::{Scheduling, Server, Shape, Want};
use asmp_channel::{
    Fifo, FifoReader, FifoWriter, Options, Overflow, Pages, Record, RecordWriter, RingError, Wake,
};
use asmp_rt::thread::{Me, RealTime, Seen, Tick, Watch, gethrtime};
use std::io::Write;
use std::time::Duration;

/// Frames and requests that one job takes at most.
const AT_MOST: u32 = 16;
const PERIODS: usize = 400_000;
const GENERATIONS: usize = 20_000;

/// One job.
#[derive(Clone, Copy)]
struct Period {
    tick: Tick,
    done_ns: u64,
    seen: Seen,
}

/// The commands of one generation that were accepted.
#[derive(Clone, Copy, Default)]
struct Accepted {
    first: u64,
    last: u64,
    /// Commands that did not follow the one before.
    gaps: u64,
}

/// What the thread has, in memory that is its own.
struct Private {
    periods: Vec<Period>,
    accepted: Vec<Accepted>,
    reports: u64,
    newest: (u64, u64),
    refused: u64,
    garbage: u64,
    corrupt: u64,
}

struct Channels {
    reports: FifoWriter,
    commands: FifoReader,
    state: RecordWriter<Frame>,
    setpoint: Record<Frame>,
}

pub fn main(words: &[String]) -> Result<bool, Failure> {
    let [period_ms, cpu, partition, mode] = words else {
        return Err("--controller PERIOD CPU PARTITION MODE".into());
    };
    let period = Duration::from_millis(period_ms.parse()?);
    let request = match mode.as_str() {
        "unshielded" => RealTime::without_policy().cpu(cpu.parse()?),
        _ => RealTime::fifo(80).partition(partition),
    };
    let (overflow, capacity_bytes) = match mode.as_str() {
        "forgetful" => (Overflow::DropOldest, 64),
        _ => (Overflow::Refuse, 64 << 10),
    };
    let dir = dir();
    let reports = Fifo::create(&dir, REPORTS, &Options { capacity_bytes, overflow })?;
    let commands = Options { capacity_bytes: 64 << 10, overflow: Overflow::Refuse };
    let commands = Fifo::create(&dir, COMMANDS, &commands)?;
    let channels = Channels {
        reports: reports.into_writer(Wake::Never)?,
        commands: commands.into_reader(Wake::Never)?,
        state: Record::alloc(&dir, STATE, Pages::Normal)?.writer()?,
        setpoint: Record::alloc(&dir, SETPOINT, Pages::Normal)?,
    };
    let waits = mode == "wait-on-peer";
    let thread = request.start("controller", move |me| run(me, channels, period, waits))?;
    println!("ready {}", thread.tid());
    std::io::stdin().read_line(&mut String::new())?;
    let private = thread.delete().map_err(|_| "the thread panicked")??;
    print(&private)?;
    Ok(true)
}

fn run(me: &Me, mut channels: Channels, period: Duration, waits: bool) -> Result<Private, Failure> {
    // All of it is there and locked before the first release.
    let nothing = Period {
        tick: Tick { scheduled_ns: 0, woken_ns: 0, overruns: 0 },
        done_ns: 0,
        seen: Seen::default(),
    };
    let mut periods = vec![nothing; PERIODS];
    periods.iter_mut().for_each(|period| period.done_ns = 1);
    periods.clear();
    let mut private = Private {
        periods,
        accepted: vec![Accepted::default(); GENERATIONS],
        reports: 0,
        newest: (0, 0),
        refused: 0,
        garbage: 0,
        corrupt: 0,
    };
    let shape = Shape { clients: 4, scheduling: Scheduling::Full, inherit: false };
    let ledger = Ledger::open()?;
    let mut server = Server::open(&dir(), QUESTIONS, shape)?;
    let mut releases = me.releases(period, Duration::ZERO)?;
    while let Some(tick) = releases.wait() {
        let watch = Watch::enter();
        if waits {
            let _ = channels.commands.wait(Some(4 * period));
        }
        private.job(&mut channels, &mut server);
        ledger.add(Word::Jobs, 1);
        let seen = watch.leave();
        if private.periods.len() < PERIODS {
            private.periods.push(Period { tick, done_ns: gethrtime(), seen });
        }
    }
    Ok(private)
}

impl Private {
    fn job(&mut self, channels: &mut Channels, server: &mut Server) {
        let mut frame_bytes = [0; FRAME_BYTES];
        // Empty looks too: a reader that was scribbled over finds its way by them.
        for _ in 0..AT_MOST {
            match channels.commands.get(&mut frame_bytes) {
                Ok(0) => {}
                Ok(_) => self.accept(of_bytes(&frame_bytes)),
                Err(_) => self.corrupt += 1,
            }
        }
        if let Ok(Some((_, setpoint))) = channels.setpoint.read()
            && checked(setpoint).is_none()
        {
            self.garbage += 1;
        }
        for _ in 0..AT_MOST {
            let Ok(received) = server.receive(Some(Duration::ZERO)) else { break };
            if let Some(request) = received.request.filter(|request| request.want == Want::Call) {
                let mut answer = request.message;
                // The question again, the last report, the newest command.
                (answer[1], answer[2], answer[3]) = (self.reports, self.newest.0, self.newest.1);
                let _ = server.reply(&answer);
            }
        }
        match channels.reports.put(&bytes(frame(0, self.reports + 1))) {
            Ok(()) => self.reports += 1,
            Err(RingError::Full) => self.refused += 1,
            Err(_) => self.corrupt += 1,
        }
        channels.state.write(&frame(0, self.reports));
    }

    fn accept(&mut self, frame: Frame) {
        let Some((generation, number)) = checked(frame) else {
            self.garbage += 1;
            return;
        };
        let Some(known) = self.accepted.get_mut(generation as usize) else { return };
        match known.last {
            0 => known.first = number,
            last => known.gaps += u64::from(number != last + 1),
        }
        known.last = number;
        self.newest = (generation, number);
    }
}

/// Lines that `judge` reads.
fn print(private: &Private) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for Period { tick, done_ns, seen } in &private.periods {
        writeln!(
            out,
            "period {} {} {} {} {} {} {}",
            tick.scheduled_ns,
            tick.woken_ns,
            done_ns,
            tick.overruns,
            seen.minor_faults + seen.major_faults,
            seen.voluntary_switches,
            seen.involuntary_switches
        )?;
    }
    for (generation, one) in private.accepted.iter().enumerate().filter(|(_, one)| one.last > 0) {
        writeln!(out, "accepted {generation} {} {} {}", one.first, one.last, one.gaps)?;
    }
    let Private { reports, refused, garbage, corrupt, .. } = private;
    writeln!(out, "counts {reports} {refused} {garbage} {corrupt}")?;
    Ok(())
}
