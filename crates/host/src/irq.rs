// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device interrupt lines, from /proc/irq and /proc/interrupts.

use crate::architecture;
use crate::counters;
use crate::cpuset::CpuSet;
use crate::kernel::Kernel;
use crate::knob;
use crate::{Error, ErrorKind, Result};
use serde::Serialize;
use std::path::Path;

/// One IRQ line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Irq {
    pub number: u32,
    /// Names of the handlers on the line (`eth0-rx-1`); empty where no driver uses it.
    pub actions: Vec<String>,
    /// It is there once for each CPU, like the tick of arm64: it cannot move, and need not.
    pub per_cpu: bool,
    /// CPUs the line may be sent to.
    pub affinity: CpuSet,
    /// The file's text, which is what a restore writes.
    #[serde(skip)]
    pub affinity_text: String,
}

impl Irq {
    /// For messages: `24 (eth0-rx-1)`.
    pub fn label(&self) -> String {
        match self.actions.is_empty() {
            true => format!("{} (unused)", self.number),
            false => format!("{} ({})", self.number, self.actions.join(", ")),
        }
    }

    /// Does `name` name this line? It is the number, a handler's whole name, or its first part up
    /// to a separator: `eth0` names `eth0-rx-1` but not `eth01`.
    pub fn is_called(&self, name: &str) -> bool {
        if name.parse() == Ok(self.number) {
            return true;
        }
        self.actions.iter().any(|action| match action.strip_prefix(name) {
            Some(rest) => {
                !name.is_empty() && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
            }
            None => false,
        })
    }
}

/// CPUs that the interrupt controller sends a line to; `None` where the kernel does not show it.
pub fn effective(kernel: &dyn Kernel, number: u32) -> Option<CpuSet> {
    let path = format!("/proc/irq/{number}/effective_affinity_list");
    kernel.text(Path::new(&path)).ok()?.parse().ok()
}

/// Tells the device of a line from another one that has its number later: the controller and the
/// number there, which name the PCI device of a message-signalled line; else its handlers.
pub fn identity(kernel: &dyn Kernel, irq: &Irq) -> String {
    let text = |name: &str| {
        let path = format!("/sys/kernel/irq/{}/{name}", irq.number);
        kernel.text(Path::new(&path)).unwrap_or_default().trim().to_owned()
    };
    match text("chip_name") {
        // The kernel does not show it.
        chip if chip.is_empty() => irq.actions.join(","),
        chip => format!("{chip} {}", text("hwirq")),
    }
}

/// Does its controller have the line once for each CPU? ABI/testing/sysfs-kernel-irq.
fn is_per_cpu(kernel: &dyn Kernel, number: u32) -> bool {
    let text = |name: &str| {
        kernel.text(Path::new(&format!("/sys/kernel/irq/{number}/{name}"))).unwrap_or_default()
    };
    let chip = text("chip_name");
    !chip.is_empty() && architecture::is_per_cpu(chip.trim(), text("hwirq").trim().parse().ok())
}

/// All lines that have an affinity, by number. A line that vanishes while being read is left out.
pub fn read_all(kernel: &dyn Kernel) -> Result<Vec<Irq>> {
    let dir = Path::new("/proc/irq");
    let mut numbers: Vec<u32> = kernel
        .list(dir)
        .map_err(Error::io(dir, "list"))?
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    let mut handlers = counters::handlers_by_line(kernel)?;
    let mut irqs = Vec::with_capacity(numbers.len());
    let known = architecture::named(&architecture::read(kernel));
    let may_be_per_cpu = known.is_none_or(|known| known.has_per_cpu_lines);
    for number in numbers {
        let affinity_knob = knob::irq_affinity(number);
        let affinity_text = match affinity_knob.read(kernel) {
            Ok(text) => text,
            // EIO: it vanished between open(2) and read(2).
            Err(error) if error.is_missing() || error.kind() == ErrorKind::Device => continue,
            Err(error) => return Err(error),
        };
        let per_cpu = may_be_per_cpu && is_per_cpu(kernel, number);
        let actions = handlers.remove(&number).unwrap_or_default();
        irqs.push(Irq {
            number,
            actions,
            per_cpu,
            affinity: affinity_knob.cpus(&affinity_text)?,
            affinity_text,
        });
    }
    Ok(irqs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn lines_are_read_with_names_and_affinities() {
        let (_root, linux) = machine(&[
            ("proc/irq/24/smp_affinity_list", "0-3\n"),
            ("proc/irq/24/effective_affinity_list", "2\n"),
            (
                "proc/interrupts",
                "  CPU0 CPU1\n 24:  1  2  PCI-MSIX-0000:00:01.0  0-edge  eth0-rx-1, eth0\n",
            ),
            ("proc/irq/3/smp_affinity_list", "0\n"),
            ("proc/irq/default_smp_affinity", "f\n"),
        ]);
        let irqs = read_all(&linux).unwrap();
        assert_eq!(irqs.iter().map(|irq| irq.number).collect::<Vec<_>>(), [3, 24]);
        assert_eq!(irqs[1].actions, ["eth0-rx-1", "eth0"]);
        assert_eq!(effective(&linux, 24), Some("2".parse().unwrap()));
        assert_eq!(effective(&linux, 3), None);
        assert_eq!(irqs[0].label(), "3 (unused)");
    }

    #[test]
    fn lines_of_each_cpu_are_known_by_their_controller() {
        let (_root, linux) = machine(&[
            ("proc/sys/kernel/arch", "aarch64\n"),
            ("proc/irq/1/smp_affinity_list", "0-3\n"),
            ("sys/kernel/irq/1/chip_name", "GICv3\n"),
            ("sys/kernel/irq/1/hwirq", "0\n"),
            ("proc/irq/24/smp_affinity_list", "0-3\n"),
            ("sys/kernel/irq/24/chip_name", "GICv3\n"),
            ("sys/kernel/irq/24/hwirq", "33\n"),
            ("proc/irq/25/smp_affinity_list", "0-3\n"),
            ("proc/interrupts", "  CPU0\n"),
        ]);
        let per_cpu: Vec<bool> = read_all(&linux).unwrap().iter().map(|irq| irq.per_cpu).collect();
        assert_eq!(per_cpu, [true, false, false]);
    }

    #[test]
    fn a_wrong_affinity_is_an_error_that_names_the_file() {
        let (_root, linux) = machine(&[
            ("proc/irq/24/smp_affinity_list", "many\n"),
            ("proc/interrupts", "  CPU0\n"),
        ]);
        assert!(
            read_all(&linux).unwrap_err().to_string().contains("/proc/irq/24/smp_affinity_list")
        );
    }

    #[test]
    fn a_machine_without_irqs_directory_is_an_error() {
        let (_root, linux) = machine(&[]);
        assert!(read_all(&linux).unwrap_err().to_string().contains("/proc/irq"));
    }

    #[test]
    fn a_line_is_called_by_number_handler_or_first_part() {
        let irq = Irq {
            number: 24,
            actions: vec!["eth0-rx-1".into()],
            per_cpu: false,
            affinity: CpuSet::new(),
            affinity_text: String::new(),
        };
        for name in ["24", "eth0", "eth0-rx", "eth0-rx-1"] {
            assert!(irq.is_called(name), "{name}");
        }
        for name in ["2", "eth", "eth01", "rx", ""] {
            assert!(!irq.is_called(name), "{name}");
        }
    }
}
