// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which timers expired, by the function that each calls. The kernel counts them itself
//! (trace/histogram.rst): a busy CPU loses none, and the trace has room for switches.

use crate::cpuset::Cpu;
use std::collections::BTreeMap;

/// Timers that expired on each CPU, by function.
pub type Timers = BTreeMap<Cpu, BTreeMap<String, u64>>;

/// High-resolution timers, and those of the timer wheel.
pub(super) const EVENTS: [&str; 2] = ["timer/hrtimer_expire_entry", "timer/timer_expire_entry"];

/// The trigger that counts; a filter may follow.
pub(super) const TRIGGER: &str = "hist:keys=common_cpu,function.sym";

/// Adds the counts of one file `hist`. `None`: there was no room for all.
pub(super) fn add(all: &mut Timers, hist: &str) -> Option<()> {
    for (cpu, function, count) in hist.lines().filter_map(entry) {
        *all.entry(cpu).or_default().entry(function).or_default() += count;
    }
    let dropped = hist.lines().find_map(|line| line.trim().strip_prefix("Dropped: "));
    dropped.is_none_or(|count| count == "0").then_some(())
}

/// `{ common_cpu:  3, function: [ffffffffb71a0440] hrtimer_wakeup } hitcount:   1`.
fn entry(line: &str) -> Option<(Cpu, String, u64)> {
    let (keys, count) = line.split_once("} hitcount:")?;
    let (cpu, function) = keys.split_once("common_cpu:")?.1.split_once(',')?;
    let function = function.split_once("] ")?.1.trim().to_owned();
    Some((cpu.trim().parse().ok()?, function, count.trim().parse().ok()?))
}

/// How many more expired than in an earlier reading; those that came.
pub fn since(before: &Timers, after: &Timers, cpu: Cpu) -> BTreeMap<String, u64> {
    let none = BTreeMap::new();
    let then = before.get(&cpu).unwrap_or(&none);
    let came = |(function, count): (&String, &u64)| {
        let more = count.saturating_sub(then.get(function).copied().unwrap_or(0));
        (more > 0).then(|| (function.clone(), more))
    };
    after.get(&cpu).unwrap_or(&none).iter().filter_map(came).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 6.12 and 7.2 print it; 7.2 names a key twice in its comment.
    const HIST: &str = "# event histogram
#
# trigger info: hist:keys=common_cpucommon_cpu,function.sym:vals=hitcount:size=2048 [active]
#

{ common_cpu:  3, function: [ffffffff8c1e01a0] hrtick } hitcount:          1
{ common_cpu:  12, function: [ffffffff8c2c9ef0] tick_nohz_handler } hitcount:        250
{ common_cpu:  3, function: [ffffffffc0a0e010] poll_fn [some_module] } hitcount:          2

Totals:
    Hits: 253
    Entries: 3
    Dropped: 0
";

    #[test]
    fn a_histogram_becomes_counts_by_cpu_and_function() {
        let mut timers = Timers::new();
        assert!(add(&mut timers, HIST).is_some());
        add(&mut timers, "{ common_cpu:  3, function: [0] hrtick } hitcount: 4\n").unwrap();
        let on = |cpu| timers[&cpu].iter().map(|(name, count)| (&**name, *count));
        assert!(on(3).eq([("hrtick", 5), ("poll_fn [some_module]", 2)]));
        assert!(on(12).eq([("tick_nohz_handler", 250)]));
        assert_eq!(add(&mut timers, &HIST.replace("Dropped: 0", "Dropped: 7")), None);
    }

    #[test]
    fn only_what_came_meanwhile_counts() {
        let mut before = Timers::new();
        add(&mut before, HIST).unwrap();
        let mut after = before.clone();
        assert!(since(&before, &after, 3).is_empty());
        add(&mut after, "{ common_cpu:  3, function: [0] clocksource_watchdog } hitcount: 4\n")
            .unwrap();
        let came = BTreeMap::from([("clocksource_watchdog".to_owned(), 4)]);
        assert_eq!(since(&before, &after, 3), came);
        assert!(since(&before, &after, 5).is_empty(), "no timer ever expired there");
    }
}
