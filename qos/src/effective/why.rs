//! What a verdict is made from, and who takes the effect away.
//!
//! A decision holds one input for each level of a path, `level_00` the topmost: its numbers and, last, its path.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use evenkeel_model::units::Bytes;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::protection::{Path, PathCgroup, ProtectionEffect, ProtectionKnob, effective};
use super::weight::{WeightLevel, WeightVerdict, competition};

/// Levels a decision carries; a path that is deeper is left out of it, for a decision is bounded.
const MOST_LEVELS: usize = 32;
/// What a replayed verdict says where nothing takes the effect away.
const NOBODY: &str = "nobody";

/// An ancestor takes an effect away, whole or in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostEffect {
    /// Which.
    pub by: String,
    /// What holds, in words.
    pub what: String,
    /// What a person can do.
    pub remedy: String,
}

impl LostEffect {
    /// As one sentence.
    pub fn text(&self) -> String {
        format!("{}; {}", self.what, self.remedy)
    }
}

/// The way to a protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionPath {
    /// Which protection.
    pub protection: ProtectionKnob,
    /// See [`Path::recursive`].
    pub recursive: bool,
    /// From the topmost cgroup to the container.
    #[serde(flatten)]
    pub levels: Levels<PathCgroup>,
}

impl ProtectionPath {
    /// Who takes its effect away; `None` where all of it holds.
    pub fn lost(&self) -> Option<LostEffect> {
        let path = Path { nodes: &self.levels.0, recursive: self.recursive };
        match effective(self.protection, path).verdict {
            ProtectionEffect::Granted => None,
            ProtectionEffect::Partly { granted, by, remedy } => {
                let value = self.levels.0.last().map_or(Bytes::ZERO, |leaf| leaf.setting);
                let what = format!("only {granted} of {value} hold: {by} grants no more");
                Some(LostEffect { by, what, remedy })
            }
            ProtectionEffect::Ineffective { ancestor: by, remedy } => {
                Some(LostEffect { what: format!("nothing of it holds: {by} does not grant it"), by, remedy })
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        text(self.lost())
    }

    pub(crate) fn again(&self) -> String {
        again(self.lost())
    }
}

/// The way to a weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightPath {
    /// From the topmost cgroup to the container.
    #[serde(flatten)]
    pub levels: Levels<WeightLevel>,
}

impl WeightPath {
    /// Who takes its effect away; `None` where it competes.
    pub fn lost(&self) -> Option<LostEffect> {
        match competition(&self.levels.0)? {
            WeightVerdict::Granted(_) | WeightVerdict::Carried(_) => None,
            WeightVerdict::Ineffective { ancestor: by, remedy } => {
                Some(LostEffect { by, what: "it has no effect here".into(), remedy })
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        text(self.lost())
    }

    pub(crate) fn again(&self) -> String {
        again(self.lost())
    }
}

fn text(lost: Option<LostEffect>) -> String {
    lost.map_or_else(|| "it has its effect".to_owned(), |lost| lost.text())
}

fn again(lost: Option<LostEffect>) -> String {
    lost.map_or_else(|| NOBODY.to_owned(), |lost| lost.by)
}

/// Levels of a path, topmost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels<L>(pub Vec<L>);

impl<L: Display> Serialize for Levels<L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let most = if self.0.len() <= MOST_LEVELS { MOST_LEVELS } else { 0 };
        // Two digits, so that the order of names is that of levels.
        let name = |depth| format!("level_{depth:02}");
        let levels = self.0.iter().take(most).enumerate();
        serializer.collect_map(levels.map(|(depth, level)| (name(depth), level.to_string())))
    }
}

impl<'de, L: FromStr> Deserialize<'de> for Levels<L> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ByName(PhantomData))
    }
}

struct ByName<L>(PhantomData<L>);

impl<'de, L: FromStr> Visitor<'de> for ByName<L> {
    type Value = Levels<L>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("levels of a path")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Levels<L>, A::Error> {
        let mut levels = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name.starts_with("level_") {
                let text: String = map.next_value()?;
                let unread = |_| Error::custom(format!("{name} cannot be read: {text}"));
                levels.push(text.parse().map_err(unread)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if levels.is_empty() { Err(Error::custom("no level of a path")) } else { Ok(Levels(levels)) }
    }
}

/// Text that is no level of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotALevel;

/// Three words and a path, which may hold spaces.
fn words<const N: usize>(text: &str) -> Result<[&str; N], NotALevel> {
    let words: Vec<&str> = text.splitn(N, ' ').collect();
    words.try_into().map_err(|_| NotALevel)
}

fn read<T: FromStr>(word: &str) -> Result<T, NotALevel> {
    word.parse().map_err(|_| NotALevel)
}

impl Display for PathCgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (setting, usage, claims) = (self.setting.get(), self.usage.get(), self.siblings_claim.get());
        write!(f, "{setting} {usage} {claims} {}", self.path)
    }
}

impl FromStr for PathCgroup {
    type Err = NotALevel;

    fn from_str(text: &str) -> Result<Self, NotALevel> {
        let [setting, usage, claims, path] = words(text)?;
        let bytes = |word| read(word).map(Bytes::new);
        let (setting, usage, siblings_claim) = (bytes(setting)?, bytes(usage)?, bytes(claims)?);
        Ok(Self { path: path.to_owned(), setting, usage, siblings_claim })
    }
}

impl Display for WeightLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, populated_siblings, processes_beside, is_ours } = self;
        write!(f, "{populated_siblings} {processes_beside} {is_ours} {path}")
    }
}

impl FromStr for WeightLevel {
    type Err = NotALevel;

    fn from_str(text: &str) -> Result<Self, NotALevel> {
        let [siblings, beside, ours, path] = words(text)?;
        Ok(Self {
            path: path.to_owned(),
            populated_siblings: read(siblings)?,
            processes_beside: read(beside)?,
            is_ours: read(ours)?,
        })
    }
}
