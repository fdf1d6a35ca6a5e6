// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What differs by the processor's architecture: names of packages, clock sources, timers and
//! interrupt controllers. No other file knows them: `house.rs` of cli holds that.

use crate::kernel::Kernel;
use std::path::Path;

/// One architecture.
#[derive(Debug, PartialEq, Eq)]
pub struct Architecture {
    /// As in /proc/sys/kernel/arch.
    pub name: &'static str,
    /// As in the names of Debian's packages.
    pub debian: &'static str,
    /// The clock source that needs no device to be asked.
    pub clock_source: &'static str,
    /// How to have it.
    pub clock_cure: &'static str,
    /// The kernel's check of the clock source by a timer that visits all CPUs, if it has one.
    pub watchdog: Option<Watchdog>,
    /// Does /proc/irq show lines that each CPU has for itself?
    pub has_per_cpu_lines: bool,
    /// Does asmp-artis know how a task enters the kernel?
    pub shares: bool,
}

/// What tells whether the clock source is checked, and what ends that.
#[derive(Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// The boot parameter about the clock source.
    pub parameter: &'static str,
    /// The flag of a CPU (/proc/cpuinfo) whose hypervisor vouches for its clock.
    pub vouched_flag: &'static str,
    /// The kernel trusts the clock of a CPU that has all of these flags.
    pub trusted_flags: [&'static str; 3],
    /// Clock sources that it is surely checked against.
    pub checkers: [&'static str; 2],
    /// Clocks of hypervisors. If the scheduler uses one, an unstable source keeps no tick.
    pub virtual_clocks: [&'static str; 4],
    /// What ends the check.
    pub cure: &'static str,
    /// What keeps the kernel from dropping the clock source.
    pub cure_of_dropped: &'static str,
}

/// Timers of the kernel that visit shielded CPUs too, by their function, and what ends that. Where
/// an architecture has no such timer, none expires.
pub const TIMER_CURES: [(&str, &str); 1] = [(
    "clocksource_watchdog",
    "use tsc=reliable at boot where the hardware's TSC is sound, or a 7.x kernel",
)];

const KNOWN: [Architecture; 3] = [
    Architecture {
        name: "x86_64",
        debian: "amd64",
        clock_source: "tsc",
        clock_cure: "clocksource=tsc tsc=reliable at boot, where the hardware's TSC is sound",
        watchdog: Some(Watchdog {
            parameter: "tsc",
            vouched_flag: "tsc_reliable",
            trusted_flags: ["constant_tsc", "nonstop_tsc", "tsc_adjust"],
            checkers: ["hpet", "acpi_pm"],
            virtual_clocks: [
                "kvm-clock",
                "xen",
                "hyperv_clocksource_tsc_page",
                "hyperv_clocksource_msr",
            ],
            cure: "tsc=reliable at boot (or tsc=nowatchdog), where the hardware's TSC is sound; \
                   or a 7.x kernel; `asmp noise` counts what it costs",
            cure_of_dropped: "tsc=reliable at boot, if the TSC is sound",
        }),
        has_per_cpu_lines: false,
        shares: true,
    },
    Architecture {
        name: "aarch64",
        debian: "arm64",
        clock_source: "arch_sys_counter",
        clock_cure: "clocksource=arch_sys_counter at boot",
        watchdog: None,
        has_per_cpu_lines: true,
        shares: false,
    },
    Architecture {
        name: "riscv64",
        debian: "riscv64",
        clock_source: "riscv_clocksource",
        clock_cure: "clocksource=riscv_clocksource at boot",
        watchdog: None,
        has_per_cpu_lines: true,
        shares: false,
    },
];

/// `None` for one that this table does not know.
pub fn named(name: &str) -> Option<&'static Architecture> {
    KNOWN.iter().find(|known| known.name == name)
}

/// The machine's architecture, as /proc/sys/kernel/arch spells it.
pub fn read(kernel: &dyn Kernel) -> String {
    let path = Path::new("/proc/sys/kernel/arch");
    kernel.text(path).unwrap_or_else(|_| std::env::consts::ARCH.to_owned())
}

/// Timers that give a CPU its tick (/sys/devices/system/clockevents/clockeventN/current_device)
/// and their rows in /proc/interrupts: a label, or the name of a handler. A device whose name is
/// that of its row stands for itself.
const TICKS: [(&str, &str); 6] = [
    ("lapic", "LOC"),
    ("lapic-deadline", "LOC"),
    ("Hyper-V clockevent", "HVS"),
    ("arch_sys_timer", "arch_timer"),
    ("arch_mem_timer", "arch_mem_timer"),
    ("riscv_timer_clockevent", "riscv-timer"),
];

/// Does the row of /proc/interrupts with this label and these words count the ticks that `device`
/// gives?
pub(crate) fn counts_ticks_of(device: &str, label: &str, words: &str) -> bool {
    let known = TICKS.iter().find(|(name, _)| *name == device);
    let row = known.map_or(device, |(_, row)| *row);
    label == row || words.split([' ', ',']).any(|word| word == row)
}

/// Is this the handler of an interrupt that gives a CPU its tick? x86 has none: see
/// [`INTERRUPT_EVENTS`].
pub(crate) fn is_tick_handler(name: &str) -> bool {
    TICKS.iter().any(|(_, row)| *row == name)
}

/// What a row of /proc/interrupts with this label and these words counts, if that comes from other
/// CPUs. Arm64 and RISC-V number these rows and put the name behind.
pub(crate) fn from_other_cpus(label: &str, words: &str) -> Option<String> {
    const X86: [(&str, &str); 4] = [
        ("RES", "rescheduling"),
        ("CAL", "function call"),
        ("TLB", "TLB shootdown"),
        ("IWI", "irq work"),
    ];
    match X86.iter().find(|(known, _)| *known == label) {
        Some((_, name)) => Some((*name).to_owned()),
        None => {
            let words = words.to_ascii_lowercase();
            let name = words.strip_suffix(" interrupts").unwrap_or(&words);
            label.starts_with("IPI").then(|| name.to_owned())
        }
    }
}

/// Events of interrupts that no device makes, as x86 has them. Elsewhere `ipi/ipi_entry` names what
/// comes from other CPUs, and `irq/irq_handler_entry` the timer.
pub(crate) const INTERRUPT_EVENTS: [&str; 10] = [
    "irq_vectors/local_timer_entry",
    "irq_vectors/local_timer_exit",
    "irq_vectors/reschedule_entry",
    "irq_vectors/reschedule_exit",
    "irq_vectors/call_function_entry",
    "irq_vectors/call_function_exit",
    "irq_vectors/call_function_single_entry",
    "irq_vectors/call_function_single_exit",
    "irq_vectors/irq_work_entry",
    "irq_vectors/irq_work_exit",
];

/// Events of page faults. Arm64 has none.
pub(crate) const PAGE_FAULT_EVENTS: [&str; 2] =
    ["exceptions/page_fault_user", "exceptions/page_fault_kernel"];

/// How often the kernel polls for corrected machine checks: a timer on each CPU, x86 only.
pub(crate) const MACHINE_CHECKS: &str =
    "/sys/devices/system/machinecheck/machinecheck0/check_interval";

/// Is a line of this controller there once for each CPU, so that it cannot move? Interrupts 0 to 31
/// of Arm's GIC are (IHI 0069, "INTIDs"), and all of RISC-V's per-hart and the Raspberry Pi's local
/// controllers.
pub(crate) fn is_per_cpu(chip: &str, hardware_line: Option<u32>) -> bool {
    match chip {
        "RISC-V INTC" => true,
        _ if chip.starts_with("GIC") => hardware_line.is_some_and(|line| line < 32),
        _ => chip.starts_with("bcm2836-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_a_tick_is_known_by_its_timer() {
        let words = "GICv3  30 Level     arch_timer";
        assert!(counts_ticks_of("arch_sys_timer", "11", words));
        assert!(!counts_ticks_of("timer0", "11", words), "a Tegra's tick is another's");
        assert!(counts_ticks_of("timer0", "12", "LIC 0 Level timer0"));
        assert!(counts_ticks_of("lapic-deadline", "LOC", "Local timer interrupts"));
        assert!(!counts_ticks_of("lapic-deadline", "RES", "Rescheduling interrupts"));
        assert!(counts_ticks_of("mct_tick3", "88", "GICv2 120 Level mct_tick3"));
        assert!(counts_ticks_of("riscv_timer_clockevent", "5", "RISC-V INTC 5 Edge riscv-timer"));
    }

    /// The rows are those of Debian's 7.2.13 for arm64.
    #[test]
    fn what_comes_from_other_cpus_has_one_name_on_every_architecture() {
        let arm64 = from_other_cpus("IPI0", "Rescheduling interrupts");
        assert_eq!(arm64, from_other_cpus("RES", "Rescheduling interrupts"));
        assert_eq!(arm64.as_deref(), Some("rescheduling"));
        let arm64 = from_other_cpus("IPI5", "IRQ work interrupts");
        assert_eq!(arm64, from_other_cpus("IWI", "IRQ work interrupts"));
        assert_eq!(from_other_cpus("IPI1", "Function call interrupts").unwrap(), "function call");
        assert_eq!(from_other_cpus("IPI3", "CPU stop NMIs").unwrap(), "cpu stop nmis");
        assert_eq!(from_other_cpus("MCP", "Machine check polls"), None);
        assert_eq!(from_other_cpus("24", "GICv3 33 Level uart-pl011"), None);
    }

    #[test]
    fn lines_of_each_cpu_are_known_by_their_controller() {
        assert!(is_per_cpu("GICv3", Some(30)) && is_per_cpu("GIC-0", Some(7)));
        assert!(!is_per_cpu("GICv3", Some(32)) && !is_per_cpu("GICv3", None));
        assert!(
            !is_per_cpu("IO-APIC", Some(2)) && !is_per_cpu("ITS-PCI-MSIX-0000:00:01.0", Some(0))
        );
        assert!(is_per_cpu("RISC-V INTC", None));
    }
}
