// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The example of shared partitions, `examples/quality-line`: a line of production with tasks of
//! each kind.

use super::guests::{Boot, On};
use super::lab::{Called, Test, asmp, called, example, test};
use super::sharing::no_scheduler;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

pub fn all() -> Vec<Test> {
    let line = |name, run: fn()| {
        test(name, run).on(On::RtAndNot).booted(&[Boot::Bare]).lacks(no_scheduler)
    };
    vec![
        line("line: finds all defects, its tasks are where their class may be", produces),
        line("line: what cannot begin is refused in one line", refusals),
    ]
}

fn quality_line(words: &str) -> Called {
    let mut command = Command::new(example("quality_line"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    called(words, command.output().expect("it starts"))
}

/// The words of each line that begins so.
fn rows<'a>(text: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().filter(|line| line.starts_with(first));
    rows.map(|line| line.split_whitespace().collect()).collect()
}

fn produces() {
    const SVG: &str = "/tmp/line.svg";
    const SECONDS: u64 = 5;
    asmp("create line --cpus 1-3 --share").done();
    let ran = quality_line(&format!("line --seconds {SECONDS} --svg {SVG}"));
    println!("{}{}", ran.out, ran.err);
    let svg = std::fs::read_to_string(SVG).expect("the figure");
    std::fs::remove_file(SVG).expect("it goes");
    asmp("status").done();

    let cameras = rows(&ran.out, "camera");
    assert_eq!(cameras.len(), 3);
    let mut all_missed = 0;
    for (place, camera) in (1..).zip(&cameras) {
        let numbers: Vec<u64> = camera[1..5].iter().map(|n| n.parse().expect("a number")).collect();
        let [cpu, activations, missed, moves] = numbers[..] else { panic!("{camera:?}") };
        assert_eq!((cpu, moves), (place, 0), "{camera:?}");
        // A busy host lets the guest miss some. None is left out.
        assert!(activations + missed >= SECONDS * 25, "{camera:?}");
        assert!(activations > SECONDS * 5, "{camera:?}");
        all_missed += missed;
    }
    assert_eq!(ran.code, i32::from(all_missed > 0), "{}", ran.err);

    let ms = |class: &str, word: usize| -> f64 {
        rows(&ran.out, class).last().expect("a class")[word].parse().expect("a time")
    };
    assert_eq!(ms("RT0 ", 5), 0.0, "a camera ran on a system CPU");
    for class in ["RT0 ", "RT1 ", "RT2 ", "Linux "] {
        assert!(ms(class, 1) > 0.0, "{class}never ran on a real-time CPU");
    }
    let teams = &rows(&ran.out, "defect tasks: ")[0];
    let sizes: BTreeSet<&str> = teams[2..].iter().step_by(3).copied().collect();
    assert_eq!(sizes, BTreeSet::from(["1", "2", "4"]), "{teams:?}");
    let defects = &rows(&ran.out, "defects: ")[0];
    assert!(defects[1] != "0" && defects[1] == defects[3], "{defects:?}");
    ran.says("found, 0 missing, 0 wrong");

    assert!(is_well_formed(&svg), "{svg}");
    for cpu in 0..4 {
        let row = svg.split("<g ").find(|row| row.starts_with(&format!("id=\"cpu{cpu}\"")));
        let row = row.unwrap_or_else(|| panic!("no row for CPU {cpu}:\n{svg}"));
        assert!(cpu > 0 || !row.contains("class=\"RT0\""), "a camera on a system CPU:\n{row}");
    }
    assert!(svg.contains("<rect class="), "nothing ran:\n{svg}");
}

/// Every element is closed, in order, and has its attributes in quotes.
fn is_well_formed(xml: &str) -> bool {
    let mut open = Vec::new();
    for tag in xml.split('<').skip(1) {
        let Some((tag, text)) = tag.split_once('>') else { return false };
        if text.contains(['>', '&']) || tag.matches('"').count() % 2 == 1 {
            return false;
        }
        let name = tag.trim_start_matches('/').split([' ', '/']).next();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) if open.pop() != name => return false,
            (false, false) => open.extend(name),
            _ => {}
        }
    }
    open.is_empty()
}

fn refusals() {
    let refused = |words: &str, why: &str| {
        let called = quality_line(words).code(2).says(why);
        assert_eq!((called.out.as_str(), called.err.lines().count()), ("", 1), "{}", called.err);
    };
    refused("", "usage: quality_line PARTITION");
    refused("line --second 5", "--second");
    refused("line --seconds 0", "1 to 600");
    refused("line", "no partition line");
    asmp("create line --cpus 2-3 --share").done();
    refused("line", "the line needs 3 CPUs");
    asmp("resize line --cpus 1-3").done();
    asmp("mode line isolated").done();
    refused("line", "is not shared");
}
