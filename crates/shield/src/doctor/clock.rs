// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's watchdog over the TSC: a timer that fires every 0.5 s on the next CPU in turn, a
//! shielded one too (kernel/time/clocksource.c, before 7.x). If it finds the TSC unstable, the
//! kernel keeps the tick on every CPU from then on (TICK_DEP_BIT_CLOCK_UNSTABLE).
//!
//! No file says whether it runs. The kernel starts it if it does not trust the TSC
//! (arch/x86/kernel/tsc.c), and what makes it trust is visible: boot parameters, flags of the CPU,
//! the number of nodes. Where those do not decide, the answer is "unknown".

use super::{Item, Observed, Verdict, item};
use asmp_host::knob::observed;
use asmp_host::{CpuSet, Facts, architecture};

const WHAT: &str = "clock source watchdog";

/// What the machine's files say of the watchdog.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Watchdog {
    Runs(&'static str),
    /// It has found the TSC unstable, or was told so.
    Dropped,
    Unknown(&'static str),
    Rests(&'static str),
    NotHere(&'static str),
}

pub(super) fn watchdog(facts: &Facts, seen: &Observed) -> Item {
    let known = architecture::named(&facts.architecture).and_then(|here| here.watchdog.as_ref());
    let cure = known.map_or("`asmp noise` counts what it costs", |known| known.cure);
    let cost = "its timer visits each CPU in turn, shielded ones too";
    match judge(facts, seen) {
        Watchdog::Runs(why) => item(WHAT, Verdict::Optional, format!("runs: {why}; {cost}"), cure),
        Watchdog::Dropped => {
            let found = "unstable: the kernel dropped the TSC, and stops the tick of no CPU";
            item(WHAT, Verdict::Optional, found, known.map_or("", |known| known.cure_of_dropped))
        }
        Watchdog::Unknown(why) => {
            item(WHAT, Verdict::Optional, format!("unknown: {why}; if it runs, {cost}"), cure)
        }
        Watchdog::Rests(why) => item(WHAT, Verdict::Ok, why, ""),
        Watchdog::NotHere(why) => item(WHAT, Verdict::NotApplicable, why, ""),
    }
}

fn judge(facts: &Facts, seen: &Observed) -> Watchdog {
    let text = |path: &str| seen.get(path).map(String::as_str);
    let Some(here) = architecture::named(&facts.architecture) else {
        return Watchdog::Unknown("this architecture is not known");
    };
    let Some(known) = &here.watchdog else {
        return Watchdog::NotHere("not on this architecture");
    };
    let asked = |value: &str| {
        let mut words = facts.command_line.split_whitespace();
        words.any(|word| word.split_once('=') == Some((known.parameter, value)))
    };
    let sources = text(observed::CLOCK_SOURCES);
    let has =
        |name: &str| sources.is_some_and(|all| all.split_whitespace().any(|source| source == name));
    let has_virtual_clock = known.virtual_clocks.into_iter().any(has);
    // An unstable TSC leaves the list, and with it the watchdog ends.
    if asked("unstable") || (sources.is_some() && !has(here.clock_source) && !has_virtual_clock) {
        return Watchdog::Dropped;
    }
    if !has(here.clock_source) && has_virtual_clock {
        return Watchdog::Unknown("the TSC is not listed beside the hypervisor's own clock");
    }
    if facts.version() >= (7, 0) {
        return Watchdog::Rests("rests: 7.2 and 7.3 were seen to leave shielded CPUs alone");
    }
    if asked("reliable") || asked("nowatchdog") {
        return Watchdog::Rests("switched off at boot");
    }
    if sources.is_none() {
        return Watchdog::Unknown("the clock sources cannot be read");
    }
    let Some(flags) = flags(text(observed::CPU_INFO).unwrap_or_default()) else {
        return Watchdog::Unknown("the flags of the CPU cannot be read");
    };
    let flag = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    if flag(known.vouched_flag) {
        return Watchdog::Rests("rests: the hypervisor calls the TSC reliable");
    }
    if asked("watchdog") {
        return Watchdog::Unknown("a boot parameter makes the TSC check other clock sources");
    }
    if !known.trusted_flags.into_iter().all(flag) {
        return match known.checkers.into_iter().any(has) {
            true => Watchdog::Runs("the kernel does not trust this CPU's TSC"),
            false => Watchdog::Unknown("nothing is there that the TSC is surely checked against"),
        };
    }
    match text(observed::NUMA_NODES).and_then(|nodes| nodes.parse::<CpuSet>().ok()) {
        Some(nodes) if nodes.len() <= 2 => Watchdog::Rests("rests: the kernel trusts the TSC"),
        _ => Watchdog::Unknown("the kernel trusts the TSC of small machines only"),
    }
}

/// The flags of the first CPU in /proc/cpuinfo.
fn flags(cpu_info: &str) -> Option<&str> {
    let line = cpu_info.lines().find(|line| line.starts_with("flags"))?;
    line.split_once(':').map(|(_, flags)| flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::machine;

    const TRUSTED: &str = "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc tsc_adjust\n";
    const PLAIN: &str = "processor\t: 0\nflags\t\t: fpu constant_tsc\n";

    fn judged(release: &str, command_line: &str, sources: &str, info: &str) -> Watchdog {
        let mut facts = machine();
        facts.release = release.into();
        facts.command_line = command_line.into();
        let seen = Observed::from([
            (observed::CLOCK_SOURCES, sources.to_owned()),
            (observed::CPU_INFO, info.to_owned()),
            (observed::NUMA_NODES, "0".to_owned()),
        ]);
        judge(&facts, &seen)
    }

    #[test]
    fn the_watchdog_runs_where_the_tsc_is_used_and_not_trusted() {
        let runs = |release, line, sources, info| {
            matches!(judged(release, line, sources, info), Watchdog::Runs(_))
        };
        assert!(runs("6.12.107", "quiet", "tsc hpet acpi_pm", PLAIN));
        assert!(!runs("6.12.107", "quiet tsc=reliable", "tsc hpet acpi_pm", PLAIN));
        assert!(!runs("6.12.107", "tsc=nowatchdog", "tsc hpet acpi_pm", PLAIN));
        assert!(!runs("6.12.107", "quiet", "hpet acpi_pm", PLAIN));
        assert!(!runs("6.12.107", "quiet", "tsc hpet acpi_pm", TRUSTED));
        assert!(!runs("7.2.13", "quiet", "tsc hpet acpi_pm", PLAIN));
    }

    #[test]
    fn a_tsc_that_the_kernel_dropped_is_named_on_every_kernel() {
        for release in ["6.12.107", "7.2.13"] {
            assert_eq!(judged(release, "quiet", "hpet acpi_pm", PLAIN), Watchdog::Dropped);
            assert_eq!(judged(release, "tsc=unstable", "tsc hpet", PLAIN), Watchdog::Dropped);
            assert_ne!(judged(release, "quiet", "tsc hpet", PLAIN), Watchdog::Dropped);
        }
        let facts = Facts { release: "7.2.13".into(), ..machine() };
        let seen = Observed::from([(observed::CLOCK_SOURCES, "hpet acpi_pm".to_owned())]);
        let found = watchdog(&facts, &seen);
        assert_eq!(found.verdict, Verdict::Optional);
        assert!(found.found.contains("stops the tick of no CPU"), "{found:?}");
    }

    #[test]
    fn what_no_file_decides_is_unknown() {
        let unknown =
            |sources, info| matches!(judged("6.12.107", "", sources, info), Watchdog::Unknown(_));
        assert!(unknown("tsc", PLAIN), "checked against jiffies, perhaps");
        assert!(unknown("hyperv_clocksource_tsc_page acpi_pm", PLAIN), "not dropped for sure");
        assert!(unknown("tsc hpet", "processor : 0\n"));
        let facts = machine();
        let facts = Facts { release: "6.12.107".into(), ..facts };
        let found = watchdog(&facts, &Observed::new());
        assert_eq!(found.verdict, Verdict::Optional);
        assert!(found.found.starts_with("unknown"), "{found:?}");
    }

    #[test]
    fn the_cure_is_named_and_other_architectures_have_none() {
        let mut facts = machine();
        facts.release = "6.12.107".into();
        let seen = Observed::from([
            (observed::CLOCK_SOURCES, "tsc hpet".to_owned()),
            (observed::CPU_INFO, PLAIN.to_owned()),
        ]);
        assert!(watchdog(&facts, &seen).cure.contains("tsc=reliable"));
        facts.architecture = "aarch64".into();
        assert_eq!(watchdog(&facts, &seen).verdict, Verdict::NotApplicable);
    }
}
