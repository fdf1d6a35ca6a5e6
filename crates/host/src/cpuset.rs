//! Sets of CPUs, and the ways people and kernels write them.
//!
//! The kernel writes lists (`0-3,5`) and masks (`ff,0000000f`: hexadecimal words of 32 CPUs, highest
//! first). People also say `last`, `all-but 0` and `0xc`; those need to know which CPUs there are, so
//! they stay a [`CpuSpec`] until [`CpuSpec::resolve`] meets the machine.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A CPU number as the kernel counts them.
pub type Cpu = u32;

/// The kernel's own ceiling is 8192 (`NR_CPUS`); anything larger is a typing mistake, not a machine.
const HIGHEST_CPU: Cpu = 65_535;

/// A set of CPU numbers. Prints, parses and serialises as a kernel CPU list.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<Cpu>);

/// Why a text is no CPU list; carries the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    #[error("{0:?} is not a CPU list: write it like 1-3,5 (also: last, last:2, \"all-but 0\", 0xe)")]
    NotAList(String),
    #[error("{0:?} is not a CPU list: the range {1} runs backwards")]
    Backwards(String, String),
    #[error("{0:?} is not a CPU list: CPU {1} is beyond any machine's")]
    TooLarge(String, u64),
}

impl CpuSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a kernel mask: comma-separated 32-bit hexadecimal words, highest first.
    pub fn from_mask(text: &str) -> Result<Self, CpuListError> {
        let bad = || CpuListError::NotAList(text.trim().to_owned());
        let words: Vec<&str> = text.trim().trim_start_matches("0x").split(',').collect();
        let mut set = BTreeSet::new();
        // One word without commas may be longer than 32 bits when a person typed it.
        let digits: String = if words.len() == 1 {
            words[0].to_owned()
        } else {
            words.iter().map(|word| format!("{word:0>8}")).collect()
        };
        if digits.is_empty() || digits.len() > 2048 {
            return Err(bad());
        }
        for (place, digit) in digits.chars().rev().enumerate() {
            let nibble = digit.to_digit(16).ok_or_else(bad)?;
            set.extend((0..4).filter(|bit| nibble >> bit & 1 == 1).map(|bit| place as Cpu * 4 + bit));
        }
        Ok(Self(set))
    }

    /// The kernel's mask notation, at least one word, no leading zeros in the first.
    pub fn to_mask(&self) -> String {
        let words = self.0.last().map_or(1, |cpu| cpu / 32 + 1);
        let word = |index: u32| {
            self.0.iter().filter(|cpu| *cpu / 32 == index).fold(0u32, |word, cpu| word | 1 << (cpu % 32))
        };
        let mut text = format!("{:x}", word(words - 1));
        for index in (0..words - 1).rev() {
            text.push_str(&format!(",{:08x}", word(index)));
        }
        text
    }

    pub fn contains(&self, cpu: Cpu) -> bool {
        self.0.contains(&cpu)
    }

    pub fn insert(&mut self, cpu: Cpu) {
        self.0.insert(cpu);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Cpu> + '_ {
        self.0.iter().copied()
    }

    pub fn first(&self) -> Option<Cpu> {
        self.0.first().copied()
    }

    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    pub fn intersects(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<Cpu> for CpuSet {
    fn from_iter<I: IntoIterator<Item = Cpu>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
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
            .map(|(start, end)| if start == end { start.to_string() } else { format!("{start}-{end}") })
            .collect();
        f.pad(&words.join(","))
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    /// Parses a kernel list; the empty text is the empty set. Strides (`0-31:2/4`: of every 4 CPUs the
    /// first 2) are the kernel's too.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
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
        let mut set = BTreeSet::new();
        if whole.is_empty() {
            return Ok(Self(set));
        }
        for part in whole.split(',').map(str::trim) {
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => {
                    let (used, group) = stride.split_once('/').ok_or_else(bad)?;
                    (range, Some((number(used)?, number(group)?)))
                }
                None => (part, None),
            };
            let (start, end) = match range.split_once('-') {
                Some((start, end)) => (number(start.trim())?, number(end.trim())?),
                None => (number(range)?, number(range)?),
            };
            if start > end {
                return Err(CpuListError::Backwards(whole.to_owned(), part.to_owned()));
            }
            match stride {
                None => set.extend(start..=end),
                Some((used, group)) if used > 0 && used <= group => {
                    set.extend((start..=end).filter(|cpu| (cpu - start) % group < used));
                }
                Some(_) => return Err(bad()),
            }
        }
        Ok(Self(set))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuListError;
    fn try_from(text: String) -> Result<Self, CpuListError> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        set.to_string()
    }
}

/// CPUs as a person names them, before the machine is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuSpec {
    List(CpuSet),
    /// The highest `n` online CPUs.
    Last(usize),
    /// Every online CPU that is not in the set.
    AllBut(CpuSet),
}

impl CpuSpec {
    /// The CPUs meant on a machine with these CPUs online. May be empty, and a list may name CPUs
    /// that are not online: the planner refuses both with the machine's words.
    pub fn resolve(&self, online: &CpuSet) -> CpuSet {
        match self {
            Self::List(set) => set.clone(),
            Self::Last(count) => online.iter().rev().take(*count).collect(),
            Self::AllBut(set) => online.difference(set),
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
        if let Some(count) = whole.strip_prefix("last:") {
            return match count.parse() {
                Ok(count) if count > 0 => Ok(Self::Last(count)),
                _ => Err(bad()),
            };
        }
        if let Some(rest) = whole.strip_prefix("all-but") {
            let rest = rest.trim_start_matches([' ', '\t', ':', '=', '-']);
            return match rest.parse::<CpuSet>() {
                Ok(set) if !set.is_empty() => Ok(Self::AllBut(set)),
                Ok(_) => Err(bad()),
                Err(error) => Err(error),
            };
        }
        if whole.starts_with("0x") || whole.starts_with("0X") {
            return CpuSet::from_mask(&whole.to_ascii_lowercase()).map(Self::List);
        }
        match whole.parse::<CpuSet>()? {
            set if set.is_empty() => Err(bad()),
            set => Ok(Self::List(set)),
        }
    }
}

impl fmt::Display for CpuSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(set) => write!(f, "{set}"),
            Self::Last(count) => write!(f, "last:{count}"),
            Self::AllBut(set) => write!(f, "all-but {set}"),
        }
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
        for text in ["x", "1-", "-1", "1,,2", "3-1", "1 2", "99999999999999999999", "70000", "0-3:0/2", "+1"]
        {
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
        assert!(CpuSet::from_mask("1g").is_err());
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
        for text in ["", "all-but", "last:0", "last:x", "0xzz", "all-but x"] {
            assert!(text.parse::<CpuSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn sets_serialise_as_lists() {
        assert_eq!(serde_json::to_string(&set("1-3,5")).unwrap(), "\"1-3,5\"");
        assert_eq!(serde_json::from_str::<CpuSet>("\"0-1\"").unwrap(), set("0,1"));
        assert!(serde_json::from_str::<CpuSet>("\"no\"").is_err());
    }
}
