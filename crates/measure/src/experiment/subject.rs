// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measured thread, and where its times come from: a thread of this process by its own clock,
//! one whose times timerlat takes, or timerlat's kernel thread.

use super::series::{Case, Session};
use super::{ExperimentError, Measurement, Result};
use crate::collect::{Origin, Subject};
use crate::probe::Probe;
use crate::run::{Kind, Source};
use crate::timerlat::Periods;
use asmp_host::tracefs::EventStream;
use asmp_host::tracefs::timerlat::{self, Handler};
use asmp_host::tracefs::users;
use asmp_host::{Cpu, CpuSet, Kernel};
use std::time::Duration;

/// Which clocks take the times of a series. Refuses those that this kernel does not have.
/// `may_arrange`: the caller may set the tracer, which timerlat needs.
pub(super) fn sources(
    kernel: &dyn Kernel,
    measurement: Measurement,
    cpu: Cpu,
    may_arrange: bool,
) -> Result<Vec<Source>> {
    let there = timerlat::is_available(kernel);
    let require = |period: Duration, alternative: bool| match there {
        _ if !suits(period) => Err(ExperimentError::Period { period, alternative }),
        false => Err(ExperimentError::NoTimerlat { alternative }),
        true if !kernel.exists(&timerlat::waiter(cpu)) => {
            Err(ExperimentError::NoUserTimerlat { alternative })
        }
        true => Ok(()),
    };
    match measurement {
        Measurement::Overhead { .. } => Ok(vec![Source::Loop]),
        Measurement::Spaces { period, .. } => {
            require(period, false)?;
            Ok(vec![Source::TimerlatKernel, Source::Timerlat, Source::Nanosleep])
        }
        Measurement::Latency { period, source: Some(Source::Timerlat), .. } => {
            require(period, true)?;
            Ok(vec![Source::Timerlat])
        }
        Measurement::Latency { period, source: None, flood: false, .. }
            if may_arrange && require(period, true).is_ok() =>
        {
            Ok(vec![Source::Timerlat])
        }
        Measurement::Latency { .. } => Ok(vec![Source::Nanosleep]),
    }
}

/// The tracer has whole microseconds of its period.
fn suits(period: Duration) -> bool {
    let ns = period.as_nanos();
    (100_000..=1_000_000_000).contains(&ns) && ns.is_multiple_of(1000)
}

/// Does nanosleep take the times of this measurement for its period alone, though no one asked for
/// nanosleep?
pub fn misses_timerlat(kernel: &dyn Kernel, measurement: Measurement, cpu: Cpu) -> bool {
    let Measurement::Latency { period, source: None, flood: false, .. } = measurement else {
        return false;
    };
    let has_it = timerlat::is_available(kernel) && kernel.exists(&timerlat::waiter(cpu));
    has_it && !suits(period)
}

/// Where an event is handled, as directories of runs say.
pub(super) const fn name(source: Source) -> &'static str {
    match source {
        Source::TimerlatKernel => "kernel",
        Source::Timerlat => "user",
        Source::Nanosleep | Source::Loop | Source::Import => "program",
    }
}

/// A run that can begin.
pub(super) struct Ready<'a> {
    pub subject: Subject,
    pub origin: Origin<'a>,
    /// The subject stays on its CPU.
    pub bound: bool,
    /// Why the causes are not recorded, where they are not.
    pub not_recorded: Option<String>,
}

/// Which thread waits for timerlat, where it takes the times.
pub(super) const fn handler(source: Source) -> Option<Handler> {
    match source {
        Source::TimerlatKernel => Some(Handler::Kernel),
        Source::Timerlat => Some(Handler::User),
        Source::Nanosleep | Source::Loop | Source::Import => None,
    }
}

impl Session<'_> {
    /// What timerlat must be set to for runs with this source.
    pub(super) fn timerlat_settings(&self, source: Source) -> Option<timerlat::Settings> {
        let period = self.measurement.period().unwrap_or_default();
        handler(source).map(|handler| timerlat::Settings {
            handler,
            period_us: period.as_micros() as u64,
            cpus: CpuSet::from_iter([self.series.cpu]),
        })
    }

    /// Makes the subject, with its group, CPU and policy, and starts the streams of its times.
    pub(super) fn ready(&self, case: &Case) -> Result<Ready<'_>> {
        if case.source == Source::TimerlatKernel {
            return self.kernel_thread(case);
        }
        // In this boot a tick that could stop would also stop for a kind that keeps it.
        let keep_tick = case.kind == Kind::PartitionTick;
        let samples = self.measurement.samples();
        let probe = Probe::spawn(self.work(case.source), samples, self.series.warm_up, keep_tick)
            .map_err(ExperimentError::Probe)?;
        let bound = self.put(case, &probe)?;
        let (events, not_recorded) = self.events(bound);
        let origin = match case.source {
            Source::Timerlat => self.timerlat(self.stream()?, events, Handler::User),
            _ => Origin::Ring(events),
        };
        Ok(Ready { subject: Subject::Probe(probe), origin, bound, not_recorded })
    }

    /// The kernel starts its thread with the tracer; it gets the policy that ours would have.
    fn kernel_thread(&self, case: &Case) -> Result<Ready<'_>> {
        let (events, not_recorded) = self.events(true);
        let mut stream = self.stream()?;
        let cpu = self.series.cpu;
        let tid = timerlat::kernel_thread(self.kernel, cpu)
            .ok_or(ExperimentError::NoKernelThread { cpu })?;
        self.schedule(tid, case.kind)?;
        // What it did at the kernel's own choice of priority.
        stream.take()?;
        let origin = self.timerlat(stream, events, Handler::Kernel);
        Ok(Ready { subject: Subject::KernelThread { tid }, origin, bound: true, not_recorded })
    }

    /// Another program that has started a tracer by now would share its threads with ours.
    fn stream(&self) -> Result<EventStream<'_>> {
        let users = users::of_osnoise(self.kernel);
        if !users.is_empty() {
            let users: Vec<String> = users.iter().map(ToString::to_string).collect();
            return Err(ExperimentError::TracerInUse { users: users.join(", ") });
        }
        Ok(EventStream::timerlat(self.kernel, self.series.cpu)?)
    }

    fn timerlat<'a>(
        &self,
        stream: EventStream<'a>,
        events: Option<EventStream<'a>>,
        handler: Handler,
    ) -> Origin<'a> {
        let period_ns = self.measurement.period().unwrap_or_default().as_nanos() as u64;
        let periods =
            Periods::new(handler, period_ns, self.series.warm_up, self.measurement.samples())
                .counting_missed(self.series.counts_missed);
        Origin::Timerlat { stream, events, periods: Box::new(periods) }
    }

    /// What the kernel does meanwhile, or why that is not recorded.
    fn events(&self, bound: bool) -> (Option<EventStream<'_>>, Option<String>) {
        let stream = match (bound, &self.series.no_events) {
            (false, _) => Err("the task may move between CPUs".to_owned()),
            (_, Some(reason)) => Err(reason.clone()),
            _ => {
                EventStream::events(self.kernel, self.series.cpu).map_err(|error| error.to_string())
            }
        };
        match stream {
            Ok(stream) => (Some(stream), None),
            Err(why) => (None, Some(why)),
        }
    }

    /// Gives the probe its group, CPU and policy; returns whether it is bound to the CPU.
    fn put(&self, case: &Case, probe: &Probe) -> Result<bool> {
        let cpu = self.series.cpu;
        match case.kind {
            Kind::Normal if case.source == Source::Timerlat => {
                // The tracer serves only threads that stay on its CPU.
                self.kernel
                    .set_affinity(probe.tid, &CpuSet::from_iter([cpu]))
                    .map_err(|cause| ExperimentError::Pin { cpu, cause })?;
                return Ok(true);
            }
            Kind::Normal => return Ok(false),
            Kind::FifoIrq | Kind::Fifo => {}
            Kind::PartitionTick | Kind::Partition | Kind::Shared | Kind::BestEffort => {
                self.conductor.admit(probe.tid).map_err(ExperimentError::Conductor)?;
            }
        }
        self.pin(probe)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::Linux;

    #[test]
    fn a_kernel_without_what_the_comparison_needs_is_refused_with_the_cure() {
        use ExperimentError::{NoTimerlat, NoUserTimerlat, Period};
        let root = tempfile::tempdir().unwrap();
        let tracing = root.path().join("sys/kernel/tracing");
        std::fs::create_dir_all(tracing.join("osnoise/per_cpu/cpu3")).unwrap();
        let kernel = Linux::below(root.path());
        let spaces = |us| Measurement::Spaces { samples: 1, period: Duration::from_micros(us) };
        let latency = |source| Measurement::Latency {
            samples: 1,
            period: Duration::from_millis(1),
            source,
            flood: false,
        };
        let refused = |measurement| sources(&kernel, measurement, 3, true).unwrap_err();
        let tracers =
            |names: &str| std::fs::write(tracing.join("available_tracers"), names).unwrap();
        tracers("hwlat osnoise nop");
        let error = refused(spaces(2000));
        assert!(matches!(error, NoTimerlat { alternative: false }), "{error}");
        assert!(error.to_string().contains("boot a PREEMPT_RT kernel"), "{error}");
        // As kernels from 5.14 to 6.4 are.
        tracers("timerlat osnoise nop");
        let error = refused(spaces(2000));
        assert!(matches!(error, NoUserTimerlat { alternative: false }), "{error}");
        assert!(
            error.to_string().contains("timerlat_fd") && error.to_string().contains("6.5"),
            "{error}"
        );
        assert!(matches!(
            refused(latency(Some(Source::Timerlat))),
            NoUserTimerlat { alternative: true }
        ));
        assert_eq!(
            sources(&kernel, latency(None), 3, true).unwrap(),
            [Source::Nanosleep],
            "there is another way"
        );
        std::fs::write(tracing.join("osnoise/per_cpu/cpu3/timerlat_fd"), "").unwrap();
        let all = [Source::TimerlatKernel, Source::Timerlat, Source::Nanosleep];
        assert_eq!(sources(&kernel, spaces(2000), 3, true).unwrap(), all);
        assert_eq!(sources(&kernel, latency(None), 3, true).unwrap(), [Source::Timerlat]);
        assert_eq!(sources(&kernel, latency(None), 3, false).unwrap(), [Source::Nanosleep]);
        assert!(matches!(refused(spaces(99)), Period { .. }));
        assert!(matches!(refused(spaces(1_000_001)), Period { .. }));
        // A part of a microsecond would be in the record and not in the tracer.
        let period = Duration::from_nanos(100_900);
        let error = refused(Measurement::Spaces { samples: 1, period });
        assert!(error.to_string().contains("100.9µs: timerlat requires"), "{error}");
        assert!(error.to_string().contains("whole microseconds"), "{error}");
        assert_eq!(
            sources(&kernel, latency(None), 2, true).unwrap(),
            [Source::Nanosleep],
            "CPU 2 has no such file"
        );
        // It is told where a period, and not the kernel or the user, chose nanosleep.
        let at = |period, source| Measurement::Latency { samples: 1, period, source, flood: false };
        let misses = |period, source| misses_timerlat(&kernel, at(period, source), 3);
        for ns in [25_000, 100_900, 2_000_000_000] {
            let period = Duration::from_nanos(ns);
            assert_eq!(sources(&kernel, at(period, None), 3, true).unwrap(), [Source::Nanosleep]);
            assert!(misses(period, None) && !misses(period, Some(Source::Nanosleep)), "{ns}");
            assert!(!misses_timerlat(&kernel, at(period, None), 2), "the kernel has none");
        }
        assert!(!misses(Duration::from_millis(1), None));
    }
}
