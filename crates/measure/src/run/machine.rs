// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine of a run, as the kernel's files describe it, and whether it is a guest.
//!
//! x86 says in each CPU's flags whether a hypervisor is below. Other architectures have no such
//! flag: there a device tree, the firmware's tables (DMI) or /sys/hypervisor may name one, and
//! nothing tells that there is none.

use asmp_host::Kernel;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub kernel: String,
    pub kernel_version: String,
    /// Where the kernel has no name of it (arm64), the numbers of its designer and of its part.
    pub cpu_model: String,
    pub online_cpus: String,
    pub boot_parameters: String,
    /// It is a guest, whose times are not those of real hardware. `None`: not known.
    pub hypervisor: Option<bool>,
}

impl Machine {
    pub fn read(kernel: &dyn Kernel) -> Self {
        let text = |path: &str| kernel.text(Path::new(path)).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let signs = Signs {
            cpuinfo: &cpuinfo,
            hypervisor: &text("/sys/hypervisor/type"),
            has_hypervisor_node: kernel.exists(Path::new("/proc/device-tree/hypervisor")),
            compatible: &text("/proc/device-tree/compatible"),
            vendor: &text("/sys/class/dmi/id/sys_vendor"),
        };
        Self {
            kernel: text("/proc/sys/kernel/osrelease"),
            kernel_version: text("/proc/sys/kernel/version"),
            cpu_model: cpu_model(&cpuinfo),
            online_cpus: text("/sys/devices/system/cpu/online"),
            boot_parameters: text("/proc/cmdline"),
            hypervisor: is_guest(&signs),
        }
    }
}

/// Values of a field of /proc/cpuinfo, one a CPU that has it.
fn values<'a>(cpuinfo: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields.filter(move |(field, _)| field.trim() == name).map(|(_, value)| value.trim())
}

/// Empty where the kernel says nothing of it.
fn cpu_model(cpuinfo: &str) -> String {
    let first = |name| values(cpuinfo, name).next();
    if let Some(name) = first("model name").or_else(|| first("uarch")) {
        return name.to_owned();
    }
    let Some(designer) = first("CPU implementer") else { return String::new() };
    // Large and small CPUs are different parts.
    let mut parts: Vec<&str> = values(cpuinfo, "CPU part").collect();
    parts.sort_unstable();
    parts.dedup();
    format!("implementer {designer}, part {}", parts.join(" and "))
}

/// Texts that may tell of a hypervisor; empty where there is no such file.
#[derive(Debug, Clone, Copy, Default)]
struct Signs<'a> {
    cpuinfo: &'a str,
    /// Its type.
    hypervisor: &'a str,
    /// The device tree has a node of that name.
    has_hypervisor_node: bool,
    /// Names of the machine in the device tree, each ended by a zero byte.
    compatible: &'a str,
    /// Who made the machine, as its firmware says.
    vendor: &'a str,
}

/// Machines of device trees that only hypervisors and emulators have.
const VIRTUAL: [&str; 3] = ["linux,dummy-virt", "riscv-virtio", "qemu"];
/// How vendors of virtual machines begin.
const VENDORS: [&str; 10] = [
    "QEMU",
    "KVM",
    "VMware",
    "Xen",
    "innotek",
    "Bochs",
    "Parallels",
    "BHYVE",
    "OpenStack",
    "Apple Virtualization",
];

/// `None` where neither is known.
fn is_guest(signs: &Signs) -> Option<bool> {
    let is_virtual = |name: &str| VIRTUAL.iter().any(|one| name.contains(one));
    let is_named = !signs.hypervisor.is_empty()
        || signs.has_hypervisor_node
        || signs.compatible.split('\0').any(is_virtual)
        || VENDORS.iter().any(|vendor| signs.vendor.starts_with(vendor));
    let flags = values(signs.cpuinfo, "flags").next();
    let by_flags = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    if is_named { Some(true) } else { by_flags }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t\t: fpu hypervisor\n";
    const ARM: &str = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\
                       CPU part\t: 0xd08\n\nprocessor\t: 1\nCPU implementer\t: 0x41\n\
                       CPU part\t: 0xd03\n\nprocessor\t: 2\nCPU implementer\t: 0x41\n\
                       CPU part\t: 0xd08\n";
    const RISC: &str = "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74\n";

    #[test]
    fn a_cpu_has_its_name_or_the_numbers_of_its_part() {
        assert_eq!(cpu_model(X86), "Some CPU @ 3 GHz");
        assert_eq!(cpu_model(ARM), "implementer 0x41, part 0xd03 and 0xd08");
        assert_eq!(cpu_model(RISC), "sifive,u74");
        assert_eq!(cpu_model("processor\t: 0\n"), "");
    }

    #[test]
    fn a_guest_of_each_architecture_is_known_by_what_that_has() {
        let none = Signs::default();
        let machine = X86.replace(" hypervisor", "");
        for (signs, guest) in [
            (Signs { cpuinfo: X86, ..none }, Some(true)),
            (Signs { cpuinfo: &machine, ..none }, Some(false)),
            (Signs { cpuinfo: &machine, vendor: "Dell Inc.", ..none }, Some(false)),
            (Signs { cpuinfo: &machine, vendor: "QEMU", ..none }, Some(true)),
            (Signs { cpuinfo: ARM, compatible: "linux,dummy-virt\0", ..none }, Some(true)),
            (Signs { cpuinfo: ARM, vendor: "QEMU", ..none }, Some(true)),
            (Signs { cpuinfo: ARM, has_hypervisor_node: true, ..none }, Some(true)),
            (Signs { cpuinfo: ARM, hypervisor: "xen", ..none }, Some(true)),
            (Signs { cpuinfo: RISC, compatible: "riscv-virtio\0", ..none }, Some(true)),
            // Nothing names a hypervisor; that there is none, nothing says either.
            (Signs { cpuinfo: ARM, compatible: "raspberrypi,4-model-b\0", ..none }, None),
            (Signs { cpuinfo: RISC, ..none }, None),
            (none, None),
        ] {
            assert_eq!(is_guest(&signs), guest, "{signs:?}");
        }
    }

    #[test]
    fn runs_of_older_versions_say_yes_or_no_and_later_ones_also_neither() {
        let of = |word: &str| {
            let text = format!(
                "{{\"kernel\":\"\",\"kernel_version\":\"\",\"cpu_model\":\"\",\
                 \"online_cpus\":\"\",\"boot_parameters\":\"\",\"hypervisor\":{word}}}"
            );
            serde_json::from_str::<Machine>(&text).unwrap().hypervisor
        };
        assert_eq!([of("true"), of("false"), of("null")], [Some(true), Some(false), None]);
    }
}
