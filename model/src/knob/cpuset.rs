//! [`CpuSet`]: which processors, as `cpuset.cpus` writes it.

use std::fmt;
use std::str::FromStr;

use crate::kernel_text;

const WORD: usize = u64::BITS as usize;
const WORDS: usize = CpuSet::MOST / WORD;

/// A set of logical processors, numbered below [`CpuSet::MOST`].
///
/// The text is the kernel's list format (`0-3,7`, cpuset(7)): sorted, neighbours joined, empty for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    bits: [u64; WORDS],
}

impl CpuSet {
    /// One more than the largest processor number that can be held. Settings are kept by the ten thousand and are as
    /// large as the largest of them, so this is not the 896 of the largest machines sold; on those a list that
    /// names more is not understood and exclusive processors cannot be given.
    pub const MOST: usize = 256;

    /// No processor. In a v2 `cpuset.cpus` it means "those of the parent".
    pub const EMPTY: Self = Self { bits: [0; WORDS] };

    /// Adds a processor; false when its number is too large to be held.
    pub const fn insert(&mut self, cpu: usize) -> bool {
        if cpu >= Self::MOST {
            return false;
        }
        self.bits[cpu / WORD] |= 1 << (cpu % WORD);
        true
    }

    /// Takes a processor out. Harmless when it is not in.
    pub const fn remove(&mut self, cpu: usize) {
        if cpu < Self::MOST {
            self.bits[cpu / WORD] &= !(1 << (cpu % WORD));
        }
    }

    /// Whether a processor is in.
    pub const fn contains(&self, cpu: usize) -> bool {
        cpu < Self::MOST && self.bits[cpu / WORD] & (1 << (cpu % WORD)) != 0
    }

    /// Number of processors.
    pub fn len(&self) -> usize {
        self.bits.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// True when none is in.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|w| *w == 0)
    }

    /// The processors, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..Self::MOST).filter(|&cpu| self.contains(cpu))
    }

    /// Those in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.with(other, |a, b| a | b)
    }

    /// Those in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & b)
    }

    /// Those in this one and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & !b)
    }

    /// True when every processor of this one is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    fn with(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self { bits: std::array::from_fn(|i| join(self.bits[i], other.bits[i])) }
    }

    /// Reads a list. `None` when it is none, runs backwards, or names a processor that cannot be held.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut set = Self::EMPTY;
        let text = text.trim_ascii();
        if text.is_empty() {
            return Some(set);
        }
        for part in text.split(|&b| b == b',') {
            let mut ends = part.splitn(2, |&b| b == b'-');
            let number = |end: &[u8]| usize::try_from(kernel_text::uint(end)?).ok();
            let first = number(ends.next()?)?;
            let last = ends.next().map_or(Some(first), number)?;
            if first > last || last >= Self::MOST {
                return None;
            }
            for cpu in first..=last {
                set.insert(cpu);
            }
        }
        Some(set)
    }
}

impl FromIterator<usize> for CpuSet {
    /// Numbers too large to be held are left out.
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = Self::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpu = 0;
        let mut comma = "";
        while cpu < Self::MOST {
            if !self.contains(cpu) {
                cpu += 1;
                continue;
            }
            let first = cpu;
            while self.contains(cpu + 1) {
                cpu += 1;
            }
            match first == cpu {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{cpu}")?,
            }
            comma = ",";
            cpu += 1;
        }
        Ok(())
    }
}

/// Text that is no list of processors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a list of processors such as 0-3,7 with numbers below 256")]
pub struct NotACpuSet(pub String);

impl FromStr for CpuSet {
    type Err = NotACpuSet;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s.as_bytes()).ok_or_else(|| NotACpuSet(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_writes_them() {
        for (text, want) in [
            ("", ""),
            ("\n", ""),
            ("0\n", "0"),
            ("0-3,7", "0-3,7"),
            ("7,0-1,2,3", "0-3,7"),
            ("63-64", "63-64"),
            ("255", "255"),
            ("0-255", "0-255"),
        ] {
            assert_eq!(CpuSet::parse(text.as_bytes()).unwrap().to_string(), want, "{text:?}");
        }
        for text in ["x", "1-", "-1", "3-1", "256", "0-256", "1,,2", "1 2", "0-3:1/2", "1-2-3"] {
            assert_eq!(CpuSet::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn sets_are_joined_and_cut() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let (a, b) = (set("0-3"), set("2-5"));
        assert_eq!(a.union(&b), set("0-5"));
        assert_eq!(a.intersection(&b), set("2-3"));
        assert_eq!(a.difference(&b), set("0-1"));
        assert!(set("1").is_subset(&a) && !b.is_subset(&a));
        assert_eq!(a.len(), 4);
        let mut c = a;
        c.remove(0);
        c.remove(5000);
        assert!(!c.insert(256));
        assert_eq!(c.to_string(), "1-3");
    }

    proptest! {
        #[test]
        fn text_is_read_back(cpus in prop::collection::btree_set(0usize..CpuSet::MOST, 0..64)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(set.to_string().parse(), Ok(set));
        }

        #[test]
        fn any_bytes_are_read_without_panic(text in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'-'), Just(b','), b'0'..=b'9'], 0..32)) {
            if let Some(set) = CpuSet::parse(&text) {
                prop_assert_eq!(CpuSet::parse(set.to_string().as_bytes()), Some(set));
            }
        }
    }
}
