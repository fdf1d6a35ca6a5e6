// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs of the memory threads of a node: the kernel gives them those that come online.

use crate::fixture::{Fake, REPAIR, create, destroy, set};
use crate::request::Request;
use asmp_host::Kernel;

/// The kernel gives kcompactd0 the online CPUs of its node, and CPU 3 comes online while `a` lives.
#[test]
fn a_kernel_thread_noted_while_a_cpu_was_offline_keeps_that_cpu() {
    let fake = Fake::isolcpus();
    // A partition that comes and goes narrows it to what is online.
    fake.kernel.set_online(3, false);
    fake.ask(&create("a", "2")).unwrap();
    fake.ask(&destroy("a")).unwrap();
    fake.kernel.edit(30, |task| task.affinity = Some(set("0-2")));
    fake.kernel.set_node(0, "0-2");
    fake.ask(&create("a", "2")).unwrap();
    fake.kernel.set_node(0, "0-3");
    fake.kernel.set_online(3, true);
    assert_eq!(fake.ask(&destroy("a")).unwrap().left, []);
    fake.is_untouched("CPU 3 came online beside the partition");
}

/// CPU 2 comes online beside the partition, which moves to it, and goes offline with it. The mask
/// that was set bounds what the kernel gives kcompactd0 with both CPUs later.
#[test]
fn a_memory_thread_whose_mask_was_set_gets_cpus_that_come_online_after_the_end() {
    let fake = Fake::isolcpus();
    let online = |node: &str, cpu: u32, on: bool| {
        fake.kernel.set_node(0, node);
        fake.kernel.set_online(cpu, on);
    };
    online("0-2", 3, false);
    online("0-1", 2, false);
    fake.kernel.edit(30, |task| task.affinity = Some(set("0-1")));
    fake.ask(&create("a", "1")).unwrap();
    online("0-2", 2, true);
    let resize = Request::Resize { name: "a".into(), cpus: "2".parse().unwrap() };
    fake.ask(&resize).unwrap();
    // 6.12 lets it out with a CPU that comes online.
    fake.kernel.edit(30, |task| task.affinity = Some(set("0-2")));
    fake.ask(&REPAIR).unwrap();
    assert_eq!(fake.kernel.allowed(30).unwrap(), set("0-1"));
    online("0-1", 2, false);
    fake.ask(&destroy("a")).unwrap();
    online("0-2", 2, true);
    online("0-3", 3, true);
    fake.ask(&REPAIR).unwrap();
    assert_eq!(fake.kernel.allowed(30).unwrap(), set("0-3"));
    fake.is_untouched("both CPUs came online after the end");
}

/// The same CPU stays offline: nothing set the mask of kcompactd0, and it is left as it is.
#[test]
fn a_memory_thread_whose_mask_was_not_set_keeps_its_mask() {
    let fake = Fake::isolcpus();
    fake.kernel.set_online(3, false);
    fake.kernel.edit(30, |task| task.affinity = Some(set("0-2")));
    fake.kernel.set_node(0, "0-2");
    fake.ask(&create("b", "1")).unwrap();
    fake.kernel.edit(30, |task| task.affinity = Some(set("0-2")));
    assert_eq!(fake.ask(&destroy("b")).unwrap().left, []);
    assert_eq!(fake.kernel.allowed(30).unwrap(), set("0-2"));
}

/// A mask that was set bounds what the kernel gives kcompactd0 with a CPU that comes online: beside
/// a partition, or after all is given back.
#[test]
fn a_memory_thread_gets_a_cpu_that_was_offline_before_the_first_partition() {
    for is_back_before in [true, false] {
        let fake = Fake::isolcpus();
        fake.kernel.set_online(3, false);
        fake.kernel.edit(30, |task| task.affinity = Some(set("0-2")));
        fake.kernel.set_node(0, "0-2");
        fake.ask(&create("b", "1")).unwrap();
        fake.kernel.set_affinity(30, &set("0,2")).unwrap();
        let online = || {
            fake.kernel.set_node(0, "0-3");
            fake.kernel.set_online(3, true);
        };
        if is_back_before {
            online();
        }
        assert_eq!(fake.ask(&destroy("b")).unwrap().left, []);
        if !is_back_before {
            online();
        }
        fake.is_untouched(&format!("CPU 3 came online before the end: {is_back_before}"));
    }
}
