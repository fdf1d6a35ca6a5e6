// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement says before it begins, of settings that no one has chosen: which clock takes
//! the times, and where the task runs. And of a user who may not measure what was asked for.

use asmp_host::tracefs::timerlat;
use asmp_host::{Cpu, Kernel};
use asmp_measure::experiment::{ConductorError, Measurement, misses_timerlat};
use asmp_measure::run::{Kind, Source};
use asmp_shield::{ChangeError, Refusal};

/// Why nanosleep takes the times though no one has asked for it; `None` where it does not, or
/// where it was asked for. `may_arrange`: whether the tracer may be set.
pub fn why_nanosleep(
    kernel: &dyn Kernel,
    measurement: Measurement,
    cpu: Cpu,
    may_arrange: Result<(), ConductorError>,
) -> Option<String> {
    let Measurement::Latency { source: None, flood: false, .. } = measurement else { return None };
    let why = match (timerlat::is_known_available(kernel), may_arrange) {
        (Some(false), _) => {
            return Some("this kernel has no timerlat: nanosleep takes the times".to_owned());
        }
        (Some(true), _) if !kernel.exists(&timerlat::waiter(cpu)) => {
            "the timerlat of this kernel serves no task of user space (6.5 does)".to_owned()
        }
        (known, Err(error)) if is_not_root(&*error) => {
            let if_there = if known.is_none() { ", if this kernel has it" } else { "" };
            format!("only root can set timerlat{if_there}")
        }
        (Some(true), Err(error)) => format!("timerlat cannot be set: {error}"),
        (None, _) => {
            "without tracefs it is not known whether this kernel has timerlat (mount -t tracefs \
             none /sys/kernel/tracing)"
                .to_owned()
        }
        (Some(true), Ok(())) if misses_timerlat(kernel, measurement, cpu) => {
            "timerlat requires a --period of 100 us to 1 s in whole microseconds".to_owned()
        }
        (Some(true), Ok(())) => return None,
    };
    Some(format!("nanosleep takes the times: {why}"))
}

/// Whether a task of kind normal is there that stays on no CPU. `by_nanosleep`: that takes the
/// times though no one has asked for it.
pub fn free_of_the_cpu(kinds: &[Kind], measurement: Measurement, by_nanosleep: bool) -> bool {
    let is_free = match measurement {
        Measurement::Latency { source: Some(Source::Timerlat), .. } => false,
        Measurement::Latency { source: Some(_), .. } | Measurement::Latency { flood: true, .. } => {
            true
        }
        Measurement::Latency { .. } => by_nanosleep,
        Measurement::Overhead { .. } => true,
        Measurement::Spaces { .. } => false,
    };
    is_free && kinds.contains(&Kind::Normal)
}

/// What a user other than root may do instead; `None`: there is nothing.
pub fn without_root(kinds: &[Kind], measurement: Measurement) -> Option<&'static str> {
    let Measurement::Latency { source, .. } = measurement else { return None };
    match source {
        Some(Source::Timerlat) if kinds == [Kind::Normal] => Some(
            "only root can set timerlat: use sudo; `--kinds normal --source nanosleep` needs no \
             root",
        ),
        _ => Some("kinds other than normal need root: use sudo; `--kinds normal` needs no root"),
    }
}

/// Whether a conductor refused because of who asks.
pub fn is_not_root(error: &(dyn std::error::Error + 'static)) -> bool {
    let refused = error.downcast_ref::<ChangeError>().map(ChangeError::cause);
    matches!(refused, Some(ChangeError::Refused(Refusal::NotRoot)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::Linux;
    use std::time::Duration;

    fn latency(us: u64, source: Option<Source>, flood: bool) -> Measurement {
        Measurement::Latency { samples: 1, period: Duration::from_micros(us), source, flood }
    }

    fn refused(refusal: Refusal) -> Result<(), ConductorError> {
        Err(ChangeError::Refused(refusal).into())
    }

    #[test]
    fn that_nanosleep_takes_the_times_is_said_with_its_true_reason() {
        let root = tempfile::tempdir().unwrap();
        let kernel = Linux::below(root.path());
        let tracing = root.path().join("sys/kernel/tracing");
        let why = |us, may| why_nanosleep(&kernel, latency(us, None, false), 3, may).unwrap();
        // What only tracefs tells, no one knows without it.
        let unknown = why(1000, Ok(()));
        assert!(unknown.contains("not known") && unknown.contains("mount -t tracefs"), "{unknown}");
        assert_eq!(
            why(1000, refused(Refusal::NotRoot)),
            "nanosleep takes the times: only root can set timerlat, if this kernel has it"
        );
        std::fs::create_dir_all(tracing.join("osnoise/per_cpu/cpu3")).unwrap();
        let tracers = |names| std::fs::write(tracing.join("available_tracers"), names).unwrap();
        tracers("hwlat nop");
        for may in [Ok(()), refused(Refusal::NotRoot), refused(Refusal::NoCgroupV2)] {
            assert_eq!(why(1000, may), "this kernel has no timerlat: nanosleep takes the times");
        }
        tracers("timerlat nop");
        assert!(why(1000, Ok(())).contains("6.5"), "{}", why(1000, Ok(())));
        std::fs::write(tracing.join("osnoise/per_cpu/cpu3/timerlat_fd"), "").unwrap();
        let user = why(1000, refused(Refusal::NotRoot));
        assert_eq!(user, "nanosleep takes the times: only root can set timerlat");
        let no_groups = why(1000, refused(Refusal::NoCgroupV2));
        assert!(no_groups.contains("timerlat cannot be set: cgroup v2 is not"), "{no_groups}");
        assert!(why(10, Ok(())).ends_with("100 us to 1 s in whole microseconds"));
        let none = [
            latency(1000, None, false),
            latency(1000, Some(Source::Nanosleep), false),
            latency(1000, None, true),
        ];
        for measurement in none {
            assert_eq!(why_nanosleep(&kernel, measurement, 3, Ok(())), None);
        }
    }

    #[test]
    fn a_cpu_that_the_task_of_kind_normal_does_not_stay_on_is_known_as_such() {
        let both = [Kind::Normal, Kind::Fifo];
        let by_default = latency(1000, None, false);
        assert!(free_of_the_cpu(&both, by_default, true));
        assert!(!free_of_the_cpu(&both, by_default, false), "timerlat keeps it there");
        assert!(free_of_the_cpu(&both, latency(1000, Some(Source::Nanosleep), false), false));
        assert!(!free_of_the_cpu(&[Kind::Fifo], by_default, true));
    }

    #[test]
    fn a_user_without_root_is_told_what_needs_none() {
        let all = without_root(&Kind::ALL, latency(1000, None, false)).unwrap();
        assert!(all.starts_with("kinds other than normal need root: use sudo; `--kinds normal`"));
        let tracer = latency(1000, Some(Source::Timerlat), false);
        let tracer = without_root(&[Kind::Normal], tracer).unwrap();
        assert!(tracer.contains("--source nanosleep"), "{tracer}");
        let work = Duration::from_millis(1);
        let overhead = Measurement::Overhead { iterations: 1, work };
        assert_eq!(without_root(&[Kind::Normal], overhead), None, "it pins a real-time task");
        assert!(is_not_root(&*refused(Refusal::NotRoot).unwrap_err()));
        assert!(!is_not_root(&*refused(Refusal::NoCgroupV2).unwrap_err()));
    }
}
