// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where CPUs and devices are: NUMA nodes, last-level caches, the CPUs near a device or IRQ line.
//! Read only where somebody asks for CPUs near something.
//!
//! Sources: ABI/stable/sysfs-devices-node, ABI/testing/sysfs-devices-system-cpu ("cache"),
//! ABI/testing/sysfs-bus-pci ("local_cpulist", "numa_node"), ABI/testing/sysfs-bus-platform
//! ("numa_node"), core-api/irq/irq-affinity.rst. Other buses say nothing.

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
        Self { nodes: nodes(kernel), caches }
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

/// The CPUs of each NUMA node that are online.
pub fn nodes(kernel: &dyn Kernel) -> BTreeMap<u32, CpuSet> {
    let names = kernel.list(Path::new(NODES)).unwrap_or_default();
    let node = |name: &String| {
        let node = name.strip_prefix("node")?.parse().ok()?;
        Some((node, list(kernel, &Path::new(NODES).join(name).join("cpulist"))?))
    };
    names.iter().filter_map(node).collect()
}

/// Is a CPU on its way on or offline? Then its `state` is not its `target`
/// (core-api/cpu_hotplug.rst).
pub fn hotplug_is_under_way(kernel: &dyn Kernel) -> bool {
    let number = |cpu: Cpu, name: &str| -> Option<i32> {
        let path = PathBuf::from(format!("{CPUS}/cpu{cpu}/hotplug/{name}"));
        kernel.text(&path).ok()?.trim().parse().ok()
    };
    let present = list(kernel, &Path::new(CPUS).join("present")).unwrap_or_default();
    present.iter().any(|cpu| number(cpu, "state") != number(cpu, "target"))
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
    /// They are where an IRQ line goes now, not where hardware is: another program may move them.
    pub moves: bool,
}

/// Why a name is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// The machine has nothing of this name; holds the names that it knows.
    Unknown { known: String },
    /// It is there, but no hardware is behind it (`lo`, `dm-0`).
    Virtual,
    /// No CPU that is online is near it, as with a node of memory alone.
    NoCpus { what: String },
}

/// The place that a name means: `node1`, the number of an IRQ line, a network interface, a PCI
/// address, a block device, or the name of an IRQ handler, in this order.
pub fn find(
    kernel: &dyn Kernel,
    topology: &Topology,
    online: &CpuSet,
    irqs: &[Irq],
    name: &str,
) -> Result<Place, NoPlace> {
    let unknown = || NoPlace::Unknown { known: known(kernel, topology) };
    let node = || near_node(topology, name);
    let lines = || near_lines(kernel, topology, irqs, name);
    let place = match (node(), find_device(kernel, topology, name)) {
        (Some(place), _) => place,
        (None, Device::None) => lines().ok_or_else(unknown)?,
        (None, Device::Virtual) => return Err(NoPlace::Virtual),
        (None, Device::Near(place)) => place,
        // No bus says where it is. Its IRQ lines may.
        (None, Device::Somewhere) => lines().unwrap_or_else(|| Place {
            what: format!("{name} (where it is, is not known)"),
            cpus: online.clone(),
            moves: false,
        }),
    };
    match place.cpus.intersects(online) {
        true => Ok(place),
        false => Err(NoPlace::NoCpus { what: place.what }),
    }
}

fn near_node(topology: &Topology, name: &str) -> Option<Place> {
    let node: u32 = name.strip_prefix("node")?.parse().ok()?;
    let cpus = topology.nodes.get(&node)?.clone();
    Some(Place { what: format!("node {node}"), cpus, moves: false })
}

/// What a name is as a device.
enum Device {
    None,
    /// No hardware is behind it.
    Virtual,
    Near(Place),
    /// It is hardware and does not say where.
    Somewhere,
}

fn find_device(kernel: &dyn Kernel, topology: &Topology, name: &str) -> Device {
    if name.bytes().all(|byte| byte.is_ascii_digit()) || name.contains('/') || name.starts_with('.')
    {
        return Device::None;
    }
    let located = |what: &str, device: &Path| match near_device(kernel, topology, device) {
        Some(cpus) => Device::Near(Place { what: what.to_owned(), cpus, moves: false }),
        None => Device::Somewhere,
    };
    for (_, class) in CLASSES {
        let entry = Path::new(class).join(name);
        let device = entry.join("device");
        if kernel.exists(&device) {
            return located(name, &device);
        } else if kernel.exists(&entry) {
            return Device::Virtual;
        }
    }
    for address in [name.to_owned(), format!("0000:{name}")] {
        let device = Path::new(PCI).join(&address);
        if kernel.exists(&device) {
            return located(&address, &device);
        }
    }
    Device::None
}

/// The numbers of the IRQ lines of a network interface or block device: those of the PCI device on
/// which it is (ABI/testing/sysfs-bus-pci "msi_irqs", "irq"). Empty where no bus says it.
pub fn lines_of_device(kernel: &dyn Kernel, name: &str) -> Vec<u32> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Vec::new();
    }
    let mut devices = CLASSES.iter().map(|(_, class)| Path::new(class).join(name).join("device"));
    let Some(mut dir) = devices.find(|device| kernel.exists(device)) else {
        return Vec::new();
    };
    for _ in 0..MOST_ABOVE {
        let messages = kernel.list(&dir.join("msi_irqs")).unwrap_or_default();
        if !messages.is_empty() {
            return messages.iter().filter_map(|number| number.parse().ok()).collect();
        }
        // Each PCI device has it: the lines above are those of a bridge. 0: it has none.
        if let Ok(line) = kernel.text(&dir.join("irq")) {
            return line.trim().parse().into_iter().filter(|line| *line > 0).collect();
        }
        dir.push("..");
    }
    Vec::new()
}

/// The CPUs near a device: as it says, or as the device says on which it is.
fn near_device(kernel: &dyn Kernel, topology: &Topology, device: &Path) -> Option<CpuSet> {
    // `..` below the link `device` is the directory above the device itself.
    let mut dir = device.to_owned();
    (0..MOST_ABOVE).find_map(|_| {
        let listed = list(kernel, &dir.join("local_cpulist"));
        let found = listed.or_else(|| of_node(kernel, topology, &dir.join("numa_node")).cloned());
        dir.push("..");
        found.filter(|cpus| !cpus.is_empty())
    })
}

/// The CPUs of the node that a file names. -1: on no node.
fn of_node<'a>(kernel: &dyn Kernel, topology: &'a Topology, file: &Path) -> Option<&'a CpuSet> {
    let node: u32 = kernel.text(file).ok()?.trim().parse().ok()?;
    topology.nodes.get(&node)
}

/// All IRQ lines of this name or number; `None`: there is none.
fn near_lines(kernel: &dyn Kernel, topology: &Topology, irqs: &[Irq], name: &str) -> Option<Place> {
    let lines: Vec<&Irq> = irqs.iter().filter(|irq| !irq.per_cpu && irq.is_called(name)).collect();
    let what = match lines.as_slice() {
        [] => return None,
        [irq] => format!("IRQ {}", irq.label()),
        lines => format!("the {} IRQ lines of {name}", lines.len()),
    };
    let none = Place { what, cpus: CpuSet::new(), moves: false };
    Some(lines.iter().fold(none, |all, irq| {
        let (cpus, moves) = near_irq(kernel, topology, irq);
        Place { cpus: all.cpus.union(&cpus), moves: all.moves || moves, ..all }
    }))
}

/// The CPUs near an IRQ line: those of its NUMA node. Without one, those that get it now, and those
/// that share their cache; they move with the line.
fn near_irq(kernel: &dyn Kernel, topology: &Topology, irq: &Irq) -> (CpuSet, bool) {
    match of_node(kernel, topology, Path::new(&format!("/proc/irq/{}/node", irq.number))) {
        Some(cpus) => (cpus.clone(), false),
        None => {
            let effective = irq::effective(kernel, irq.number).filter(|cpus| !cpus.is_empty());
            (topology.around(effective.as_ref().unwrap_or(&irq.affinity)), true)
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
        let near = |name: &str| find(&linux, &topology, &cpus("0-7"), &lines, name);
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
            // Lines 25 and 26 have no node.
            let moves = what.contains("25") || name == "ahci";
            let place = Place { what: what.to_owned(), cpus: cpus(near_cpus), moves };
            assert_eq!(near(name), Ok(place), "{name}");
        }
        assert_eq!(near("lo"), Err(NoPlace::Virtual));
        for name in ["node2", "eth7", "27", "", "..", ".", "eth1/device", "../net/eth1"] {
            let Err(NoPlace::Unknown { known }) = near(name) else { panic!("{name}") };
            assert!(known.starts_with("nodes node0, node1; network interfaces eth1; block"));
        }
    }

    #[test]
    fn the_lines_of_a_device_are_those_of_its_own_pci_device() {
        let (root, linux) = machine(&[
            ("sys/devices/pci0000:00/msi_irqs/9", "msi\n"),
            ("sys/devices/pci0000:00/0000:00:04.0/irq", "10\n"),
            ("sys/devices/pci0000:00/0000:00:04.0/msi_irqs/24", "msix\n"),
            ("sys/devices/pci0000:00/0000:00:04.0/msi_irqs/25", "msix\n"),
            ("sys/devices/pci0000:00/0000:00:04.0/virtio3/uevent", "\n"),
            ("sys/devices/pci0000:00/0000:00:05.0/irq", "11\n"),
            ("sys/devices/pci0000:00/0000:00:06.0/irq", "0\n"),
            ("sys/class/net/eth1/mtu", "1500\n"),
            ("sys/class/net/eth2/mtu", "1500\n"),
            ("sys/class/net/lo/mtu", "65536\n"),
            ("sys/block/vda/size", "1\n"),
        ]);
        let bus = root.path().join("sys/devices/pci0000:00");
        for (entry, device) in [
            ("class/net/eth1", "0000:00:04.0/virtio3"),
            ("class/net/eth2", "0000:00:06.0"),
            ("block/vda", "0000:00:05.0"),
        ] {
            let link = root.path().join("sys").join(entry).join("device");
            std::os::unix::fs::symlink(bus.join(device), link).unwrap();
        }
        let lines = |name: &str| {
            let mut lines = lines_of_device(&linux, name);
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines("eth1"), [24, 25]);
        assert_eq!(lines("vda"), [11]);
        for name in ["eth2", "lo", "eth7", "", "..", "../net/eth1"] {
            assert_eq!(lines(name), [0; 0], "{name}");
        }
    }

    #[test]
    fn a_device_on_no_pci_bus_has_a_place_too() {
        let mut files = two_nodes();
        files.extend([
            ("sys/class/net/end0/device/numa_node", "1\n"),
            ("sys/class/net/end1/device/numa_node", "-1\n"),
            ("sys/class/net/end2/device/uevent", "\n"),
            ("sys/block/mmcblk0/device/uevent", "\n"),
            ("sys/class/net/br0/mtu", "1500\n"),
            ("sys/devices/platform/numa_node", "0\n"),
            ("sys/devices/platform/a003e00.virtio_mmio/numa_node", "-1\n"),
            ("sys/devices/platform/a003e00.virtio_mmio/virtio0/uevent", "\n"),
            ("sys/class/net/eth9/mtu", "1500\n"),
        ]);
        let (root, linux) = machine(&files);
        let virtio = root.path().join("sys/devices/platform/a003e00.virtio_mmio/virtio0");
        std::os::unix::fs::symlink(virtio, root.path().join("sys/class/net/eth9/device")).unwrap();
        let topology = Topology::read(&linux, &cpus("0-7"));
        let lines = [line(24, "end2"), line(25, "end1"), line(26, "br0")];
        let near = |name: &str| find(&linux, &topology, &cpus("0-7"), &lines, name);
        let unknown = "mmcblk0 (where it is, is not known)";
        for (name, what, near_cpus, moves) in [
            ("end0", "end0", "4-7", false),
            ("eth9", "eth9", "0-3", false),
            ("end1", "IRQ 25 (end1)", "4-5", true),
            ("end2", "IRQ 24 (end2)", "4-7", false),
            ("mmcblk0", unknown, "0-7", false),
        ] {
            let place = Place { what: what.to_owned(), cpus: cpus(near_cpus), moves };
            assert_eq!(near(name), Ok(place), "{name}");
        }
        assert_eq!(near("br0"), Err(NoPlace::Virtual));
    }

    #[test]
    fn what_is_near_no_cpu_is_no_place() {
        let mut files = two_nodes();
        files.push(("sys/devices/system/node/node2/cpulist", "\n"));
        let (_root, linux) = machine(&files);
        let topology = Topology::read(&linux, &cpus("0-7"));
        let near = |online, name| find(&linux, &topology, &cpus(online), &[], name);
        let none = |what: &str| Err(NoPlace::NoCpus { what: what.to_owned() });
        assert_eq!(near("0-7", "node2"), none("node 2"));
        assert_eq!(near("0-3", "node1"), none("node 1"));
    }
}
