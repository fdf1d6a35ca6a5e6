// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `run.json` counts beside the samples and weakens them, in sentences: ticks and device
//! interrupts where there should be none, time that the hypervisor took, records that were lost, a
//! base time that drifted. Pure.

use crate::run::{BaseTime, Experiment, Kind, Provenance};
use crate::told::{grouped, short_us};

/// Of runs of the same settings, which have that name.
pub fn doubts(name: &str, runs: &[&Provenance]) -> Vec<String> {
    let all = [ticks, device_interrupts, steal, lost_records, drift];
    all.into_iter().filter_map(|doubt| doubt(name, runs)).collect()
}

fn sum(runs: &[&Provenance], of: impl Fn(&Provenance) -> u64) -> u64 {
    runs.iter().map(|run| of(run)).fold(0, u64::saturating_add)
}

/// The timer wakes the task once for each instant, sometimes twice. A tick that has stopped adds
/// about one a second.
fn ticks(name: &str, runs: &[&Provenance]) -> Option<String> {
    let is_off = |run: &&Provenance| run.kind == Kind::Partition && run.step.is_none();
    let came = sum(runs, |run| run.totals.ticks.unwrap_or(0));
    let expected = sum(runs, |run| {
        let wakes = match run.experiment {
            Experiment::Latency => run.samples.saturating_mul(2),
            Experiment::Overhead => 0,
        };
        wakes.saturating_add(run.duration_ns / 1_000_000_000 + 1)
    });
    (runs.iter().all(is_off) && came > expected).then(|| {
        let (came, samples) = (grouped(came), grouped(sum(runs, |run| run.samples)));
        format!(
            "The timer interrupted {name} {came} times in {samples} samples: the tick was asked \
             to stop, and did not always."
        )
    })
}

fn device_interrupts(name: &str, runs: &[&Provenance]) -> Option<String> {
    let takes_none =
        |run: &&Provenance| !matches!(run.kind, Kind::Normal | Kind::FifoIrq) && run.step.is_none();
    let came = sum(runs, |run| {
        let devices = run.totals.device_interrupts.iter().flat_map(|devices| devices.values());
        devices.copied().fold(0, u64::saturating_add)
    });
    (runs.iter().all(takes_none) && came > 0)
        .then(|| format!("{name} should have no device interrupts, and had {}.", grouped(came)))
}

/// More than 1 % of the time.
fn steal(name: &str, runs: &[&Provenance]) -> Option<String> {
    let counted: Vec<&Provenance> =
        runs.iter().copied().filter(|run| run.totals.steal_ns.is_some()).collect();
    let stolen_ns = sum(&counted, |run| run.totals.steal_ns.unwrap_or(0));
    let all_ns = sum(&counted, |run| run.duration_ns);
    (stolen_ns > all_ns / 100).then(|| {
        let part = stolen_ns as f64 / all_ns.max(1) as f64 * 100.0;
        let part = if part > 100.0 { String::new() } else { format!(", {part:.0} %") };
        let seconds = stolen_ns as f64 / 1e9;
        format!("The hypervisor took {seconds:.2} s of the time of {name}{part}.")
    })
}

fn lost_records(name: &str, runs: &[&Provenance]) -> Option<String> {
    let lost = sum(runs, |run| run.lost_records);
    (lost > 0).then(|| {
        let lost = grouped(lost);
        format!("The kernel lost {lost} records of {name}: causes are incomplete.")
    })
}

/// More than 5 % from the one before to the one after.
fn drift(name: &str, runs: &[&Provenance]) -> Option<String> {
    let has_drifted = |base: &BaseTime| {
        let (least, most) = (base.before_ns.min(base.after_ns), base.before_ns.max(base.after_ns));
        most - least > most / 20
    };
    let base = runs.iter().filter_map(|run| run.base_ns).find(has_drifted)?;
    let [before, after] = [base.before_ns, base.after_ns].map(short_us);
    Some(format!(
        "The base time of {name} was {before} us before and {after} us after: what a turn took \
         beyond it is uncertain."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::provenance;
    use crate::run::{Step, Totals};

    fn of(change: impl Fn(&mut Provenance)) -> Vec<String> {
        let mut run = provenance();
        (run.samples, run.duration_ns) = (1000, 1_000_000_000);
        change(&mut run);
        doubts("it", &[&run])
    }

    #[test]
    fn a_tick_that_goes_on_in_a_partition_is_told_and_wake_ups_are_none() {
        let with = |ticks: u64| Totals { ticks: Some(ticks), ..Totals::default() };
        let said = of(|run| run.totals = with(50_000));
        let expected = "The timer interrupted it 50,000 times in 1,000 samples: the tick was asked \
                        to stop, and did not always.";
        assert_eq!(said, [expected]);
        assert_eq!(of(|run| run.totals = with(1_050)), [""; 0]);
        assert_eq!(of(|run| (run.kind, run.totals) = (Kind::Fifo, with(50_000))), [""; 0]);
        let step = Some(Step { name: "tick".into(), with: false });
        assert_eq!(of(|run| (run.step, run.totals) = (step.clone(), with(50_000))), [""; 0]);
        // A loop sleeps for no instant.
        let turns = |run: &mut Provenance| {
            (run.experiment, run.totals) = (Experiment::Overhead, with(1000));
        };
        assert_eq!(of(turns).len(), 1);
    }

    #[test]
    fn what_others_took_is_told_where_it_is_more_than_a_hundredth() {
        let with = |ns: u64| Totals { steal_ns: Some(ns), ..Totals::default() };
        let said = of(|run| run.totals = with(900_000_000));
        assert_eq!(said, ["The hypervisor took 0.90 s of the time of it, 90 %."]);
        assert_eq!(of(|run| run.totals = with(10_000_000)), [""; 0]);
        let devices = Some([("25 eth0".to_owned(), 9)].into());
        let with = Totals { device_interrupts: devices, ..Totals::default() };
        let said = of(|run| run.totals = with.clone());
        assert_eq!(said, ["it should have no device interrupts, and had 9."]);
        assert_eq!(of(|run| (run.kind, run.totals) = (Kind::FifoIrq, with.clone())), [""; 0]);
        let said = of(|run| run.lost_records = 12);
        assert_eq!(said, ["The kernel lost 12 records of it: causes are incomplete."]);
    }

    #[test]
    fn a_base_time_that_drifted_is_told() {
        let base = |after_ns: u64| {
            of(|run| {
                run.experiment = Experiment::Overhead;
                run.base_ns = Some(BaseTime { before_ns: 1_000_000, after_ns, rounds: 1 });
            })
        };
        let said = "The base time of it was 1,000 us before and 9,000 us after: what a turn took \
                    beyond it is uncertain.";
        assert_eq!(base(9_000_000), [said]);
        assert_eq!(base(1_040_000), [""; 0]);
    }
}
