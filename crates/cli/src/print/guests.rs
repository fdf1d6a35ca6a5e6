// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler of shared partitions has counted, in words. Pure.

use asmp_host::sharing;
use std::time::Duration;

/// What others did on all shared CPUs since they have been guarded. A scheduler that an older build
/// has loaded may lack some counts.
pub(super) fn lines(counts: &[(String, u64)]) -> Vec<String> {
    let of = |name: &str| sharing::count_of(counts, name);
    let seconds = |name: &str| Some(Duration::from_nanos(of(name)?).as_secs_f64());
    let moves = || {
        let (began, entered) = (of("began_on_rt")?, sharing::entered(counts)?);
        Some(format!("others began to run there {began} times, entered the kernel {entered} times"))
    };
    let longest = || {
        let us = of("longest_kernel_ns")?.div_ceil(1000);
        Some(format!("a task was in the kernel there for at most {us} us before it left"))
    };
    let refused = || {
        let times = of("too_short").filter(|times| *times > 0)?;
        Some(format!("{times} times a task was kept off, as it calls the kernel too often"))
    };
    let ran = |class: &str| {
        let on = seconds(&format!("{class}_on_rt_ns"))?;
        let off = seconds(&format!("{class}_on_nrt_ns"))?;
        let moves = match (of(&format!("{class}_to_rt")), of(&format!("{class}_to_nrt"))) {
            (Some(came), Some(left)) => format!("; came {came} times, left {left} times"),
            _ => String::new(),
        };
        let ran = format!("{class} tasks ran {on:.1} s there, {off:.1} s elsewhere{moves}");
        (on + off > 0.0).then_some(ran)
    };
    let lines = [moves(), longest(), refused(), ran("rt1"), ran("linux")];
    lines.into_iter().flatten().map(|line| format!("shared CPUs: {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_in_the_kernel_says_of_what_it_is() {
        let said = lines(&[("longest_kernel_ns".to_owned(), 4_456_001)]);
        assert_eq!(
            said,
            ["shared CPUs: a task was in the kernel there for at most 4457 us before it left"]
        );
    }

    #[test]
    fn each_class_has_its_time_and_its_moves() {
        let counts = [
            ("rt1_on_rt_ns", 6_000_000_000),
            ("rt1_on_nrt_ns", 2_200_000_000),
            ("rt1_to_rt", 31),
            ("rt1_to_nrt", 30),
        ];
        let counts = counts.map(|(name, count)| (name.to_owned(), count));
        let ran = "shared CPUs: rt1 tasks ran 6.0 s there, 2.2 s elsewhere";
        assert_eq!(lines(&counts), [format!("{ran}; came 31 times, left 30 times")]);
        assert_eq!(lines(&counts[..2]), [ran], "an older build does not count moves");
        assert_eq!(lines(&[]), [""; 0]);
    }
}
