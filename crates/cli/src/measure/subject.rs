//! Who is measured and where the times come from: a thread of ours by its own clock, one that the kernel's
//! timerlat watches, or a thread of the kernel's own.

use super::series::{Case, Plant, What};
use crate::args::TimeSource;
use crate::exit::{NO_TIMERLAT, UNEXPECTED, USAGE, failure};
use anyhow::Result;
use asmp_host::record::{Handler, Recorder};
use asmp_host::{Cpu, CpuSet, Kernel};
use asmp_measure::collect::{From, Subject};
use asmp_measure::probe::Probe;
use asmp_measure::run::{Kind, Source};
use asmp_measure::timerlat::Periods;
use asmp_shield::{Members, Request};
use std::path::Path;
use std::time::Duration;

/// Who takes the times of a series. Refuses what this kernel has not.
pub fn sources(kernel: &dyn Kernel, what: What, cpu: Cpu) -> Result<Vec<Source>> {
    let tracers = kernel.text(Path::new("/sys/kernel/tracing/available_tracers")).unwrap_or_default();
    let there = tracers.split_whitespace().any(|name| name == "timerlat");
    let suits = |period: Duration| (100..=1_000_000).contains(&period.as_micros());
    let refuse = |period: Duration, instead: &str| match (there, kernel.exists(&Recorder::waiter(cpu))) {
        _ if !suits(period) => Err(failure(
            USAGE,
            format!("--period {period:?}: timerlat takes 100us to 1s; choose one{instead}"),
        )),
        (false, _) => Err(failure(
            NO_TIMERLAT,
            format!("this kernel has no timerlat tracer: boot a PREEMPT_RT kernel{instead}"),
        )),
        (true, false) => Err(failure(
            NO_TIMERLAT,
            format!(
                "this kernel's timerlat serves no user space (no timerlat_fd): boot 6.5 or newer{instead}"
            ),
        )),
        (true, true) => Ok(()),
    };
    match what {
        What::Overhead { .. } => Ok(vec![Source::Loop]),
        What::Spaces { period, .. } => {
            refuse(period, "")?;
            Ok(vec![Source::TimerlatKernel, Source::Timerlat, Source::Nanosleep])
        }
        What::Latency { period, source: Some(TimeSource::Timerlat), .. } => {
            refuse(period, ", or use --source nanosleep")?;
            Ok(vec![Source::Timerlat])
        }
        What::Latency { period, source: None, flood: false, .. } if refuse(period, "").is_ok() => {
            Ok(vec![Source::Timerlat])
        }
        What::Latency { .. } => Ok(vec![Source::Nanosleep]),
    }
}

/// Where an event is handled, as directories of runs say.
pub const fn place(source: Source) -> &'static str {
    match source {
        Source::TimerlatKernel => "kernel",
        Source::Timerlat => "user",
        Source::Nanosleep | Source::Loop | Source::Import => "program",
    }
}

/// A run that can begin.
pub struct Ready<'a> {
    pub subject: Subject,
    pub from: From<'a>,
    /// The subject stays on its CPU.
    pub bound: bool,
    /// Why the causes are not recorded, where they are not.
    pub not_recorded: Option<String>,
}

impl Plant<'_> {
    /// Makes the subject with its group, CPU and policy, and whatever takes its times.
    pub fn ready(&self, case: &Case, name: &str) -> Result<Ready<'_>> {
        if case.source == Source::TimerlatKernel {
            return self.kernel_thread(case);
        }
        // In this boot a tick that could stop would also stop for Aon.
        let keep_tick = case.kind == Kind::Aon;
        let probe =
            Probe::spawn(self.task(case.source), self.what.samples(), self.series.warm_up, keep_tick)?;
        let bound = self.place(case, name, &probe)?;
        let (events, not_recorded) = self.events(bound);
        let from = match case.source {
            Source::Timerlat => self.timerlat(self.tracer(Handler::User)?, events, Handler::User),
            _ => From::Ring(events),
        };
        Ok(Ready { subject: Subject::Probe(probe), from, bound, not_recorded })
    }

    /// The kernel starts its thread with the tracer; it gets the policy that ours would have.
    fn kernel_thread(&self, case: &Case) -> Result<Ready<'_>> {
        let (events, not_recorded) = self.events(true);
        let mut recorder = self.tracer(Handler::Kernel)?;
        let tid = Recorder::kernel_thread(self.kernel, self.cpu).ok_or_else(|| {
            failure(UNEXPECTED, format!("the kernel started no thread timerlat/{}", self.cpu))
        })?;
        self.schedule(tid, case.kind)?;
        // What it did at the kernel's own choice of priority.
        recorder.take()?;
        let from = self.timerlat(recorder, events, Handler::Kernel);
        Ok(Ready { subject: Subject::KernelThread { tid }, from, bound: true, not_recorded })
    }

    fn tracer(&self, handler: Handler) -> Result<Recorder<'_>> {
        let period = self.what.period().unwrap_or_default();
        Ok(Recorder::timerlat(self.kernel, self.cpu, period.as_micros() as u64, handler)?)
    }

    fn timerlat<'a>(
        &self,
        recorder: Recorder<'a>,
        events: Option<Recorder<'a>>,
        handler: Handler,
    ) -> From<'a> {
        let period_ns = self.what.period().unwrap_or_default().as_nanos() as u64;
        let periods = Periods::new(handler, period_ns, self.series.warm_up, self.what.samples());
        From::Timerlat { recorder, events, periods: Box::new(periods) }
    }

    /// What the kernel does meanwhile, or why that is not recorded.
    fn events(&self, bound: bool) -> (Option<Recorder<'_>>, Option<String>) {
        let spaces = matches!(self.what, What::Spaces { .. });
        let recorder = match (bound, self.series.no_trace) {
            (false, _) => Err("the task may move between CPUs".to_owned()),
            (_, true) => Err("--no-trace".to_owned()),
            // It would lengthen the very paths that are compared.
            _ if spaces && self.series.explain == 0 => Err("no --explain".to_owned()),
            _ => Recorder::events(self.kernel, self.cpu).map_err(|error| error.to_string()),
        };
        match recorder {
            Ok(recorder) => (Some(recorder), None),
            Err(why) => (None, Some(why)),
        }
    }

    /// Gives the probe its group, CPU and policy; answers whether it is bound to the CPU.
    fn place(&self, case: &Case, name: &str, probe: &Probe) -> Result<bool> {
        match case.kind {
            Kind::N if case.source == Source::Timerlat => {
                // The tracer serves only threads that stay on its CPU.
                self.kernel.set_affinity(probe.tid, &CpuSet::from_iter([self.cpu]))?;
                return Ok(true);
            }
            Kind::N => return Ok(false),
            Kind::Rw | Kind::Rb => {}
            Kind::Aon | Kind::Aoff => {
                let members = Members { tids: vec![probe.tid], ..Members::default() };
                let request = Request::Add { name: name.to_owned(), members };
                self.shield.change(&request, &crate::change::caller(self.kernel))?;
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
        let root = tempfile::tempdir().unwrap();
        let tracing = root.path().join("sys/kernel/tracing");
        std::fs::create_dir_all(tracing.join("osnoise/per_cpu/cpu3")).unwrap();
        let kernel = Linux::below(root.path());
        let spaces = |period| What::Spaces { samples: 1, period: Duration::from_micros(period) };
        let refused = |what: What| {
            let error = sources(&kernel, what, 3).unwrap_err();
            (crate::exit::code_of(&error), error.to_string())
        };
        let tracers = |names: &str| std::fs::write(tracing.join("available_tracers"), names).unwrap();
        tracers("hwlat osnoise nop");
        let (code, said) = refused(spaces(2000));
        assert!(code == NO_TIMERLAT && said.contains("boot a PREEMPT_RT kernel"), "{said}");
        // As kernels from 5.14 to 6.4 are.
        tracers("timerlat osnoise nop");
        let (code, said) = refused(spaces(2000));
        assert!(code == NO_TIMERLAT && said.contains("timerlat_fd") && said.contains("6.5"), "{said}");
        let latency =
            |source| What::Latency { samples: 1, period: Duration::from_millis(1), source, flood: false };
        assert_eq!(refused(latency(Some(TimeSource::Timerlat))).0, NO_TIMERLAT);
        assert_eq!(sources(&kernel, latency(None), 3).unwrap(), [Source::Nanosleep], "there is another way");
        std::fs::write(tracing.join("osnoise/per_cpu/cpu3/timerlat_fd"), "").unwrap();
        let all = [Source::TimerlatKernel, Source::Timerlat, Source::Nanosleep];
        assert_eq!(sources(&kernel, spaces(2000), 3).unwrap(), all);
        assert_eq!(sources(&kernel, latency(None), 3).unwrap(), [Source::Timerlat]);
        assert_eq!(refused(spaces(99)).0, USAGE);
        assert_eq!(refused(spaces(1_000_001)).0, USAGE);
        assert_eq!(
            sources(&kernel, latency(None), 2).unwrap(),
            [Source::Nanosleep],
            "CPU 2 has no such file"
        );
    }
}
