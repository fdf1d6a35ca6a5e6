// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the system outside partitions (`Request::System`): set whole or not at all, and
//! restored to the byte, killed or refused at any step.

use crate::fixture::{Fake, create};
use crate::partition::Refusal;
use crate::partition::System;
use crate::request::{Request, Spec};
use crate::shield::{ChangeError, Patience};
use crate::verify::Finding;
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::tracefs::timerlat::{Handler, Settings};
use asmp_host::{Kernel, knob};
use std::path::Path;
use std::time::Duration;

impl Fake {
    fn with_timerlat() -> Self {
        let fake = Self::on(FakeKernel::new());
        let osnoise =
            [("options", "OSNOISE_WORKLOAD"), ("timerlat_period_us", "2000"), ("cpus", "0-3")];
        for (name, text) in osnoise {
            fake.kernel.set_file(&format!("/sys/kernel/tracing/osnoise/{name}"), text);
        }
        fake
    }
}

fn measuring() -> Request {
    Request::System(System {
        irq_home: Some("0-1".parse().unwrap()),
        timerlat: Some(Settings {
            handler: Handler::User,
            period_us: 1000,
            cpus: "3".parse().unwrap(),
        }),
    })
}

#[test]
fn timerlat_and_the_home_of_interrupts_are_set_and_restored() {
    let fake = Fake::with_timerlat();
    let untouched = fake.kernel.snapshot();
    let outcome = fake.ask(&measuring()).unwrap();
    assert!(outcome.changes >= 5, "{}", outcome.changes);
    assert_eq!(fake.text(knob::osnoise_options().path), "NO_OSNOISE_WORKLOAD");
    assert_eq!(fake.text(knob::timerlat_period_us().path), "1000");
    assert_eq!(fake.text(knob::osnoise_cpus().path), "3");
    let line = fake.kernel.text(Path::new("/proc/irq/24/smp_affinity_list")).unwrap();
    assert_eq!(line, "0-1");
    // A partition beside it comes and goes; the settings stay.
    let spec = Spec::of("3".parse().unwrap());
    fake.ask(&Request::Create { name: "a".into(), spec }).unwrap();
    fake.ask(&Request::Destroy { name: Some("a".into()), demote: false }).unwrap();
    assert_eq!(fake.text(knob::osnoise_cpus().path), "3");
    fake.ask(&Request::System(System::default())).unwrap();
    assert_eq!(fake.kernel.snapshot(), untouched);
    assert!(fake.shield.state().unwrap().originals.is_empty());
}

#[test]
fn what_a_user_may_not_read_is_not_said_to_be_violated() {
    let fake = Fake::with_timerlat();
    fake.ask(&measuring()).unwrap();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.arm(Some(Fault::Hide { below: "/sys/kernel/tracing" }));
    // For root it is one: it could read them when it wrote them.
    assert_eq!(fake.shield.status().unwrap().partitions[0].violations.len(), 3);
    fake.kernel.set_file("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000");
    let status = fake.shield.status().unwrap();
    assert!(status.holds(), "{status:?}");
    let stays = &status.partitions[0].stays;
    let is_told = |one: &Finding| one.what.ends_with(": this user may not read it: not checked");
    assert_eq!(stays.iter().filter(|one| is_told(one)).count(), 3, "{stays:?}");
    fake.kernel.set_file("/proc/self/status", "Uid:\t0\t0\t0\t0");
    fake.kernel.arm(None);
    fake.kernel.remove_file("/sys/kernel/tracing/osnoise/cpus");
    let status = fake.shield.status().unwrap();
    assert_eq!(status.partitions[0].violations.len(), 1, "the file is gone: {status:?}");
}

#[test]
fn killed_at_any_step_of_setting_or_unsetting_restore_leaves_the_machine_as_it_was() {
    let mut kills = 0;
    for unset in [false, true] {
        for at in 0.. {
            let fake = Fake::with_timerlat();
            let untouched = fake.kernel.snapshot();
            if unset {
                fake.ask(&measuring()).unwrap();
            }
            let request = if unset { Request::System(System::default()) } else { measuring() };
            let killed = fake.kill(&request, at, true);
            fake.ask(&Request::Restore { abandon: false }).unwrap();
            assert_eq!(fake.kernel.snapshot(), untouched, "unset {unset}, killed at {at}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills >= 10, "only {kills} kills");
}

#[test]
fn a_tracer_setting_that_the_kernel_refuses_undoes_the_others() {
    for at in 0..3 {
        let fake = Fake::with_timerlat();
        let untouched = fake.kernel.snapshot();
        let Request::System(System { timerlat, .. }) = measuring() else { unreachable!() };
        fake.kernel.arm(Some(Fault::Refuse { at, errno: libc::EINVAL }));
        let error = fake.ask(&Request::System(System { timerlat, irq_home: None })).unwrap_err();
        fake.kernel.arm(None);
        assert!(matches!(error, ChangeError::Undone { .. }), "{error}");
        assert_eq!(fake.kernel.snapshot(), untouched, "refused at {at}");
    }
}

#[test]
fn a_kernel_without_timerlat_refuses_the_request_and_nothing_changes() {
    let fake = Fake::on(FakeKernel::new());
    let untouched = fake.kernel.snapshot();
    let error = fake.ask(&measuring()).unwrap_err();
    assert!(matches!(error, ChangeError::Refused(Refusal::NoTimerlat)), "{error}");
    assert_eq!(fake.kernel.snapshot(), untouched);
}

const LAB: &str = "/sys/kernel/tracing/instances/lab/current_tracer";

fn tracer_settings(fake: &Fake) -> [String; 3] {
    [knob::osnoise_options(), knob::timerlat_period_us(), knob::osnoise_cpus()]
        .map(|knob| fake.text(knob.path))
}

#[test]
fn a_second_measurement_is_refused_until_the_first_has_ended() {
    let fake = Fake::with_timerlat();
    let first = fake.shield.measure_alone(true).unwrap();
    for tracer in [true, false] {
        let error = fake.shield.measure_alone(tracer).unwrap_err();
        assert!(matches!(error, ChangeError::Refused(Refusal::Measuring)), "{error}");
    }
    drop(first);
    assert!(fake.shield.measure_alone(true).is_ok());
}

#[test]
fn a_measurement_is_refused_while_another_program_uses_the_tracer() {
    let fake = Fake::with_timerlat();
    for (file, tracer) in [(LAB, "timerlat"), ("/sys/kernel/tracing/current_tracer", "osnoise")] {
        fake.kernel.set_file(file, tracer);
        let untouched = fake.kernel.snapshot();
        let refused = |error: ChangeError| {
            let is_it = matches!(&error, ChangeError::Refused(Refusal::TracerInUse { users })
                if users.starts_with(tracer));
            assert!(is_it, "{error}");
        };
        refused(fake.shield.measure_alone(true).unwrap_err());
        refused(fake.ask(&measuring()).unwrap_err());
        assert_eq!(fake.kernel.snapshot(), untouched);
        // Without the tracer it is none of its business.
        fake.shield.measure_alone(false).unwrap();
        fake.kernel.set_file(file, "nop");
    }
    // The instance of a measurement that was killed has no user.
    fake.kernel.set_file(&LAB.replace("lab", "asmp-timerlat-7777-1"), "timerlat");
    fake.shield.measure_alone(true).unwrap();
    fake.ask(&measuring()).unwrap();
}

#[test]
fn settings_of_a_tracer_that_another_program_began_to_use_wait_until_it_has_ended() {
    let fake = Fake::with_timerlat();
    let untouched = fake.kernel.snapshot();
    fake.ask(&measuring()).unwrap();
    let set = tracer_settings(&fake);
    fake.kernel.set_file(LAB, "timerlat");
    let patience = Patience { busy: Duration::ZERO, ..Patience::default() };
    let shield = fake.shield.clone().with_patience(patience);
    for request in [Request::System(System::default()), Request::Restore { abandon: false }] {
        let outcome = shield.change(&request, &crate::fixture::root()).unwrap();
        let left: Vec<String> = outcome.left.iter().map(ToString::to_string).collect();
        assert_eq!(left.iter().filter(|words| words.contains("/osnoise/")).count(), 3, "{left:?}");
        assert_eq!(tracer_settings(&fake), set);
    }
    fake.kernel.remove_file(LAB);
    fake.ask(&Request::Restore { abandon: false }).unwrap();
    assert_eq!(fake.kernel.snapshot(), untouched);
}
