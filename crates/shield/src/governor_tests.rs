// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One frequency governor for several CPUs, as the clusters of ARM machines have it.

use crate::fixture::{Fake, create, destroy, set};
use crate::request::Request;
use asmp_host::Kernel;
use asmp_host::fake::FakeKernel;
use std::path::Path;

/// CPU 2 and 3 share one.
fn cluster() -> Fake {
    let kernel = FakeKernel::new();
    kernel.share_governor(&set("2-3"));
    Fake::on(kernel)
}

fn governor(fake: &Fake, cpu: u32) -> String {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    fake.kernel.text(Path::new(&file)).unwrap()
}

fn is_as_promised(fake: &Fake, when: &str) {
    let status = fake.status();
    assert!(status.holds(), "{when}: {status:?}");
    assert_eq!([2, 3].map(|cpu| governor(fake, cpu)), ["performance"; 2], "{when}");
}

#[test]
fn a_shared_governor_stays_until_the_last_of_its_partitions_ends() {
    for last in ["a", "b"] {
        let fake = cluster();
        fake.done(&create("a", "2"));
        fake.done(&create("b", "3"));
        is_as_promised(&fake, "both");
        fake.done(&destroy(if last == "a" { "b" } else { "a" }));
        is_as_promised(&fake, last);
        fake.done(&destroy(last));
        assert_eq!([2, 3].map(|cpu| governor(&fake, cpu)), ["schedutil"; 2], "{last}");
        fake.is_untouched("the last partition ended");
    }
}

#[test]
fn a_partition_that_loses_one_cpu_of_a_shared_governor_keeps_it() {
    for cpus in ["2", "3"] {
        let fake = cluster();
        fake.done(&create("a", "2-3"));
        fake.done(&Request::Resize { name: "a".into(), cpus: cpus.parse().unwrap() });
        is_as_promised(&fake, cpus);
        fake.done(&destroy("a"));
        fake.is_untouched("it ended");
    }
}

#[test]
fn a_system_cpu_of_a_shared_governor_may_go_offline() {
    let fake = cluster();
    let offline = |cpu: u32, file: &str| {
        fake.kernel.set_online(cpu, file.is_empty());
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        match file {
            "" => fake.kernel.set_file(&path, &governor(&fake, 2)),
            _ => fake.kernel.remove_file(&path),
        }
    };
    fake.done(&create("a", "2"));
    offline(3, "gone");
    let status = fake.status();
    assert!(status.holds(), "{status:?}");
    assert_eq!(fake.done(&destroy("a")).left, []);
    assert_eq!(governor(&fake, 2), "schedutil");
    offline(3, "");
    fake.is_untouched("CPU 3 came online");
}
