// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp top`: partitions and what disturbs their CPUs, on a screen that is refreshed.

pub mod look;
mod screen;
mod worst;

use crate::duration::counting_time;
use crate::exit::{USAGE, failure, of_signal};
use crate::signals::Noted;
use crate::table::table;
use anyhow::{Context, Result};
use asmp_host::shown::shown;
use asmp_shield::Shield;
use look::{Look, Seen};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::Screen;
pub use screen::latency;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Show partitions and what disturbs their CPUs, on a screen that is refreshed
///
/// For each CPU of a partition: ticks, interrupts of devices, IPIs and softirqs a second. Column
/// LAST draws their sum in each of the last counts as a bar. For each partition: its tasks, and
/// what violates it. Violations come from asmpd; if it does not run, top looks for them itself, as
/// `asmp status` does. Where `asmp measure latency` of the same user measures in the partition, top
/// shows its worst latency in each of the last seconds; as root, that of any user. Keys: q or Esc
/// ends it; the arrows, or j and k, choose the partition whose tasks are shown. Needs no root.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long each count takes
    ///
    /// 1 s to 24 h. Example: asmp top --every 5s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = counting_time)]
    every: Duration,
    /// Count once, print a table, and end
    ///
    /// Example: asmp top --once
    #[arg(long)]
    once: bool,
}

/// How soon a key or a signal is noticed, at the latest.
const TURN: Duration = Duration::from_millis(250);

/// Shows them until q or a signal. Exit code: 0, or of the signal.
pub fn top(shield: &Shield, args: &Args) -> Result<u8> {
    let is_screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !args.once && !is_screen {
        let why = "standard input or output is no terminal: use --once";
        return Err(failure(USAGE, why.to_owned()));
    }
    let noted = Noted::take().context("take signals")?;
    let first = Look::take(shield)?;
    let mut screen = Screen::new(first);
    if args.once {
        let end = Instant::now() + args.every;
        while Instant::now() < end {
            if let Some(signal) = noted.signal() {
                return Ok(of_signal(signal));
            }
            std::thread::sleep(TURN.min(end.saturating_duration_since(Instant::now())));
        }
        screen.next(Look::take(shield)?);
        if screen.partitions().is_empty() {
            eprintln!("asmp: there are no partitions");
        }
        print!("{}", table(&screen.rows()));
        for what in screen.violations() {
            println!("violated: {}", shown(what));
        }
        for line in violations(screen.partitions()).chain(latencies(screen.partitions())) {
            println!("{line}");
        }
        println!("{}", shown(screen.held()));
        return Ok(0);
    }
    // It restores the terminal also after a panic.
    let mut terminal = ratatui::init();
    let ended = refresh(&mut terminal, shield, args.every, &mut screen, &noted);
    ratatui::restore();
    ended
}

fn violations(partitions: &[Seen]) -> impl Iterator<Item = String> + '_ {
    partitions.iter().flat_map(|partition| {
        let line = |what: &String| format!("violated: {}: {}", partition.name, shown(what));
        partition.violations.iter().map(line)
    })
}

fn latencies(partitions: &[Seen]) -> impl Iterator<Item = String> + '_ {
    let line = |one: &Seen| latency(&one.worst_ns).map(|line| format!("{}: {line}", one.name));
    partitions.iter().filter_map(line)
}

fn refresh(
    terminal: &mut DefaultTerminal,
    shield: &Shield,
    every: Duration,
    screen: &mut Screen,
    noted: &Noted,
) -> Result<u8> {
    let mut next = Instant::now() + every;
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        loop {
            if let Some(signal) = noted.signal() {
                return Ok(of_signal(signal));
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                next += every;
                // After a stop the missed ones are not made up for.
                next = next.max(Instant::now());
                screen.next(Look::take(shield)?);
                break;
            }
            if event::poll(left.min(TURN))? {
                match event::read()? {
                    Event::Key(key) => match asked(key) {
                        Asked::End => return Ok(0),
                        Asked::Move(by) => screen.select(by),
                        Asked::Nothing => continue,
                    },
                    Event::Resize(..) => {}
                    _ => continue,
                }
                break;
            }
        }
    }
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    End,
    /// To the next partition, or to the one before.
    Move(isize),
    Nothing,
}

fn asked(key: KeyEvent) -> Asked {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => Asked::Nothing,
        KeyCode::Char('c') if is_control => Asked::End,
        _ if is_control => Asked::Nothing,
        KeyCode::Char('q') | KeyCode::Esc => Asked::End,
        KeyCode::Down | KeyCode::Char('j') => Asked::Move(1),
        KeyCode::Up | KeyCode::Char('k') => Asked::Move(-1),
        _ => Asked::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_it_and_choose_a_partition() {
        let plain = |code| asked(KeyEvent::new(code, KeyModifiers::NONE));
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(plain(code), Asked::End);
        }
        assert_eq!(plain(KeyCode::Down), Asked::Move(1));
        assert_eq!(plain(KeyCode::Char('k')), Asked::Move(-1));
        assert_eq!(plain(KeyCode::Char('x')), Asked::Nothing);
        let control = |code| asked(KeyEvent::new(code, KeyModifiers::CONTROL));
        assert_eq!(control(KeyCode::Char('c')), Asked::End);
        assert_eq!(control(KeyCode::Char('q')), Asked::Nothing);
    }
}
