// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What changes by itself, measured on the idle machine before asmp is called for the first time.
//!
//! A file that only counts (its digits changed, nothing else) stands for all of its class: the same
//! file of every CPU, IRQ line or control group.

use super::{Snapshot, read};
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Noise {
    names: HashSet<String>,
    classes: HashSet<String>,
}

static NOISE: OnceLock<Noise> = OnceLock::new();

pub fn is_noise(name: &str) -> bool {
    let Some(noise) = NOISE.get() else { return false };
    noise.names.contains(name) || noise.classes.contains(&class(name))
}

/// Tasks have no class: each is measured.
fn class(name: &str) -> String {
    if let Some(below) = name.strip_prefix("/sys/fs/cgroup/") {
        return format!("/sys/fs/cgroup/*/{}", below.rsplit('/').next().unwrap_or_default());
    }
    if name.starts_with("task ") { name.to_owned() } else { without_digits(name) }
}

/// Runs of digits, signs and a decimal point become one `#`.
fn without_digits(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if !character.is_ascii_digit() {
            out.push(character);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

/// Looks at the machine for some seconds, once in the life of this process.
pub fn learn_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(NOISE.set(learn())));
}

fn learn() -> Noise {
    let mut noise = Noise::default();
    // The first look makes some files that are empty until then.
    let _ = read();
    let started = Instant::now();
    let mut last = read();
    let took = started.elapsed();
    let values = last.len();
    // Idle first; then what any other program does too.
    for (wait_ms, busy) in [(100, false), (1000, false), (0, true), (500, true), (2000, false)] {
        let held = if busy { live() } else { Vec::new() };
        std::thread::sleep(Duration::from_millis(wait_ms));
        let now = read();
        drop(held);
        noise.learn(&last, &now);
        last = now;
    }
    noise.print(values, took);
    noise
}

impl Noise {
    fn learn(&mut self, before: &Snapshot, after: &Snapshot) {
        for (name, was) in before {
            let Some(is) = after.get(name).filter(|is| *is != was) else { continue };
            if !name.starts_with("task ") && without_digits(was) == without_digits(is) {
                self.classes.insert(class(name));
            }
            if !name.ends_with(" name") {
                self.names.insert(name.clone());
            }
        }
    }

    fn print(&self, values: usize, took: Duration) {
        println!(
            "snapshot: {values} values in {:.2} s; {} of them change by themselves, of these \
             classes:",
            took.as_secs_f64(),
            self.names.len()
        );
        let classes: BTreeSet<String> = self.names.iter().map(|name| class(name)).collect();
        println!("  {}", classes.into_iter().collect::<Vec<_>>().join("\n  "));
    }
}

/// Processes, files and a control group come and go, as on any machine. Some files stay open.
fn live() -> Vec<fs::File> {
    for _ in 0..5 {
        let _ = Command::new("true").stdin(Stdio::null()).status();
    }
    let file = std::env::temp_dir().join("asmp-guest-tests");
    let _ = fs::write(&file, vec![1; 1 << 20]);
    let _ = fs::remove_file(&file);
    // Interrupts of the disk and of the console.
    let disk = ["if=/dev/vda", "of=/dev/null", "bs=64k", "count=20", "iflag=direct"];
    let _ = Command::new("dd").args(disk).stdin(Stdio::null()).stderr(Stdio::null()).status();
    println!("snapshot: looking at the machine");
    let group = "/sys/fs/cgroup/asmp-guest-tests";
    let _ = fs::create_dir(group);
    let sleeper = Command::new("sleep").arg("0.2").stdin(Stdio::null()).spawn();
    if let Ok(mut sleeper) = sleeper {
        let _ = fs::write(format!("{group}/cgroup.procs"), sleeper.id().to_string());
        let _ = sleeper.wait();
    }
    for _ in 0..20 {
        if fs::remove_dir(group).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    (0..500).filter_map(|_| fs::File::open("/dev/null").ok()).collect()
}
