// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where CPUs and devices are: NUMA nodes, last-level caches, the CPUs near a device or IRQ line.
//! Read only where somebody asks for CPUs near something.
//!
//! Sources: ABI/stable/sysfs-devices-node, ABI/testing/sysfs-devices-system-cpu ("cache"),
//! ABI/testing/sysfs-bus-pci ("local_cpulist"), core-api/irq/irq-affinity.rst.

use crate::cpuset::{Cpu, CpuSet};
use crate::irq::{self, Irq};
use crate::kernel::Kernel;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";
const PCI: &str = "/sys/bus/pci/devices";

/// Classes whose members lead to a device by their link `device`.
const CLASSES: [(&str, &str); 2] =
    [("network interfaces", "/sys/class/net"), ("block devices", "/sys/block")];

/// Directories above a device's own that are looked at; a disk lies six below its PCI device.
const MOST_ABOVE: usize = 8;

/// Names of each kind that a message lists.
const MOST_NAMES: usize = 8;

/// Groups of CPUs. What a machine does not show is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// CPUs of each NUMA node.
    pub nodes: BTreeMap<u32, CpuSet>,
    /// Sets of CPUs that share a last-level cache; they do not overlap.
    pub caches: Vec<CpuSet>,
}

impl Topology {
    pub fn read(kernel: &dyn Kernel, online: &CpuSet) -> Self {
        let names = kernel.list(Path::new(NODES)).unwrap_or_default();
        let nodes = names.iter().filter_map(|name| {
            let node = name.strip_prefix("node")?.parse().ok()?;
            Some((node, list(kernel, &Path::new(NODES).join(name).join("cpulist"))?))
        });
        let (mut caches, mut seen) = (Vec::new(), CpuSet::new());
        for cpu in online.iter() {
            if seen.contains(cpu) {
                continue;
            }
            // A kernel that shows no cache of one CPU shows none at all.
            let Some(sharing) = last_level_cache(kernel, cpu) else { break };
            let sharing = sharing.difference(&seen);
            seen = seen.union(&sharing);
            caches.push(sharing);
        }
        Self { nodes: nodes.collect(), caches }
    }

    pub fn node_of(&self, cpu: Cpu) -> Option<u32> {
        self.nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node)
    }

    /// All CPUs that share a last-level cache with one of `cpus`, these included.
    fn around(&self, cpus: &CpuSet) -> CpuSet {
        let sharing = self.caches.iter().filter(|cache| cache.intersects(cpus));
        sharing.fold(cpus.clone(), |all, cache| all.union(cache))
    }
}

/// The CPUs that share the last-level cache of `cpu`: that with the highest index.
fn last_level_cache(kernel: &dyn Kernel, cpu: Cpu) -> Option<CpuSet> {
    let dir = PathBuf::from(format!("{CPUS}/cpu{cpu}/cache"));
    let of = |index| list(kernel, &dir.join(format!("index{index}/shared_cpu_list")));
    (0..=4).rev().find_map(of).filter(|cpus| cpus.contains(cpu))
}

fn list(kernel: &dyn Kernel, path: &Path) -> Option<CpuSet> {
    kernel.text(path).ok()?.trim().parse().ok()
}

/// A device, an IRQ line or a NUMA node, with the CPUs near it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// `eth1`, `IRQ 24 (eth0)`, `node 1`.
    pub what: String,
    pub cpus: CpuSet,
}

/// Why a name is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// The machine has nothing of this name; holds the names that it knows.
    Unknown { known: String },
    /// It is there, but no hardware is behind it (`lo`, `dm-0`).
    Virtual,
}

/// The place that a name means: `node1`, the number of an IRQ line, a network interface, a PCI
/// address, a block device, or the name of an IRQ handler, in this order.
pub fn find(
    kernel: &dyn Kernel,
    topology: &Topology,
    irqs: &[Irq],
    name: &str,
) -> Result<Place, NoPlace> {
    let unknown = || NoPlace::Unknown { known: known(kernel, topology) };
    let node = name.strip_prefix("node").and_then(|number| number.parse().ok());
    if let Some((node, cpus)) = node.and_then(|node| topology.nodes.get_key_value(&node)) {
        return Ok(Place { what: format!("node {node}"), cpus: cpus.clone() });
    }
    if !name.bytes().all(|byte| byte.is_ascii_digit())
        && !name.contains('/')
        && !name.starts_with('.')
    {
        for (_, class) in CLASSES {
            let entry = Path::new(class).join(name);
            if kernel.exists(&entry) {
                let cpus = near_device(kernel, &entry.join("device")).ok_or(NoPlace::Virtual)?;
                return Ok(Place { what: name.to_owned(), cpus });
            }
        }
        for address in [name.to_owned(), format!("0000:{name}")] {
            let device = Path::new(PCI).join(&address);
            if let Some(cpus) = list(kernel, &device.join("local_cpulist")) {
                return Ok(Place { what: address, cpus });
            }
        }
    }
    let lines: Vec<&Irq> = irqs.iter().filter(|irq| !irq.per_cpu && irq.is_called(name)).collect();
    let near = lines.iter().map(|irq| near_irq(kernel, topology, irq));
    let cpus = near.fold(CpuSet::new(), |all, cpus| all.union(&cpus));
    match lines.as_slice() {
        [] => Err(unknown()),
        [irq] => Ok(Place { what: format!("IRQ {}", irq.label()), cpus }),
        lines => Ok(Place { what: format!("the {} IRQ lines of {name}", lines.len()), cpus }),
    }
}

/// The CPUs near a device: as it says, or as the device says on which it is.
fn near_device(kernel: &dyn Kernel, device: &Path) -> Option<CpuSet> {
    // `..` below the link `device` is the directory above the device itself.
    let mut dir = device.to_owned();
    (0..MOST_ABOVE).find_map(|_| {
        let found = list(kernel, &dir.join("local_cpulist"));
        dir.push("..");
        found.filter(|cpus| !cpus.is_empty())
    })
}

/// The CPUs near an IRQ line: those of its NUMA node. Without one, those that get it now, and those
/// that share their cache.
fn near_irq(kernel: &dyn Kernel, topology: &Topology, irq: &Irq) -> CpuSet {
    let node = kernel.text(Path::new(&format!("/proc/irq/{}/node", irq.number))).ok();
    // -1: it is on no node.
    let node: Option<u32> = node.and_then(|text| text.trim().parse().ok());
    match node.and_then(|node| topology.nodes.get(&node)) {
        Some(cpus) => cpus.clone(),
        None => {
            let effective = irq::effective(kernel, irq.number).filter(|cpus| !cpus.is_empty());
            topology.around(effective.as_ref().unwrap_or(&irq.affinity))
        }
    }
}

/// What there is, for a message.
fn known(kernel: &dyn Kernel, topology: &Topology) -> String {
    let mut kinds = Vec::new();
    let mut say = |kind: &str, names: Vec<String>| {
        let more = if names.len() > MOST_NAMES { ", …" } else { "" };
        let names: Vec<String> = names.into_iter().take(MOST_NAMES).collect();
        if !names.is_empty() {
            kinds.push(format!("{kind} {}{more}", names.join(", ")));
        }
    };
    say("nodes", topology.nodes.keys().map(|node| format!("node{node}")).collect());
    for (kind, class) in CLASSES {
        let names = kernel.list(Path::new(class)).unwrap_or_default();
        let is_real = |name: &String| kernel.exists(&Path::new(class).join(name).join("device"));
        say(kind, names.into_iter().filter(is_real).collect());
    }
    kinds.push("the addresses that lspci -D prints".to_owned());
    kinds.push("numbers and handlers of /proc/interrupts".to_owned());
    kinds.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    fn two_nodes() -> Vec<(&'static str, &'static str)> {
        vec![
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
            ("sys/devices/system/node/possible", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-3\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list", "0\n"),
            ("sys/devices/system/cpu/cpu4/cache/index2/shared_cpu_list", "4-5\n"),
            ("sys/devices/system/cpu/cpu6/cache/index2/shared_cpu_list", "6-7\n"),
            ("sys/devices/pci0000:00/0000:00:04.0/local_cpulist", "4-7\n"),
            ("sys/devices/pci0000:00/0000:00:04.0/virtio3/uevent", "\n"),
            ("sys/class/net/lo/mtu", "65536\n"),
            ("sys/class/net/eth1/mtu", "1500\n"),
            ("sys/block/vda/size", "1\n"),
            ("proc/irq/24/node", "1\n"),
            ("proc/irq/25/node", "-1\n"),
            ("proc/irq/25/effective_affinity_list", "4\n"),
        ]
    }

    fn line(number: u32, name: &str) -> Irq {
        let actions = vec![name.to_owned()];
        let (affinity, affinity_text) = (CpuSet::new(), String::new());
        Irq { number, actions, per_cpu: false, affinity, affinity_text }
    }

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn nodes_and_caches_are_read() {
        let (_root, linux) = machine(&two_nodes());
        let read = Topology::read(&linux, &cpus("0-7"));
        assert_eq!(read.nodes, BTreeMap::from([(0, cpus("0-3")), (1, cpus("4-7"))]));
        assert_eq!(read.caches, [cpus("0-3"), cpus("4-5"), cpus("6-7")]);
        assert_eq!((read.node_of(5), read.node_of(9)), (Some(1), None));
        let (_root, linux) = machine(&[]);
        assert_eq!(Topology::read(&linux, &cpus("0-7")), Topology::default());
    }

    #[test]
    fn a_name_means_a_node_a_line_or_a_device() {
        let (root, linux) = machine(&two_nodes());
        // As sysfs has it: a link to a device that lies below the one on the bus.
        let bus = root.path().join("sys/bus/pci/devices");
        std::fs::create_dir_all(&bus).unwrap();
        let pci = root.path().join("sys/devices/pci0000:00/0000:00:04.0");
        std::os::unix::fs::symlink(&pci, bus.join("0000:00:04.0")).unwrap();
        for entry in ["class/net/eth1", "block/vda"] {
            let link = root.path().join("sys").join(entry).join("device");
            std::os::unix::fs::symlink(pci.join("virtio3"), link).unwrap();
        }
        let topology = Topology::read(&linux, &cpus("0-7"));
        let lines = [line(24, "ahci"), line(25, "serial"), line(26, "ahci-1")];
        let near = |name: &str| find(&linux, &topology, &lines, name);
        for (name, what, near_cpus) in [
            ("node1", "node 1", "4-7"),
            ("eth1", "eth1", "4-7"),
            ("vda", "vda", "4-7"),
            ("0000:00:04.0", "0000:00:04.0", "4-7"),
            ("00:04.0", "0000:00:04.0", "4-7"),
            ("24", "IRQ 24 (ahci)", "4-7"),
            ("25", "IRQ 25 (serial)", "4-5"),
            ("serial", "IRQ 25 (serial)", "4-5"),
            ("ahci", "the 2 IRQ lines of ahci", "4-7"),
        ] {
            let place = Place { what: what.to_owned(), cpus: cpus(near_cpus) };
            assert_eq!(near(name), Ok(place), "{name}");
        }
        assert_eq!(near("lo"), Err(NoPlace::Virtual));
        for name in ["node2", "eth7", "27", "", "..", ".", "eth1/device", "../net/eth1"] {
            let Err(NoPlace::Unknown { known }) = near(name) else { panic!("{name}") };
            assert!(known.starts_with("nodes node0, node1; network interfaces eth1; block"));
        }
    }
}
