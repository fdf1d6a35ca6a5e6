// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `asmp check` says on kernels and machines of several kinds.

use super::*;
use crate::partition::{Refusal, State, System, Tick};
use crate::plan::{Base, plan};
use crate::request::{Caller, Spec};
use crate::rules::{Wish, check_machine, create};
use asmp_host::CpuSpec;
use asmp_host::fake::FakeKernel;

/// The fake: 6.12, four CPUs, candidates 1-3.
pub(super) fn machine() -> Facts {
    Facts::read(&FakeKernel::new()).unwrap()
}

fn found<'a>(items: &'a [Item], what: &str) -> &'a Item {
    items.iter().find(|item| item.what.contains(what)).unwrap()
}

fn diagnosed(facts: &Facts) -> Vec<Item> {
    diagnose(facts, &Observed::new(), false)
}

fn wish(tick: Tick) -> Wish {
    let caller = Caller { time_s: 0, ..Caller::now(0, "root", "test") };
    let cpus: CpuSpec = "3".parse().unwrap();
    let spec = Spec { tick, ..Spec::of(cpus.clone()) };
    Wish::new("a", cpus, &spec, &caller, None)
}

/// What a plan of one partition says cannot be done here, with the cures.
fn cannot(facts: &Facts) -> String {
    let after = create(facts, &State::default(), &wish(Tick::Off)).unwrap();
    let base = Base::of(facts).unwrap();
    let cannot = plan(facts, &base, &State::default(), after, System::default()).cannot;
    cannot.iter().map(|one| format!("{}: {}\n", one.what, one.cure)).collect()
}

fn without_servers(mut facts: Facts) -> Facts {
    facts.settings.retain(|path, _| !path.starts_with("/sys/kernel/debug"));
    facts
}

#[test]
fn what_keeps_a_machine_from_sharing_cpus_is_named_with_its_cure() {
    let kernel = FakeKernel::new();
    let shares = || {
        let facts = Facts::read(&kernel).unwrap();
        let items = diagnosed(&facts);
        let item = found(&items, "shared partitions");
        (item.verdict, item.found.clone(), item.cure.clone())
    };
    let (verdict, said, cure) = shares();
    assert_eq!(verdict, Verdict::Optional);
    assert_eq!(said, "only as best effort: this kernel has no sched_ext");
    assert!(cure.contains("CONFIG_SCHED_CLASS_EXT"), "{cure}");
    kernel.can_share();
    assert_eq!(shares(), (Verdict::Ok, "with the guarantee: CPU 1-3".into(), String::new()));
    kernel.set_file("/sys/devices/system/cpu/nohz_full", "(null)");
    let (_, said, cure) = shares();
    assert!(said.contains("CPU 1-3 is not in nohz_full="), "{said}");
    assert!(cure.contains("nohz_full=1-3 rcu_nocbs=1-3"), "{cure}");
}

#[test]
fn inside_a_container_check_and_create_say_run_it_on_the_host() {
    let mut facts = machine();
    assert_eq!(found(&diagnosed(&facts), "own cgroup tree").verdict, Verdict::Ok);
    facts.cgroups.isolated = None;
    let items = diagnosed(&facts);
    let item = found(&items, "own cgroup tree");
    assert_eq!((item.verdict, item.cure.as_str()), (Verdict::Missing, "run asmp on the host"));
    let refusal = check_machine(&facts).unwrap_err();
    assert_eq!(refusal, Refusal::InContainer);
    assert!(refusal.to_string().contains("run asmp on the host"));
    // 6.7 has partitions, and this file nowhere.
    facts.release = "6.7.9".into();
    assert!(check_machine(&facts).is_ok());
}

#[test]
fn a_group_in_place_of_the_root_is_a_container_on_every_kernel() {
    for (release, controllers) in [("7.2.13", vec![]), ("6.7.9", vec!["cpuset".to_owned()])] {
        let mut facts = machine();
        facts.release = release.into();
        facts.cgroups.isolated = None;
        facts.cgroups.controllers = controllers;
        facts.cgroups.is_group = true;
        assert_eq!(check_machine(&facts), Err(Refusal::InContainer), "{release}");
        for item in diagnosed(&facts).iter().filter(|item| item.verdict == Verdict::Missing) {
            assert_eq!(item.cure, "run asmp on the host", "{release}: {}", item.what);
        }
    }
    // A kernel without cpusets is no container.
    let mut facts = machine();
    facts.cgroups.isolated = None;
    facts.cgroups.controllers.clear();
    assert_eq!(check_machine(&facts), Err(Refusal::NoCpuset));
    assert_eq!(found(&diagnosed(&facts), "own cgroup tree").verdict, Verdict::Ok);
    assert!(found(&diagnosed(&facts), "cpuset controller").cure.contains("CONFIG_CPUSETS"));
}

#[test]
fn a_kernel_that_cannot_stop_ticks_is_never_told_to_boot_with_candidates() {
    let mut facts = machine();
    facts.cpus.nohz_full = "".parse().unwrap();
    assert!(found(&diagnosed(&facts), "tick can stop").cure.contains("asmp boot enable"));
    assert!(cannot(&facts).contains("nohz_full=3"));
    facts.cpus.tick_can_stop = false;
    for item in diagnosed(&facts) {
        assert!(!item.cure.contains("asmp boot enable --cpus"), "{item:?}");
    }
    assert!(found(&diagnosed(&facts), "tick can stop").cure.contains("CONFIG_NO_HZ_FULL"));
    assert!(cannot(&facts).contains("CONFIG_NO_HZ_FULL") && !cannot(&facts).contains("nohz_full="));
    let refusal = create(&facts, &State::default(), &wish(Tick::RequireOff)).unwrap_err();
    assert_eq!(refusal, Refusal::TickNeverStops);
}

#[test]
fn under_lockdown_no_mount_is_advised() {
    let facts = without_servers(machine());
    assert!(found(&diagnosed(&facts), "deadline servers").cure.contains("mount -t debugfs"));
    assert!(cannot(&facts).contains("mount -t debugfs"));
    let facts = Facts { lockdown: Some("integrity".into()), ..facts };
    let items = diagnosed(&facts);
    let item = found(&items, "deadline servers");
    assert!(item.found.contains("50 ms of each second"), "{item:?}");
    for cure in [&item.cure, &cannot(&facts)] {
        assert!(cure.contains("Secure Boot") && !cure.contains("mount"), "{cure}");
    }
}

#[test]
fn where_the_boot_closed_debugfs_no_mount_is_advised() {
    let mut facts = without_servers(machine());
    facts.command_line = "quiet debugfs=off".into();
    let items = diagnosed(&facts);
    let item = found(&items, "deadline servers");
    assert!(item.found.contains("50 ms of each second"), "{item:?}");
    for cure in [&item.cure, &cannot(&facts)] {
        assert!(cure.contains("boot without debugfs=off: no mount helps"), "{cure}");
        assert!(!cure.contains("mount -t"), "{cure}");
    }
    facts.command_line = "quiet debugfs=on".into();
    assert!(cannot(&facts).contains("mount -t debugfs"));
}

#[test]
fn kernels_before_the_deadline_servers_throttle_and_say_so() {
    let mut facts = without_servers(machine());
    facts.settings.insert(knob::rt_runtime_us().path, "950000".into());
    let throttled = |facts: &Facts| found(&diagnosed(facts), "real-time throttling").verdict;
    assert_eq!(throttled(&facts), Verdict::NotApplicable, "6.12");
    assert!(!cannot(&facts).contains("sched_rt_runtime_us"));
    for release in ["6.8.0-31-generic", "6.11.0", "6.7.1"] {
        facts.release = release.into();
        assert_eq!(throttled(&facts), Verdict::Optional, "{release}");
        let says = cannot(&facts);
        assert!(says.contains("50 ms of each second"), "{says}");
        assert!(says.contains("sched_rt_runtime_us=-1 (for the whole machine"), "{says}");
        assert!(!says.contains("debugfs"), "{says}");
        assert_eq!(found(&diagnosed(&facts), "deadline servers").verdict, Verdict::NotApplicable);
    }
    facts.settings.insert(knob::rt_runtime_us().path, "-1".into());
    assert_eq!(throttled(&facts), Verdict::Ok);
    assert!(!cannot(&facts).contains("sched_rt_runtime_us"));
}

#[test]
fn packages_and_clock_sources_are_those_of_the_architecture() {
    let mut facts = machine();
    facts.preempt_rt = false;
    let cure = |facts: &Facts| found(&diagnosed(facts), "PREEMPT_RT").cure.clone();
    assert!(cure(&facts).contains("linux-image-rt-amd64"));
    facts.architecture = "aarch64".into();
    assert!(cure(&facts).contains("linux-image-rt-arm64"));
    let seen = Observed::from([(observed::CLOCK_SOURCE, "arch_sys_counter".to_owned())]);
    let items = diagnose(&facts, &seen, false);
    assert_eq!(found(&items, "clock source").verdict, Verdict::Ok);
    facts.architecture = "m68k".into();
    assert!(!cure(&facts).contains("linux-image"));
}
