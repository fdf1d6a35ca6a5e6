// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt lines that come and go beside partitions: IRQ 24 is `eth0`, IRQ 25 a managed one.

use crate::fixture::{Fake, REPAIR, RESTORE, add, create, destroy};
use crate::request::{Request, Spec};
use crate::shield::ChangeError;
use asmp_host::fake::Fault;

const LINE: &str = "/proc/irq/24/smp_affinity_list";

impl Fake {
    /// Another device has the number of a line that is called so.
    fn replace(&self, name: &str, by: &str) {
        let interrupts = self.text("/proc/interrupts").replace(name, by);
        self.kernel.set_file("/proc/interrupts", &interrupts);
    }

    /// What each violation begins with.
    fn named(&self) -> Vec<String> {
        let status = self.status();
        let all = status.partitions.iter().flat_map(|partition| &partition.violations);
        all.map(|one| one.what.split(':').next().unwrap_or_default().to_owned()).collect()
    }

    /// With partition `a` on CPU 3, which has the line of eth0.
    fn with_eth0_inside() -> Self {
        let spec = Spec { irqs: vec!["eth0".into()], ..Spec::of("3".parse().unwrap()) };
        Self::after(&[Request::Create { name: "a".into(), spec }])
    }
}

#[test]
fn a_line_that_is_not_there_is_answered_with_what_has_its_name() {
    let fake = Fake::with_app();
    fake.kernel.set_file("/sys/class/net/net7/device/msi_irqs/24", "msix");
    fake.kernel.set_file("/sys/class/net/net8/device/irq", "0");
    for (name, says) in [
        ("LOC", "each CPU has IRQ LOC for itself: it cannot move; choose a device's line"),
        (
            "net7",
            "no IRQ net7: use a number or a handler's name from /proc/interrupts; device \
                  net7 uses IRQ 24 (eth0)",
        ),
        ("net8", "no IRQ net8: use a number or a handler's name from /proc/interrupts"),
        ("99", "no IRQ 99: use a number or a handler's name from /proc/interrupts"),
    ] {
        let spec = Spec { irqs: vec![name.into()], ..Spec::of("3".parse().unwrap()) };
        let error = fake.ask(&Request::Create { name: "a".into(), spec }).unwrap_err();
        assert_eq!(error.to_string(), says);
    }
}

#[test]
fn the_line_of_another_device_is_not_steered_into_a_partition() {
    let fake = Fake::with_eth0_inside();
    assert_eq!(fake.text(LINE), "3");
    fake.replace("eth0", "nvme0q1");
    fake.kernel.set_file(LINE, "0-1");
    fake.done(&REPAIR);
    assert_eq!(fake.text(LINE), "0-1");
    assert!(fake.state().partitions[0].irqs.is_empty());
    fake.done(&RESTORE);
    assert_eq!(fake.text(LINE), "0-1");
}

#[test]
fn a_line_whose_handler_has_another_name_is_of_the_same_device() {
    let fake = Fake::with_app();
    for (file, text) in [("chip_name", "PCI-MSIX-0000:00:03.0"), ("hwirq", "1")] {
        fake.kernel.set_file(&format!("/sys/kernel/irq/24/{file}"), text);
    }
    let spec = Spec { irqs: vec!["eth0".into()], ..Spec::of("3".parse().unwrap()) };
    fake.done(&Request::Create { name: "a".into(), spec });
    fake.replace("eth0", "enp0s3");
    fake.done(&REPAIR);
    assert_eq!((fake.text(LINE).as_str(), &fake.state().partitions[0].irqs[..]), ("3", &[24][..]));
    fake.done(&RESTORE);
    assert_eq!(fake.text(LINE), "0-3");
}

#[test]
fn another_device_does_not_get_the_original_of_a_number() {
    let fake = Fake::with_app();
    fake.kernel.set_file(LINE, "3");
    fake.done(&create("a", "3"));
    fake.replace("eth0", "nvme0q1");
    fake.kernel.set_file(LINE, "0-1");
    fake.done(&destroy("a"));
    assert_eq!(fake.text(LINE), "0-1");
}

#[test]
fn a_number_that_refused_is_judged_anew_for_another_device() {
    let fake = Fake::after(&[create("a", "3")]);
    fake.kernel.unmanage(25);
    fake.replace("virtio0-req.1", "eth7");
    fake.kernel.set_file("/proc/irq/25/smp_affinity_list", "3");
    fake.kernel.set_file("/proc/irq/25/effective_affinity_list", "3");
    assert!(!fake.status().holds());
    fake.done(&REPAIR);
    assert!(fake.status().holds());
}

#[test]
fn a_line_that_came_beside_a_partition_gets_the_cpus_that_it_would_have_had() {
    let fake = Fake::after(&[create("a", "3")]);
    fake.kernel.set_file("/proc/irq/26/smp_affinity_list", "0-2");
    // Its driver, or its user, has chosen.
    fake.kernel.set_file("/proc/irq/27/smp_affinity_list", "1");
    fake.done(&create("b", "2"));
    assert_eq!(fake.text("/proc/irq/26/smp_affinity_list"), "0-1");
    fake.done(&destroy("b"));
    assert_eq!(fake.text("/proc/irq/26/smp_affinity_list"), "0-2");
    fake.done(&RESTORE);
    assert_eq!(fake.text("/proc/irq/26/smp_affinity_list"), "0-3");
    assert_eq!(fake.text("/proc/irq/27/smp_affinity_list"), "1");
    assert!(fake.state().owes_nothing());
}

#[test]
fn a_line_whose_driver_was_loaded_again_gets_its_cpus_back() {
    let fake = Fake::with_app();
    fake.done(&create("a", "3"));
    fake.kernel.remove_file(LINE);
    fake.done(&add("a", 200));
    fake.kernel.set_file(LINE, "0-2");
    fake.restored("after a driver was loaded again");
}

#[test]
fn a_line_waits_for_the_cpu_of_its_partition_to_come_online() {
    let fake = Fake::with_eth0_inside();
    fake.kernel.set_online(3, false);
    // The kernel gave it other CPUs when the last of its own went.
    fake.kernel.set_file(LINE, "0-2");
    fake.done(&REPAIR);
    assert!(!fake.status().holds());
    assert_eq!(fake.text(LINE), "0-2");
    fake.kernel.set_online(3, true);
    fake.done(&REPAIR);
    assert_eq!(fake.text(LINE), "3");
    assert!(fake.status().holds());
    fake.restored("after its CPU went and came");
}

/// A line of CPU 3 alone, which is offline when the partition ends.
#[test]
fn a_line_that_cannot_go_back_to_an_offline_cpu_stays_off_shielded_ones() {
    let fake = Fake::with_app();
    fake.kernel.set_file(LINE, "3");
    fake.done(&create("a", "3"));
    fake.kernel.set_online(3, false);
    let left = fake.done(&destroy("a")).left;
    let words = format!("{LINE} (was \"3\"): CPU 3 is offline");
    assert!(left.iter().any(|left| left.to_string() == words), "{left:?}");
    // Another program spreads it.
    fake.kernel.set_file(LINE, "0-2");
    fake.done(&create("b", "2"));
    assert_eq!(fake.text(LINE), "0-1");
    fake.kernel.set_file(LINE, "0-2");
    assert_eq!(fake.named(), [LINE]);
    fake.done(&REPAIR);
    assert_eq!(fake.text(LINE), "0-1");
    fake.kernel.set_online(3, true);
    fake.done(&REPAIR);
    assert_eq!(fake.text(LINE), "3");
    assert!(fake.status().holds());
    fake.done(&destroy("b"));
    assert!(fake.state().owes_nothing());
}

#[test]
fn a_line_that_was_not_given_back_violates_the_partition_whose_cpus_it_names() {
    let fake = Fake::with_app();
    fake.kernel.set_file(LINE, "3");
    fake.done(&create("a", "3"));
    fake.kernel.arm(Some(Fault::Hold { below: "/proc/irq/24", errno: libc::EIO }));
    fake.done(&destroy("a"));
    fake.done(&create("b", "2"));
    fake.kernel.set_file(LINE, "0-2");
    assert_eq!(fake.named(), [LINE]);
    fake.kernel.arm(None);
    fake.done(&REPAIR);
    assert_eq!(fake.text(LINE), "3");
    assert!(fake.status().holds());
}

#[test]
fn a_line_of_another_partition_that_is_sent_here_is_a_violation_here_too() {
    let fake = Fake::with_eth0_inside();
    fake.done(&create("b", "2"));
    assert!(fake.status().holds());
    fake.kernel.set_file(LINE, "0-3");
    let names: Vec<_> = fake.status().partitions.into_iter().filter(|one| !one.shielded).collect();
    assert_eq!(names.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    fake.done(&Request::Repair { name: Some("b".into()) });
    assert_eq!(fake.text(LINE), "3");
    assert!(fake.status().holds());
}

/// A managed line refuses in one change; in the next its CPU joins another partition.
#[test]
fn a_line_that_refused_before_is_judged_again_where_its_cpu_joins_a_partition() {
    let fake = Fake::with_app();
    let dir = "/proc/irq/25";
    fake.kernel.set_file(&format!("{dir}/smp_affinity_list"), "2-3");
    fake.kernel.set_file(&format!("{dir}/effective_affinity_list"), "2");
    fake.done(&create("a", "3"));
    let spec = Spec { strict: true, ..Spec::of("2".parse().unwrap()) };
    let answer = fake.ask(&Request::Create { name: "b".into(), spec });
    let Err(ChangeError::Strict { refused }) = answer else { panic!("{answer:?}") };
    assert!(refused[0].path.starts_with(dir), "{refused:?}");
    let refused = fake.done(&create("b", "2")).refused;
    assert!(refused.iter().any(|one| one.path.starts_with(dir) && one.disturbs), "{refused:?}");
}

/// As virtio_net does: a line of its queues names the CPUs that are online.
#[test]
fn a_line_that_a_driver_keeps_on_all_online_cpus_gets_those_that_were_offline_before() {
    for comes_before_the_end in [true, false] {
        let fake = Fake::with_app();
        let hotplug = |online: bool, text: &str| {
            fake.kernel.set_online(2, online);
            fake.kernel.set_file(LINE, text);
        };
        hotplug(false, "0-1,3");
        fake.done(&create("a", "3"));
        if comes_before_the_end {
            hotplug(true, "0-3");
        }
        fake.done(&destroy("a"));
        if !comes_before_the_end {
            assert_eq!(fake.text(LINE), "0-1,3");
            hotplug(true, "0-3");
        }
        fake.is_untouched("CPU 2 came online");
    }
}

/// Where somebody chose CPUs, or the driver does not follow, none is added.
#[test]
fn a_line_that_its_driver_leaves_alone_gets_no_cpu_that_came_online() {
    for (before, beside) in [("0,3", "0,2"), ("0-1,3", "0-1")] {
        let fake = Fake::with_app();
        fake.kernel.set_online(2, false);
        fake.kernel.set_file(LINE, before);
        fake.done(&create("a", "3"));
        fake.kernel.set_online(2, true);
        if before == "0,3" {
            fake.kernel.set_file(LINE, beside);
        }
        fake.done(&destroy("a"));
        assert_eq!(fake.text(LINE), before);
    }
}
