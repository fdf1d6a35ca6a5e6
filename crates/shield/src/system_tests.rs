// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the system outside partitions (`Request::System`): set whole or not at all, and
//! restored to the byte, killed or refused at any step.

use crate::fixture::Fake;
use crate::partition::Refusal;
use crate::partition::System;
use crate::request::{Request, Spec};
use crate::shield::ChangeError;
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::tracefs::timerlat::{Handler, Settings};
use asmp_host::{Kernel, knob};
use std::path::Path;

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
