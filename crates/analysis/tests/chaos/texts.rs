// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary text for every parser: files that are right with a few places torn, doubled or
//! overwritten, and words in a row.

use super::graphs;
use super::numbers::{Met, index, number, one_in};
use asmp_analysis::graph::Graph;
use asmp_analysis::simulate::Random;
use asmp_analysis::{Policy, file};
use asmp_duration::ExactDuration;

const TASKS: [&str; 3] = [
    include_str!("../../../../examples/analysis/overload.toml"),
    "[[task]]\nname = \"a\"\ncost = \"1 ms\"\nperiod = \"5 ms\"\njitter = \"20us\"\n\
     blocking = \"3 us\"\n\
     class = \"high\"\nmemory = 7\n[[task]]\nname = \"b\"\nmeasured = \"run\"\n\
     sporadic = \"1.5 s\"\n\
     deadline = \"500 ms\"\noffset = \"0 s\"\npriority = 7\ncore = 2\napp = \"x\"\n\
     entry = \"x_1\"\nlate = \"skip\"\nmost = \"1 s\"\n[room]\n\
     memory = 9\n[board]\nname = \"host\"\n",
    "[[task]]\nname = \"a\"\ncost = \"1 ms\"\nperiod = \"5 ms\"\n[[chain]]\nname = \"c\"\n\
     tasks = [\"a\"]\n\
     deadline = \"9 ms\"\n[[background]]\nname = \"b\"\ncost = \"2 ms\"\nperiod = \"1 s\"\n\
     [[interrupt]]\n\
     name = \"i\"\nservice = \"100 us\"\ngap = \"1040 us\"\nentry = \"serve\"\nmost = 4\n",
];
const TABLE: &str = "name,cost,period,deadline,priority\na,1 ms,5 ms,,3\nb,20us,1.5 s,1 s,4\n";
const FLOW: &str = "[[task]]\nname = \"a\"\n[[task]]\nname = \"b\"\nmultiple_of = 20\noutput = 1\n\
                    [[edge]]\n\
                    from = \"a\"\nto = \"b\"\nwrite = 2\nread = 3\ninitial = 1\nmemory = 9\n";

const WORDS: [&str; 40] = [
    "[[task]]\n",
    "[[chain]]\n",
    "[[edge]]\n",
    "[room]\n",
    "name",
    "cost",
    "measured",
    "period",
    "sporadic",
    "deadline",
    "offset",
    "priority",
    "core",
    "memory",
    "write",
    "case",
    " = ",
    "\"20 ms\"",
    "\"a\"",
    "\"data\"",
    "\"independent\"",
    "7",
    "-1",
    "[\"a\"]",
    "\n",
    ",",
    "#",
    "\"",
    "1.5 s",
    "18446744073709551615",
    "18446744073.709551616 s",
    "1e400",
    "0",
    "µs",
    "\u{0}",
    "é",
    "name,cost,period\n",
    "999999999 h",
    ".",
    "\r\n",
];

/// A file with up to three places changed, or up to twenty words in a row.
fn torn(random: &mut Random, whole: &str) -> String {
    if one_in(random, 8) {
        return (0..random.up_to(20)).map(|_| WORDS[index(random, WORDS.len())]).collect();
    }
    let mut text: Vec<char> = whole.chars().collect();
    for _ in 0..random.up_to(3) {
        let from = index(random, text.len() + 1);
        let to = (from + index(random, 12)).min(text.len());
        match random.up_to(3) {
            0 => drop(text.drain(from..to)),
            1 => {
                let piece = text[from..to].to_vec();
                let at = index(random, text.len() + 1);
                drop(text.splice(at..at, piece));
            }
            2 if from < text.len() => text[from] = char::from(random.up_to(127) as u8),
            _ => drop(text.splice(from..to, WORDS[index(random, WORDS.len())].chars())),
        }
    }
    text.into_iter().collect()
}

/// One text for each parser.
pub fn once(seed: u64, met: &mut Met) {
    let random = &mut Random::new(seed ^ 0x7e);
    let whole = TASKS[index(random, TASKS.len())];
    let text = torn(random, whole);
    met.text(file::from_toml(&text, &|run| Ok(run.len() as u64)).is_ok());
    let text = torn(random, TABLE);
    met.text(file::from_csv(&text, &file::no_measurement).is_ok());
    let text = torn(random, FLOW);
    match text.parse::<Graph>() {
        Ok(graph) => {
            met.text(true);
            graphs::judge(&graph, random, met);
        }
        Err(error) => {
            met.text(false);
            assert!(!error.to_string().is_empty());
        }
    }
    let text = torn(random, "20 ms");
    met.text(text.parse::<ExactDuration>().is_ok());
    let text = torn(random, "np-edf");
    let _ = text.parse::<Policy>();
    let ns = number(random);
    let duration = ExactDuration::from_ns(ns);
    assert_eq!(duration.to_string().parse(), Ok(duration));
}
