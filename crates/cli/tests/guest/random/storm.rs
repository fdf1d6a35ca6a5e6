// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other people's hands at work beside our commands, for seconds, minutes or an hour.
//!
//! Problem:  what two do at the same moment has no order, so that an answer may be old when it is
//!           read: no lie.
//! Approach: irqbalance and a thread with hands of all kinds run on while our commands run. Before
//!           anything is judged, both are stopped.

use super::super::lab::{Process, asmp, read, spawn_asmp};
use super::super::snapshot::{kernel_log, snapshot};
use super::super::watchdog;
use super::hands::{Done, Hand, KINDS, hand};
use super::{Dice, Run, command, judge, number, signal, write_files};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Hands that a sequence has, and this has not: they leave nothing to judge.
const NOT_HERE: [&str; 3] = ["lose", "full", "kill"];

/// What goes on beside our commands.
struct Storm {
    kinds: Vec<&'static str>,
    /// The longest time between two hands.
    pause_ms: usize,
    irqbalance: bool,
    length: Duration,
    /// The next of our commands.
    command: fn(&mut Dice) -> String,
}

/// Hands of one kind after the other, until it is over.
fn hands_at_work(hands: &Mutex<Done>, over: &AtomicBool, storm: &Storm, seed: u64) {
    let mut dice = Dice::new(seed + 1000);
    while !over.load(Ordering::Relaxed) {
        let kind = dice.one(&storm.kinds);
        let hand = match hand(&mut dice, kind) {
            // The real one runs beside it.
            Hand::Irqbalance => Hand::IrqStorm,
            hand => hand,
        };
        hands.lock().expect("no panic in between").act(&hand);
        // A moment by chance, so that our commands come in between.
        std::thread::sleep(Duration::from_millis(dice.below(storm.pause_ms) as u64));
    }
}

/// Prints what the kernel warned of, the first lines of each.
fn warnings() {
    let output = Command::new("dmesg").output().expect("dmesg");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    for at in (0..lines.len()).filter(|at| lines[*at].contains("cut here")).take(3) {
        println!("  the kernel warned:");
        lines[at..].iter().take(40).for_each(|line| println!("    {line}"));
    }
}

/// Runs for `ASMP_HANDS_MINUTES`.
pub fn work() {
    run(&Storm {
        kinds: KINDS.into_iter().filter(|kind| !NOT_HERE.contains(kind)).collect(),
        pause_ms: 150,
        irqbalance: true,
        length: Duration::from_secs(60 * number("ASMP_HANDS_MINUTES", 1)),
        command,
    });
}

/// Affinities of tasks and lines alone, as fast as they go.
pub fn short() {
    run(&Storm {
        kinds: vec!["taskset", "irq"],
        pause_ms: 20,
        irqbalance: false,
        length: Duration::from_secs(20),
        command: |dice| {
            let lines = ["create a --cpus 3", "add a --pid P0", "destroy a", "create b --cpus 2"];
            dice.one(&lines).to_owned()
        },
    });
}

fn run(storm: &Storm) {
    let seed = number("ASMP_RANDOM_SEED", 0);
    let started = Instant::now();
    write_files();
    let before = snapshot();
    let mut run = Run::new(false);
    let mut hands = Done::new(false);
    hands.touch_lines();
    let pids: Vec<u32> = hands.members.iter().map(Process::id).collect();
    let (hands, over) = (Mutex::new(hands), AtomicBool::new(false));
    let start = || Process::start("irqbalance", &["--foreground", "--interval", "1"]);
    let irqbalance = storm.irqbalance.then(start);
    let signal_it = |number| irqbalance.iter().for_each(|other| signal(other.id(), number));
    let mut dice = Dice::new(seed);
    let (mut commands, mut judged) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| hands_at_work(&hands, &over, storm, seed));
        while started.elapsed() < storm.length && run.wrong.is_empty() {
            watchdog::begins("hands at work beside our commands");
            let mut line = (storm.command)(&mut dice);
            for (index, pid) in pids.iter().enumerate() {
                line = line.replace(&format!("P{index}"), &pid.to_string());
            }
            commands += 1;
            if dice.chance(12) {
                let mut child = spawn_asmp(&line);
                // A moment by chance, in any step of it.
                std::thread::sleep(Duration::from_millis(5 + dice.below(300) as u64));
                let _ = child.kill();
                let _ = child.wait();
                run.story.push(format!("asmp {line}, killed"));
                run.cut = true;
            } else {
                run.note(&asmp(&line));
            }
            let held = hands.lock().expect("no panic in between");
            signal_it(libc::SIGSTOP);
            run.wrong.extend(judge::lies());
            if dice.chance(40) {
                let line = dice.one(&["repair", "repair", "create a --cpus 3", "restore"]);
                run.ask(line);
                run.wrong.extend(judge::lies());
            }
            judged += 1;
            if judged % 20 == 0 {
                // What the kernel warned of is still known at the end.
                kernel_log();
            }
            signal_it(libc::SIGCONT);
            drop(held);
        }
        over.store(true, Ordering::Relaxed);
    });
    drop(irqbalance);
    run.done = hands.into_inner().expect("no panic in between");
    let _ = run.end(&before);
    let kernel = read("/proc/sys/kernel/osrelease");
    println!(
        "  {commands} commands, {judged} times judged in {:.0} s, kernel {kernel}",
        started.elapsed().as_secs_f64()
    );
    if !run.wrong.is_empty() {
        warnings();
        let last = run.story.len().saturating_sub(30);
        println!("  seed {seed}, the last of it:\n    {}", run.story[last..].join("\n    "));
    }
    assert!(run.wrong.is_empty(), "{}", run.wrong.join("\n"));
    assert!(judged >= 3, "only {judged} times judged");
}
