// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which runs of two sides are compared with each other: those alike but for what was named. Pure.

use crate::compare::{self, Difference, Figure};
use crate::histogram::Latencies;
use crate::run::{Provenance, Run};
use crate::settings::Setting;

/// Rounds of the same settings on both sides, and how far apart they are.
#[derive(Debug)]
pub struct Pair<'a> {
    pub a: Vec<&'a Run>,
    pub b: Vec<&'a Run>,
    /// What they differ in, as it was allowed.
    pub across: Vec<Differing>,
    pub differences: Vec<Difference>,
}

/// A setting that two runs do not share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    pub setting: Setting,
    pub a: String,
    pub b: String,
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
    #[error("{one} and {other} are both candidates and not alike{}: choose one", words(.differing))]
    Ambiguous { one: String, other: String, differing: Vec<Differing> },
}

fn words(differing: &[Differing]) -> String {
    let word = |one: &Differing| format!("{} ({}; {})", one.setting, one.a, one.b);
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

/// All runs of `a` that have a partner in `b`, with their differences judged together. Runs of one
/// side with the same settings are its rounds. `across`: settings in which the sides may differ.
pub fn pairs<'a>(
    a: &'a [Run],
    b: &'a [Run],
    across: &[Setting],
) -> Result<Vec<Pair<'a>>, PairError> {
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
        let differing = differing(&first.provenance, &second.provenance);
        let (across, refused): (Vec<_>, Vec<_>) =
            differing.into_iter().partition(|one| across.contains(&one.setting));
        if !refused.is_empty() {
            let (a, b) = (shown(first), shown(second));
            return Err(PairError::NotAlike { a, b, differing: refused });
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
            differing(&one[0].provenance, &other[0].provenance)
        });
        return Err(PairError::NothingInCommon { differing });
    }
    compare::judge(pairs.iter_mut().flat_map(|pair| &mut pair.differences));
    Ok(pairs)
}

/// Runs of one side by their settings.
fn rounds(runs: &[Run]) -> Vec<Vec<&Run>> {
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
    let of = |setting: Setting| Differing { setting, a: setting.of(a), b: setting.of(b) };
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

    fn rounds_of(side: &str, level_ns: u64) -> Vec<Run> {
        let of = |turn: u64| run(&format!("{side}/{turn}"), level_ns + 10 * turn, |_| ());
        (0..6).map(of).collect()
    }

    #[test]
    fn runs_of_the_same_settings_are_the_rounds_of_a_side() {
        let (a, b) = (rounds_of("a", 10_000), rounds_of("b", 12_000));
        let [pair] = pairs(&a, &b, &[]).unwrap().try_into().unwrap();
        assert_eq!((pair.a.len(), pair.b.len(), pair.across), (6, 6, vec![]));
        assert_eq!(pair.differences.len(), 4);
        assert!(pair.differences.iter().all(|one| one.is_sure), "{:?}", pair.differences);
        // A directory with itself.
        let [pair] = pairs(&a, &a, &[]).unwrap().try_into().unwrap();
        assert!(pair.differences.iter().all(|one| one.difference_ns == 0 && !one.is_sure));
    }

    #[test]
    fn runs_that_are_not_alike_are_refused_unless_it_is_said() {
        let period = |provenance: &mut Provenance| provenance.period_ns = Some(7);
        let a = [run("a/x", 1, |_| ())];
        let b = [run("b/x", 2, period)];
        let refused = pairs(&a, &b, &[]).unwrap_err().to_string();
        let says = "a/x and b/x are not alike: they differ in period (1000000 ns; 7 ns): choose \
                    others, or say --across period";
        assert_eq!(refused, says);
        assert!(pairs(&a, &b, &[Setting::Kernel]).is_err());
        let [pair] = pairs(&a, &b, &[Setting::Period]).unwrap().try_into().unwrap();
        assert_eq!(pair.across.len(), 1);
        // One early end among rounds is enough.
        let mut b = rounds_of("b", 12_000);
        b[4].provenance.partial = Some("interrupted".into());
        let refused = pairs(&a, &b, &[]).unwrap_err().to_string();
        assert!(refused.contains("b/4") && refused.contains("(interrupted)"), "{refused}");
        assert_eq!(pairs(&a, &b, &[Setting::Completeness]).unwrap()[0].b.len(), 6);
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
        let found = pairs(&a, &b, &[]).unwrap();
        let medians: Vec<i64> =
            found.iter().map(|pair| pair.differences[0].difference_ns).collect();
        assert_eq!(medians, [0, 0], "each column has its own partner");
        let refused = pairs(&a, &b, &[Setting::Column]).unwrap_err();
        assert!(matches!(refused, PairError::Ambiguous { .. }), "{refused}");
        let refused = pairs(&a, &b[..1], &[Setting::Column]).unwrap_err();
        assert!(matches!(refused, PairError::Ambiguous { .. }), "{refused}");
        let kind = |provenance: &mut Provenance| provenance.kind = Kind::Normal;
        let (a, b) = ([run("a/x", 1, |_| ())], [run("b/x", 2, kind)]);
        let refused = pairs(&a, &b, &[]).unwrap_err().to_string();
        let says = "they differ in kind (partition; normal): choose others, or say --across kind";
        assert!(refused.ends_with(says), "{refused}");
        assert_eq!(pairs(&a, &b, &[Setting::Kind]).unwrap().len(), 1);
        assert!(pairs(&a, &[], &[]).is_err());
    }

    #[test]
    fn periods_of_one_side_are_no_rounds_of_each_other() {
        let period = |provenance: &mut Provenance| provenance.period_ns = Some(7);
        let a = [run("a/x", 1, |_| ())];
        let b = [run("b/x", 2, |_| ()), run("b/y", 2, period)];
        let refused = pairs(&a, &b, &[Setting::Period]).unwrap_err();
        assert!(matches!(refused, PairError::Ambiguous { .. }), "{refused}");
        assert!(pairs(&b, &a, &[]).is_err());
    }
}
