// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which runs of two sides are compared with each other: those alike but for what was named. Pure.

use crate::compare::{self, Difference, Figure};
use crate::doubts::doubts;
use crate::histogram::Latencies;
use crate::run::{Provenance, Run};
use crate::settings::{Setting, kernels};
use crate::told::{grouped, times};

/// What is compared, and what is not.
#[derive(Debug)]
pub struct Pairs<'a> {
    pub pairs: Vec<Pair<'a>>,
    /// Rounds of one side that have no partner on the other.
    pub alone: Vec<Vec<&'a Run>>,
}

/// Rounds of the same settings on both sides, and how far apart they are.
#[derive(Debug)]
pub struct Pair<'a> {
    pub a: Vec<&'a Run>,
    pub b: Vec<&'a Run>,
    /// What they differ in, as it was allowed, and what follows of that.
    pub across: Vec<Differing>,
    pub differences: Vec<Difference>,
}

/// A setting that two runs do not share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    pub setting: Setting,
    pub a: String,
    pub b: String,
    /// The same in a sentence: of two kernels only what differs.
    pub told: [String; 2],
}

/// Why two sides are not compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    #[error(
        "no run of the one side has a partner on the other{}: choose others, or say --across {}",
        words(.differing),
        names(.differing)
    )]
    NothingInCommon { differing: Vec<Differing> },

    #[error(
        "{a} and {b} are not alike{}: choose others, or say --across {}",
        words(.differing),
        names(.differing)
    )]
    NotAlike { a: String, b: String, differing: Vec<Differing> },

    /// Of one side.
    #[error(
        "{one} and {other} are both candidates and not alike{}: choose one{}",
        words(.differing),
        or_kinds(.differing)
    )]
    Ambiguous { one: String, other: String, differing: Vec<Differing> },
}

fn words(differing: &[Differing]) -> String {
    let word = |one: &Differing| format!("{} ({})", one.setting, one.told.join("; "));
    match differing {
        [] => String::new(),
        differing => {
            format!(
                ": they differ in {}",
                differing.iter().map(word).collect::<Vec<_>>().join(", ")
            )
        }
    }
}

fn names(differing: &[Differing]) -> String {
    let name = |one: &Differing| one.setting.to_string();
    differing.iter().map(name).collect::<Vec<_>>().join(",")
}

fn or_kinds(differing: &[Differing]) -> &'static str {
    let are_of_two_kinds = differing.iter().any(|one| one.setting == Setting::Kind);
    if are_of_two_kinds { ", or two kinds by --kinds" } else { "" }
}

/// Samples of a side whose latencies are not known.
pub fn lost(side: &[&Run]) -> u64 {
    side.iter().map(|run| run.latencies.lost()).fold(0, u64::saturating_add)
}

impl Pair<'_> {
    /// What a reader must know of each side before believing the differences.
    pub fn reservations(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            let lost = lost(side);
            if lost > 0 {
                let lost = grouped(lost);
                said.push(format!(
                    "{name} lost {lost} samples, in no figure: a longer one may be among them."
                ));
            }
            let provenances: Vec<&Provenance> = side.iter().map(|run| &run.provenance).collect();
            said.extend(doubts(name, &provenances));
        }
        said
    }

    /// Which kind is better at what, and by what factor; `None` where both sides are of one kind.
    pub fn told(&self) -> Option<String> {
        let kinds = self.across.iter().find(|one| one.setting == Setting::Kind)?;
        let at = |one: &Difference| {
            let word = match (one.p, one.is_sure) {
                (None, _) => "one run each",
                (_, true) => "sure",
                (_, false) => "may be chance",
            };
            let (less_ns, more_ns) = (one.a_ns.min(one.b_ns), one.a_ns.max(one.b_ns));
            let factor = (less_ns > 0).then(|| times(more_ns as f64 / less_ns as f64));
            let factor = factor.map_or_else(String::new, |factor| format!("{factor} times, "));
            format!("{} ({factor}{word})", one.figure.name())
        };
        let better = |kind: &str, sign: i64| {
            let worst_first = self.differences.iter().rev();
            let of = worst_first.filter(|one| one.difference_ns.signum() == sign);
            let figures: Vec<String> = of.map(at).collect();
            (!figures.is_empty()).then(|| format!("{kind} is better at {}", figures.join(", ")))
        };
        let told: Vec<String> =
            [better(&kinds.b, -1), better(&kinds.a, 1)].into_iter().flatten().collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// All runs of `a` that have a partner in `b`, with their differences judged together. Runs of one
/// side with the same settings are its rounds. `across`: settings in which the sides may differ.
pub fn pairs<'a>(
    a: impl IntoIterator<Item = &'a Run>,
    b: impl IntoIterator<Item = &'a Run>,
    across: &[Setting],
) -> Result<Pairs<'a>, PairError> {
    let (of_a, of_b) = (rounds(a), rounds(b));
    let is_partner = |one: &[&Run], other: &[&Run]| {
        let differing = Setting::differing(&one[0].provenance, &other[0].provenance);
        !differing.iter().any(|one| Setting::NAMING.contains(one) && !across.contains(one))
    };
    let mut pairs: Vec<Pair> = Vec::new();
    for one in &of_a {
        let mut partners = of_b.iter().filter(|other| is_partner(one, other));
        let Some(other) = partners.next() else { continue };
        if let Some(third) = partners.next() {
            return Err(ambiguous(other[0], third[0]));
        }
        if let Some(before) = pairs.iter().find(|pair| std::ptr::eq(pair.b[0], other[0])) {
            return Err(ambiguous(before.a[0], one[0]));
        }
        // Any of the rounds may have ended early.
        let partial = |run: &&&Run| run.provenance.partial.is_some();
        let first = one.iter().find(partial).unwrap_or(&one[0]);
        let second = other.iter().find(partial).unwrap_or(&other[0]);
        let refused = Setting::refused(&first.provenance, &second.provenance, across);
        let across = differing(&first.provenance, &second.provenance);
        if !refused.is_empty() {
            let (a, b) = (shown(first), shown(second));
            let is_refused = |one: &Differing| refused.contains(&one.setting);
            let differing = across.into_iter().filter(is_refused).collect();
            return Err(PairError::NotAlike { a, b, differing });
        }
        let latencies = |side: &[&'a Run]| -> Vec<&'a Latencies> {
            side.iter().map(|run| &run.latencies).collect()
        };
        let differences = compare::differences(&latencies(one), &latencies(other), &Figure::ALL);
        pairs.push(Pair { a: one.clone(), b: other.clone(), across, differences });
    }
    if pairs.is_empty() {
        // Of the first of each side, as an example.
        let differing = of_a.first().zip(of_b.first()).map_or_else(Vec::new, |(one, other)| {
            let (one, other) = (&one[0].provenance, &other[0].provenance);
            let mut differing = differing(one, other);
            // It goes with the kind, and need not be named.
            differing.retain(|named| !named.setting.follows_of_the_kind(one, other));
            differing
        });
        return Err(PairError::NothingInCommon { differing });
    }
    compare::judge(pairs.iter_mut().flat_map(|pair| &mut pair.differences));
    let is_alone = |one: &Vec<&Run>| {
        let is_it = |side: &[&Run]| std::ptr::eq(side[0], one[0]);
        !pairs.iter().any(|pair| is_it(&pair.a) || is_it(&pair.b))
    };
    let alone = of_a.into_iter().chain(of_b).filter(is_alone).collect();
    Ok(Pairs { pairs, alone })
}

/// Runs of one side by their settings.
fn rounds<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<Vec<&'a Run>> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    let same = |one: &Run, other: &Run| {
        let differing = Setting::differing(&one.provenance, &other.provenance);
        differing.iter().all(|setting| *setting == Setting::Completeness)
    };
    for run in runs {
        match groups.iter_mut().find(|group| same(group[0], run)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

fn differing(a: &Provenance, b: &Provenance) -> Vec<Differing> {
    let of = |setting: Setting| {
        let (of_a, of_b) = (setting.of(a), setting.of(b));
        let told = match setting {
            Setting::Kernel => kernels(&a.machine, &b.machine),
            _ => [of_a.clone(), of_b.clone()],
        };
        Differing { setting, a: of_a, b: of_b, told }
    };
    Setting::differing(a, b).into_iter().map(of).collect()
}

fn ambiguous(one: &Run, other: &Run) -> PairError {
    let differing = differing(&one.provenance, &other.provenance);
    PairError::Ambiguous { one: shown(one), other: shown(other), differing }
}

fn shown(run: &Run) -> String {
    run.dir.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::provenance;
    use crate::run::{Kind, Times};

    fn run(dir: &str, level_ns: u64, change: impl Fn(&mut Provenance)) -> Run {
        let mut provenance = provenance();
        change(&mut provenance);
        let latencies = Latencies::of((0..1000).map(|turn| level_ns + turn));
        let times = Times::default();
        Run { dir: dir.into(), provenance, latencies, times, system_max_ns: None }
    }

    /// Those that are compared.
    fn compared<'a>(
        a: &'a [Run],
        b: &'a [Run],
        across: &[Setting],
    ) -> Result<Vec<Pair<'a>>, PairError> {
        pairs(a, b, across).map(|found| found.pairs)
    }

    fn rounds_of(side: &str, level_ns: u64) -> Vec<Run> {
        let of = |turn: u64| run(&format!("{side}/{turn}"), level_ns + 10 * turn, |_| ());
        (0..6).map(of).collect()
    }

    #[test]
    fn runs_of_the_same_settings_are_the_rounds_of_a_side() {
        let (a, b) = (rounds_of("a", 10_000), rounds_of("b", 12_000));
        let [pair] = compared(&a, &b, &[]).unwrap().try_into().unwrap();
        assert_eq!((pair.a.len(), pair.b.len(), pair.across), (6, 6, vec![]));
        assert_eq!(pair.differences.len(), 4);
        assert!(pair.differences.iter().all(|one| one.is_sure), "{:?}", pair.differences);
        // A directory with itself.
        let [pair] = compared(&a, &a, &[]).unwrap().try_into().unwrap();
        assert!(pair.differences.iter().all(|one| one.difference_ns == 0 && !one.is_sure));
    }

    #[test]
    fn runs_that_are_not_alike_are_refused_unless_it_is_said() {
        let period = |provenance: &mut Provenance| provenance.period_ns = Some(7);
        let a = [run("a/x", 1, |_| ())];
        let b = [run("b/x", 2, period)];
        let refused = compared(&a, &b, &[]).unwrap_err().to_string();
        let says = "a/x and b/x are not alike: they differ in period (1 ms; 7 ns): choose \
                    others, or say --across period";
        assert_eq!(refused, says);
        assert!(compared(&a, &b, &[Setting::Kernel]).is_err());
        let [pair] = compared(&a, &b, &[Setting::Period]).unwrap().try_into().unwrap();
        assert_eq!(pair.across.len(), 1);
        // One early end among rounds is enough.
        let mut b = rounds_of("b", 12_000);
        b[4].provenance.partial = Some("interrupted".into());
        let refused = compared(&a, &b, &[]).unwrap_err().to_string();
        assert!(
            refused.contains("b/4") && refused.contains("(complete; interrupted)"),
            "{refused}"
        );
        assert_eq!(compared(&a, &b, &[Setting::Completeness]).unwrap()[0].b.len(), 6);
    }

    #[test]
    fn columns_and_kinds_find_their_partners() {
        let column = |name: &'static str| {
            move |provenance: &mut Provenance| provenance.column = Some(name.to_owned())
        };
        let two = |side: &str, first: u64| {
            [
                run(&format!("{side}/irq"), first, column("IRQ-003")),
                run(&format!("{side}/thr"), 50_000, column("Thr-003")),
            ]
        };
        let (a, b) = (two("a", 3000), two("b", 3000));
        let found = compared(&a, &b, &[]).unwrap();
        let medians: Vec<i64> =
            found.iter().map(|pair| pair.differences[0].difference_ns).collect();
        assert_eq!(medians, [0, 0], "each column has its own partner");
        let refused = compared(&a, &b, &[Setting::Column]).unwrap_err();
        assert!(matches!(refused, PairError::Ambiguous { .. }), "{refused}");
        let refused = compared(&a, &b[..1], &[Setting::Column]).unwrap_err();
        assert!(matches!(refused, PairError::Ambiguous { .. }), "{refused}");
        let kind = |provenance: &mut Provenance| provenance.kind = Kind::Normal;
        let (a, b) = ([run("a/x", 1, |_| ())], [run("b/x", 2, kind)]);
        let refused = compared(&a, &b, &[]).unwrap_err().to_string();
        let says = "they differ in kind (partition; normal): choose others, or say --across kind";
        assert!(refused.ends_with(says), "{refused}");
        assert_eq!(compared(&a, &b, &[Setting::Kind]).unwrap().len(), 1);
        assert!(compared(&a, &[], &[]).is_err());
    }

    #[test]
    fn periods_of_one_side_are_no_rounds_of_each_other() {
        let period = |provenance: &mut Provenance| provenance.period_ns = Some(7);
        let a = [run("a/x", 1, |_| ())];
        let b = [run("b/x", 2, |_| ()), run("b/y", 2, period)];
        let refused = compared(&a, &b, &[Setting::Period]).unwrap_err();
        assert!(matches!(refused, PairError::Ambiguous { .. }), "{refused}");
        assert!(compared(&b, &a, &[]).is_err());
    }

    fn of_kind(kind: Kind) -> impl Fn(&mut Provenance) {
        move |provenance: &mut Provenance| provenance.kind = kind
    }

    #[test]
    fn what_has_no_partner_is_named_and_the_others_are_compared() {
        let mut a = rounds_of("a", 10_000);
        a.extend((0..2).map(|turn| run(&format!("a/n{turn}"), 1, of_kind(Kind::Normal))));
        let mut b = rounds_of("b", 12_000);
        b.push(run("b/f", 1, of_kind(Kind::Fifo)));
        let found = pairs(&a, &b, &[]).unwrap();
        assert_eq!((found.pairs.len(), found.pairs[0].a.len()), (1, 6));
        let dirs =
            |side: &Vec<&Run>| -> Vec<String> { side.iter().map(|run| shown(run)).collect() };
        let alone: Vec<Vec<String>> = found.alone.iter().map(dirs).collect();
        assert_eq!(alone, [vec!["a/n0", "a/n1"], vec!["b/f"]]);
        assert!(pairs(&a, &a, &[]).unwrap().alone.is_empty());
    }

    #[test]
    fn kinds_of_one_series_are_compared_with_what_goes_with_them() {
        let normal = |provenance: &mut Provenance| {
            (provenance.kind, provenance.cpu) = (Kind::Normal, None);
            provenance.schedule = Some(asmp_host::Schedule::Other { nice: 0 });
            provenance.not_recorded = Some("free".into());
        };
        let mut s = rounds_of("s", 10_000);
        let round = |turn: u64| run(&format!("s/n{turn}"), 470_000 + 10 * turn, normal);
        s.extend((0..6).map(round));
        let refused = pairs(&s, &s, &[Setting::Kind]).unwrap_err().to_string();
        assert!(refused.ends_with("choose one, or two kinds by --kinds"), "{refused}");
        let side = |kind: Kind| s.iter().filter(move |run| run.provenance.kind == kind);
        let find = |across: &[Setting]| pairs(side(Kind::Normal), side(Kind::Partition), across);
        let found = find(&[Setting::Kind]).unwrap();
        let [pair] = found.pairs.as_slice() else { panic!("{found:?}") };
        let differ: Vec<Setting> = pair.across.iter().map(|one| one.setting).collect();
        let with_kind = [Setting::Kind, Setting::Priority, Setting::Cpu, Setting::Trace];
        assert_eq!(differ, with_kind, "the answer says so");
        assert_eq!(
            pair.told().unwrap(),
            "partition is better at worst (43 times, sure), p99.9 (43 times, sure), p99 (43 times, \
             sure), median (45 times, sure)"
        );
        let mut other = rounds_of("b", 1);
        for run in &mut other {
            run.provenance.machine.boot_parameters = "quiet ".repeat(200) + "nohz_full=3";
        }
        let refused = pairs(&rounds_of("a", 1), &other, &[]).unwrap_err().to_string();
        let says = "they differ in kernel (7.2; 7.2 with quiet";
        assert!(refused.contains(says), "{refused}");
        let refused = find(&[]).unwrap_err().to_string();
        assert!(refused.ends_with("(normal; partition): choose others, or say --across kind"));
        let one = pairs(&s[..1], &s[6..7], &[Setting::Kind]).unwrap();
        let told = one.pairs[0].told().unwrap();
        assert!(
            told.starts_with("partition is better at worst (43 times, one run each)"),
            "{told}"
        );
        assert_eq!(pairs(&s[..1], &s[1..2], &[]).unwrap().pairs[0].told(), None);
    }

    #[test]
    fn a_step_with_and_without_is_no_round_of_one_setting() {
        let step = |with: bool| {
            move |provenance: &mut Provenance| {
                provenance.step = Some(crate::run::Step { name: "irqs".into(), with });
            }
        };
        let ab = |side: &str| {
            [run(&format!("{side}/w"), 1, step(true)), run(&format!("{side}/o"), 9, step(false))]
        };
        let (a, b) = (ab("ab"), ab("ab2"));
        let found = compared(&a, &b, &[]).unwrap();
        let names: Vec<String> = found.iter().map(|pair| pair.a[0].name()).collect();
        assert_eq!(names, ["mixed/partition irqs-with", "mixed/partition irqs-without"]);
        assert!(found.iter().all(|pair| pair.differences[0].difference_ns == 0));
    }

    #[test]
    fn rounds_that_were_measured_in_another_way_are_refused() {
        let other = |provenance: &mut Provenance| {
            (provenance.cpu, provenance.memory_locked) = (Some(2), Some(false));
            provenance.not_recorded = Some("--no-trace".into());
        };
        let a = rounds_of("a", 10_000);
        let b: Vec<Run> = (0..6).map(|turn| run(&format!("b/{turn}"), 12_000, other)).collect();
        let refused = pairs(&a, &b, &[]).unwrap_err().to_string();
        assert!(refused.ends_with("or say --across cpu,trace,memory-lock"), "{refused}");
    }

    #[test]
    fn what_weakens_a_side_is_told_of_that_side() {
        let (a, mut b) = (rounds_of("a", 10_000), rounds_of("b", 12_000));
        b[2].latencies.lose(6_000_000);
        b[3].provenance.duration_ns = 1_000_000_000;
        b[3].provenance.totals.steal_ns = Some(900_000_000);
        let [pair] = compared(&a, &b, &[]).unwrap().try_into().unwrap();
        assert_eq!(
            pair.reservations(),
            [
                "B lost 6,000,000 samples, in no figure: a longer one may be among them.",
                "The hypervisor took 0.90 s of the time of B, 90 %.",
            ]
        );
        let [pair] = compared(&a, &a, &[]).unwrap().try_into().unwrap();
        assert_eq!(pair.reservations(), [""; 0]);
    }
}
