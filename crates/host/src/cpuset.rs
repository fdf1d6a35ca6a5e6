// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of CPUs, and the ways people and kernels write them.
//!
//! The kernel writes lists (`0-3,5`) and masks (`ff,0000000f`: hexadecimal words of 32 CPUs,
//! highest first), admin-guide/kernel-parameters.rst "cpu lists". People also write `last`, `all`,
//! `all-but 0`, `2-N` and `0xc`. Those depend on which CPUs there are, so they stay a [`CpuSpec`]
//! until [`CpuSpec::resolve`] gets the online CPUs.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A CPU number as the kernel counts them.
pub type Cpu = u32;

/// The kernel's own ceiling is 8192 (`NR_CPUS`); anything larger is a typing mistake, not a
/// machine.
const HIGHEST_CPU: Cpu = 65_535;

/// A set of CPU numbers. Prints, parses and serialises as a kernel CPU list.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet {
    /// Bit `n % 64` of word `n / 64` is CPU n; the last word is never 0, so that equal sets have
    /// equal words.
    words: Vec<u64>,
}

/// Why a text is not a CPU list; holds the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    #[error(
        "invalid CPU list {0:?}: expected e.g. 1-3,5 (also: last, last:2, \"all-but 0\", 2-N, \
         0xe)"
    )]
    NotAList(String),
    #[error("invalid CPU list {0:?}: the range {1} runs backwards")]
    Backwards(String, String),
    #[error("invalid CPU list {0:?}: no machine has a CPU {1}")]
    TooLarge(String, u64),
}

impl CpuSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a kernel mask: comma-separated 32-bit hexadecimal words, highest first. A single word
    /// may be longer, and may begin with `0x`.
    pub fn from_mask(text: &str) -> Result<Self, CpuListError> {
        let bad = || CpuListError::NotAList(text.trim().to_owned());
        let digits = text.trim();
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let digits = match digits.contains(',') {
            false => digits.to_owned(),
            true if digits.split(',').all(|word| (1..=8).contains(&word.len())) => {
                digits.split(',').map(|word| format!("{word:0>8}")).collect()
            }
            true => return Err(bad()),
        };
        if digits.is_empty() || digits.len() > 2048 {
            return Err(bad());
        }
        let mut set = Self::new();
        for (place, digit) in digits.chars().rev().enumerate() {
            let nibble = digit.to_digit(16).ok_or_else(bad)?;
            (0..4)
                .filter(|bit| nibble >> bit & 1 == 1)
                .for_each(|bit| set.insert(place as Cpu * 4 + bit));
        }
        Ok(set)
    }

    /// The kernel's mask notation, at least one word, no leading zeros in the first.
    pub fn to_mask(&self) -> String {
        let halves: Vec<u32> =
            self.words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect();
        let highest = halves.iter().rposition(|half| *half != 0).unwrap_or(0);
        let mut text = format!("{:x}", halves.get(highest).copied().unwrap_or(0));
        for half in halves[..highest].iter().rev() {
            text.push_str(&format!(",{half:08x}"));
        }
        text
    }

    pub fn contains(&self, cpu: Cpu) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    pub fn insert(&mut self, cpu: Cpu) {
        let index = cpu as usize / 64;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (cpu % 64);
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Cpu> + '_ {
        let words = self.words.iter().enumerate();
        words.flat_map(|(index, word)| Bits(*word).map(move |bit| index as Cpu * 64 + bit))
    }

    pub fn first(&self) -> Option<Cpu> {
        self.iter().next()
    }

    pub fn last(&self) -> Option<Cpu> {
        self.iter().next_back()
    }

    /// The words of 64 CPUs, lowest first, as `sched_setaffinity(2)` takes them on every
    /// architecture that keeps the lowest byte first.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn of_words(words: impl Iterator<Item = u64>) -> Self {
        let mut words: Vec<u64> = words.collect();
        words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
        Self { words }
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    pub fn union(&self, other: &Self) -> Self {
        let longest = self.words.len().max(other.words.len());
        Self::of_words((0..longest).map(|index| self.word(index) | other.word(index)))
    }

    pub fn intersection(&self, other: &Self) -> Self {
        Self::of_words(self.words.iter().zip(&other.words).map(|(one, other)| one & other))
    }

    pub fn difference(&self, other: &Self) -> Self {
        Self::of_words((0..self.words.len()).map(|index| self.word(index) & !other.word(index)))
    }

    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(one, other)| one & other != 0)
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        (0..self.words.len()).all(|index| self.word(index) & !other.word(index) == 0)
    }
}

/// Numbers of the bits that are set in a word; a step for each of them, not for each of 64.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let lowest = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(lowest)
    }
}

impl DoubleEndedIterator for Bits {
    fn next_back(&mut self) -> Option<u32> {
        let highest = self.0.checked_ilog2()?;
        self.0 &= !(1 << highest);
        Some(highest)
    }
}

/// As of the sorted CPU numbers: `0,5` is before `1`.
impl Ord for CpuSet {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for CpuSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromIterator<Cpu> for CpuSet {
    fn from_iter<I: IntoIterator<Item = Cpu>>(cpus: I) -> Self {
        let mut set = Self::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(Cpu, Cpu)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == cpu => *end = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let words: Vec<String> = ranges
            .into_iter()
            .map(
                |(start, end)| {
                    if start == end { start.to_string() } else { format!("{start}-{end}") }
                },
            )
            .collect();
        f.pad(&words.join(","))
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// One end of a range: a CPU, or the last one there is (`N`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cpu(Cpu),
    Last,
}

/// One part of a list: `1`, `0-3`, `4-N`, or with a stride `0-31:2/4` (of every 4 CPUs the first
/// 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    start: End,
    end: End,
    stride: Option<(Cpu, Cpu)>,
}

impl Part {
    fn cpus(self, last: Cpu) -> impl Iterator<Item = Cpu> {
        let number = |end: End| if let End::Cpu(cpu) = end { cpu } else { last };
        let (start, end) = (number(self.start), number(self.end));
        let (used, group) = self.stride.unwrap_or((1, 1));
        (start..=end).filter(move |cpu| (cpu - start) % group < used)
    }

    const fn is_open(self) -> bool {
        matches!((self.start, self.end), (End::Last, _) | (_, End::Last))
    }
}

/// The parts of a kernel list; none of the empty text.
fn parts(text: &str) -> Result<Vec<Part>, CpuListError> {
    let whole = text.trim();
    let bad = || CpuListError::NotAList(whole.to_owned());
    let number = |word: &str| -> Result<Cpu, CpuListError> {
        if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        let value: u64 = word.parse().map_err(|_| bad())?;
        match Cpu::try_from(value) {
            Ok(cpu) if cpu <= HIGHEST_CPU => Ok(cpu),
            _ => Err(CpuListError::TooLarge(whole.to_owned(), value)),
        }
    };
    let end = |word: &str| match word.trim() {
        "N" => Ok(End::Last),
        word => number(word).map(End::Cpu),
    };
    let part = |part: &str| -> Result<Part, CpuListError> {
        let (range, stride) = match part.split_once(':') {
            Some((range, stride)) => {
                let (used, group) = stride.split_once('/').ok_or_else(bad)?;
                (range, Some((number(used)?, number(group)?)))
            }
            None => (part, None),
        };
        let (start, end) = match range.split_once('-') {
            Some((start, last)) => (end(start)?, end(last)?),
            None => (end(range)?, end(range)?),
        };
        match (start, end, stride) {
            (End::Cpu(start), End::Cpu(end), _) if start > end => {
                Err(CpuListError::Backwards(whole.to_owned(), part.to_owned()))
            }
            (End::Last, End::Cpu(_), _) => {
                Err(CpuListError::Backwards(whole.to_owned(), part.to_owned()))
            }
            (_, _, Some((used, group))) if used == 0 || used > group => Err(bad()),
            _ => Ok(Part { start, end, stride }),
        }
    };
    match whole {
        "" => Ok(Vec::new()),
        _ => whole.split(',').map(str::trim).map(part).collect(),
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    /// Parses a kernel list as files show it: `N` and `all`, which depend on the machine, are for
    /// [`CpuSpec`]. The empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let parts = parts(text)?;
        if parts.iter().any(|part| part.is_open()) {
            return Err(CpuListError::NotAList(text.trim().to_owned()));
        }
        Ok(parts.iter().flat_map(|part| part.cpus(0)).collect())
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuListError;
    fn try_from(text: String) -> Result<Self, CpuListError> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

/// CPUs as a person names them, before the machine is known. Prints, parses and serialises as its
/// text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CpuSpec {
    List(CpuSet),
    /// Every online CPU: `all`.
    All,
    /// The highest `n` online CPUs: `last`, `last:2`.
    Last(usize),
    /// Every online CPU that is not in the set: `all-but 0`.
    AllBut(CpuSet),
    /// A list with `N`, the highest online CPU: `2-N`.
    UpToLast(UpToLast),
}

/// A list whose CPUs depend on which is the highest one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpToLast {
    parts: Vec<Part>,
    text: String,
}

impl CpuSpec {
    /// The CPUs meant on a machine with these CPUs online. May be empty, and a list may name CPUs
    /// that are not online: the planner refuses both with the machine's words.
    pub fn resolve(&self, online: &CpuSet) -> CpuSet {
        match self {
            Self::List(set) => set.clone(),
            Self::All => online.clone(),
            Self::Last(count) => online.iter().rev().take(*count).collect(),
            Self::AllBut(set) => online.difference(set),
            Self::UpToLast(list) => match online.last() {
                Some(last) => list.parts.iter().flat_map(|part| part.cpus(last)).collect(),
                None => CpuSet::new(),
            },
        }
    }
}

impl FromStr for CpuSpec {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let whole = text.trim();
        let bad = || CpuListError::NotAList(whole.to_owned());
        if whole == "last" {
            return Ok(Self::Last(1));
        }
        if whole == "all" {
            return Ok(Self::All);
        }
        if let Some(count) = whole.strip_prefix("last:") {
            return match count.parse() {
                Ok(count) if count > 0 => Ok(Self::Last(count)),
                _ => Err(bad()),
            };
        }
        if let Some(rest) = whole.strip_prefix("all-but") {
            // One separator, as each way of writing options has it.
            let rest = rest.strip_prefix([' ', '\t', ':', '=', '-']).ok_or_else(bad)?;
            return match rest.parse::<CpuSet>() {
                Ok(set) if !set.is_empty() => Ok(Self::AllBut(set)),
                Ok(_) => Err(bad()),
                Err(error) => Err(error),
            };
        }
        if whole.starts_with("0x") || whole.starts_with("0X") {
            return CpuSet::from_mask(&whole.to_ascii_lowercase()).map(Self::List);
        }
        let parts = parts(whole)?;
        match parts.iter().any(|part| part.is_open()) {
            true => Ok(Self::UpToLast(UpToLast { parts, text: whole.to_owned() })),
            false if parts.is_empty() => Err(bad()),
            false => Ok(Self::List(parts.iter().flat_map(|part| part.cpus(0)).collect())),
        }
    }
}

impl fmt::Display for CpuSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(set) => write!(f, "{set}"),
            Self::All => f.write_str("all"),
            Self::Last(count) => write!(f, "last:{count}"),
            Self::AllBut(set) => write!(f, "all-but {set}"),
            Self::UpToLast(list) => f.write_str(&list.text),
        }
    }
}

impl TryFrom<String> for CpuSpec {
    type Error = CpuListError;
    fn try_from(text: String) -> Result<Self, CpuListError> {
        text.parse()
    }
}

impl From<CpuSpec> for String {
    fn from(spec: CpuSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn kernel_lists_round_trip() {
        for text in ["", "0", "0-3", "1-3,5", "0,2,4-6,31-33"] {
            assert_eq!(set(text).to_string(), text);
        }
        assert_eq!(set("3,1-2\n").to_string(), "1-3");
        assert_eq!(set("0-7:2/4").to_string(), "0-1,4-5");
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_text() {
        for text in [
            "x",
            "1-",
            "-1",
            "1,,2",
            "3-1",
            "1 2",
            "99999999999999999999",
            "70000",
            "0-3:0/2",
            "+1",
        ] {
            let error = text.parse::<CpuSet>().unwrap_err().to_string();
            assert!(error.contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn kernel_masks_round_trip() {
        for (mask, list) in
            [("f", "0-3"), ("8", "3"), ("1,00000000", "32"), ("80000001,0000000f", "0-3,32,63")]
        {
            assert_eq!(CpuSet::from_mask(mask).unwrap(), set(list));
            assert_eq!(set(list).to_mask(), mask);
        }
        assert_eq!(CpuSet::new().to_mask(), "0");
        assert_eq!(CpuSet::from_mask("0000000f\n").unwrap(), set("0-3"));
        assert!(CpuSet::from_mask("").is_err());
        assert!(CpuSet::from_mask("0x").is_err());
        for mask in ["1g", "0x0x0xf", "0xf,0xf", "f,", ",f", "123456789,0", "+f", "-1"] {
            assert!(CpuSet::from_mask(mask).is_err(), "{mask}");
        }
    }

    #[test]
    fn people_may_say_last_all_but_and_hex() {
        let online = set("0-3");
        let says = |text: &str| text.parse::<CpuSpec>().unwrap().resolve(&online).to_string();
        assert_eq!(says("last"), "3");
        assert_eq!(says("last:2"), "2-3");
        assert_eq!(says("all-but 0"), "1-3");
        assert_eq!(says("all-but-0"), "1-3");
        assert_eq!(says("0xc"), "2-3");
        assert_eq!(says("2-3"), "2-3");
        assert_eq!(says("all"), "0-3");
        assert_eq!(says("N"), "3");
        assert_eq!(says("0,2-N"), "0,2-3");
        assert_eq!(says("0-N:1/2"), "0,2");
        assert_eq!(says("7-N"), "", "no CPU is that high");
        for text in [
            "",
            "all-but",
            "last:0",
            "last:x",
            "0xzz",
            "all-but x",
            "all-but::0",
            "all-but0",
            "0x0x0xf",
            "N-2",
            "n",
            "2-NN",
            "all,1",
        ] {
            assert!(text.parse::<CpuSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_people_say_prints_and_serialises_as_it_is_parsed() {
        for text in ["1-3,5", "last:2", "all", "all-but 0", "2-N"] {
            let spec: CpuSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<CpuSpec>(&json).unwrap(), spec);
        }
    }

    #[test]
    fn a_file_of_the_kernel_names_no_machine_it_does_not_know() {
        for text in ["all", "N", "0-N", "last"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    /// Against sets of the standard library, with numbers around the ends of words.
    #[test]
    fn sets_behave_like_sets_of_numbers() {
        use std::collections::BTreeSet;
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut numbers = || -> BTreeSet<Cpu> {
            let (count, highest) = (random() % 40, [4, 63, 64, 65, 200][random() as usize % 5]);
            (0..count).map(|_| (random() % (highest + 1)) as Cpu).collect()
        };
        for _ in 0..2000 {
            let (one, other) = (numbers(), numbers());
            let as_set = |numbers: &BTreeSet<Cpu>| numbers.iter().copied().collect::<CpuSet>();
            let (a, b) = (as_set(&one), as_set(&other));
            let is = |set: CpuSet, expected: BTreeSet<Cpu>| {
                assert!(set.iter().eq(expected.iter().copied()), "{set} {expected:?}");
                assert_eq!(set, as_set(&expected), "one representation a set");
            };
            is(a.union(&b), one.union(&other).copied().collect());
            is(a.intersection(&b), one.intersection(&other).copied().collect());
            is(a.difference(&b), one.difference(&other).copied().collect());
            assert_eq!(a.intersects(&b), !one.is_disjoint(&other));
            assert_eq!(a.is_subset(&b), one.is_subset(&other));
            assert!(a.intersection(&b).is_subset(&a));
            assert_eq!(a.cmp(&b), one.cmp(&other));
            assert_eq!((a.len(), a.is_empty()), (one.len(), one.is_empty()));
            assert_eq!((a.first(), a.last()), (one.first().copied(), one.last().copied()));
            assert!(a.iter().rev().eq(one.iter().rev().copied()));
            assert!((0..260).all(|cpu| a.contains(cpu) == one.contains(&cpu)));
            assert_eq!(set(&a.to_string()), a);
            assert_eq!(CpuSet::from_mask(&a.to_mask()).unwrap(), a);
        }
    }

    #[test]
    fn sets_serialise_as_lists() {
        assert_eq!(serde_json::to_string(&set("1-3,5")).unwrap(), "\"1-3,5\"");
        assert_eq!(serde_json::from_str::<CpuSet>("\"0-1\"").unwrap(), set("0,1"));
        assert!(serde_json::from_str::<CpuSet>("\"no\"").is_err());
    }
}
