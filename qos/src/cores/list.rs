//! A list of logical CPUs, as `cpuset.cpus` writes it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, Serializer};

/// Largest number of a logical CPU that is taken: the kernel's `CONFIG_NR_CPUS` reaches 8192.
const MOST: u32 = 8191;

/// Logical CPUs by their numbers, in order; printed as the kernel does (`0-3,8`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether a CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether every CPU of this is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Those of this that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Takes those of `other` in.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl std::fmt::Display for CpuList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

/// Text that is no list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotACpuList(String);

impl std::fmt::Display for NotACpuList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is no list of cpus such as 0-3,8", self.0)
    }
}

impl std::error::Error for NotACpuList {}

impl std::str::FromStr for CpuList {
    type Err = NotACpuList;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotACpuList(text.to_owned());
        let number = |t: &str| t.parse::<u32>().ok().filter(|n| *n <= MOST).ok_or_else(wrong);
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|p| !p.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuList {
    type Error = NotACpuList;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
